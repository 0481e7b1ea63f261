//! A node with the pods it has, and the sums over them that filters and scores read.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::quantity::Quantity;
use k8s_openapi::api::core::v1::{Node, Taint};

use super::labels::Labels;
use super::pod::{HostPort, PodInfo, tagged};
use super::resources::Resources;

#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    pub name: String,
    /// Nothing while only pods of the node are known.
    pub node: Option<Arc<Node>>,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    pub requested: Resources,
    /// Like `requested`, with a minimum for each container.
    pub assumed_requested: Resources,
    pub pods: Vec<Arc<PodInfo>>,
    /// How many of the pods have affinity terms of any sort, and how many required anti-affinity.
    pub pods_with_affinity: usize,
    pub pods_with_anti_affinity: usize,
    pub used_ports: Vec<HostPort>,
    /// Sizes of the images the node has, by name with tag.
    pub images: HashMap<String, i64>,
}

impl NodeInfo {
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        self.labels = node.metadata.labels.clone().unwrap_or_default();
        let spec = node.spec.as_ref();
        self.taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        self.allocatable = allocatable.map(Resources::from_list).unwrap_or_default();
        let pods = allocatable.and_then(|list| list.get("pods")).and_then(|text| Quantity::parse(&text.0).ok());
        self.allowed_pods = pods.map_or(0, |pods| pods.value());
        self.images = status
            .and_then(|status| status.images.as_ref())
            .into_iter()
            .flatten()
            .flat_map(|image| {
                let size = image.size_bytes.unwrap_or_default();
                image.names.iter().flatten().map(move |name| (tagged(name), size))
            })
            .collect();
        self.node = Some(node);
    }

    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.assumed_requested.add(&pod.assumed_requests);
        self.used_ports.extend(pod.host_ports.iter().cloned());
        self.pods_with_affinity += usize::from(!pod.affinities.is_empty());
        self.pods_with_anti_affinity += usize::from(!pod.affinities.required_anti.is_empty());
        self.pods.push(pod);
    }

    /// False when the pod was not here.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(at) = self.pods.iter().position(|pod| pod.uid == uid) else { return false };
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests);
        self.assumed_requested.subtract(&pod.assumed_requests);
        for port in &pod.host_ports {
            if let Some(at) = self.used_ports.iter().position(|used| used == port) {
                self.used_ports.swap_remove(at);
            }
        }
        self.pods_with_affinity -= usize::from(!pod.affinities.is_empty());
        self.pods_with_anti_affinity -= usize::from(!pod.affinities.required_anti.is_empty());
        true
    }

    /// Region and zone, by which nodes are taken in turns.
    pub fn zone(&self) -> (&str, &str) {
        let label = |key: &str| self.labels.get(key).map_or("", String::as_str);
        (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
    }
}

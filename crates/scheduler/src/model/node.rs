//! A node with the pods it has, and the sums over them that filters and scores read.
//!
//! What every filter reads stands first and together; what is large is shared, so that a simulation copies little.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::quantity::Quantity;
use ferry_semantics::host_ports::HostPorts;
use k8s_openapi::api::core::v1::{Node, Taint};

use super::labels::Labels;
use super::pod::{PodInfo, tagged};
use super::resources::Resources;

#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    pub allocatable: Resources,
    pub requested: Resources,
    /// Like `requested`, with a minimum for each container.
    pub assumed_requested: Resources,
    pub allowed_pods: i64,
    pub pods: Vec<Arc<PodInfo>>,
    /// Its place in the cache and in the columns of topologies.
    pub slot: u32,
    pub unschedulable: bool,
    pub name: Arc<str>,
    /// Nothing while only pods of the node are known.
    pub node: Option<Arc<Node>>,
    pub labels: Arc<Labels>,
    pub taints: Arc<[Taint]>,
    pub used_ports: HostPorts,
    /// Sizes of the images the node has, by name with tag.
    pub images: Arc<HashMap<String, i64>>,
}

impl NodeInfo {
    pub fn named(name: &str, slot: u32) -> Self {
        Self { name: name.into(), slot, ..Self::default() }
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        if *self.labels != labels {
            self.labels = Arc::new(labels);
        }
        let spec = node.spec.as_ref();
        self.taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default().into();
        self.unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        self.allocatable = allocatable.map(Resources::from_list).unwrap_or_default();
        let pods = allocatable.and_then(|list| list.get("pods")).and_then(|text| Quantity::parse(&text.0).ok());
        self.allowed_pods = pods.map_or(0, |pods| pods.value());
        let images: HashMap<String, i64> = status
            .and_then(|status| status.images.as_ref())
            .into_iter()
            .flatten()
            .flat_map(|image| {
                let size = image.size_bytes.unwrap_or_default();
                image.names.iter().flatten().map(move |name| (tagged(name), size))
            })
            .collect();
        self.images = Arc::new(images);
        self.node = Some(node);
    }

    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.assumed_requested.add(&pod.assumed_requests);
        pod.host_ports.iter().for_each(|port| self.used_ports.add(port));
        self.pods.push(pod);
    }

    /// False when the pod was not here.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(at) = self.pods.iter().position(|pod| &*pod.uid == uid) else { return false };
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests);
        self.assumed_requested.subtract(&pod.assumed_requests);
        pod.host_ports.iter().for_each(|port| self.used_ports.remove(port));
        true
    }
}

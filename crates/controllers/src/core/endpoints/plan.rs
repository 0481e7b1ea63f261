//! The Endpoints object that a Service should have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::common::{endpoint, pod};

const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
const MANAGER_LABEL: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const TRUNCATED: &str = "endpoints.kubernetes.io/over-capacity";
const CAPACITY: usize = 1000;

/// A port's name, number, protocol and application protocol: what tells subsets apart.
type Port = (String, i32, String, Option<String>);
/// Address, uid of the pod, whether it is ready.
type Place = (String, String, bool);

/// What to write, or none when `existing` is right.
pub(super) fn plan(service: &Service, pods: &[Arc<Pod>], existing: Option<&Endpoints>) -> Option<Endpoints> {
    let (subsets, truncated) = subsets(service, pods);
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS_LABEL);
    if endpoint::is_headless(service) {
        labels.insert(HEADLESS_LABEL.into(), String::new());
    }
    labels.insert(MANAGER_LABEL.into(), MANAGER.into());
    let mut wanted = existing.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    wanted.metadata.labels = Some(labels);
    if truncated {
        wanted.annotations_mut().insert(TRUNCATED.into(), "truncated".into());
    } else if let Some(annotations) = &mut wanted.metadata.annotations {
        annotations.remove(TRUNCATED);
    }
    wanted.subsets = (!subsets.is_empty()).then_some(subsets);
    (existing.map(normalised) != Some(normalised(&wanted))).then_some(wanted)
}

fn normalised(endpoints: &Endpoints) -> Endpoints {
    let mut endpoints = endpoints.clone();
    endpoints.subsets = endpoints.subsets.filter(|subsets| !subsets.is_empty());
    endpoints.metadata.annotations = endpoints.metadata.annotations.filter(|annotations| !annotations.is_empty());
    endpoints
}

fn subsets(service: &Service, pods: &[Arc<Pod>]) -> (Vec<EndpointSubset>, bool) {
    let eager = endpoint::tolerates_unready(service);
    let family = service.spec.as_ref().and_then(|spec| spec.ip_families.as_ref()?.first().cloned());
    let mut addresses: BTreeMap<Place, EndpointAddress> = BTreeMap::new();
    // Most pods have the same ports. Places are not written down for each port: both may be very many.
    let mut alike: BTreeMap<Vec<Option<Port>>, BTreeSet<Place>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod::is_terminal(pod) && (eager || !pod::is_terminating(pod))) {
        let Some(ip) = endpoint::address(pod, family.as_deref() == Some("IPv6")) else { continue };
        let place = (ip.to_owned(), pod.metadata.uid.clone().unwrap_or_default(), eager || pod::is_ready(pod));
        addresses.insert(place.clone(), address(service, pod, ip));
        alike.entry(ports(service, pod)).or_default().insert(place);
    }
    let truncated = addresses.len() > CAPACITY;
    if truncated {
        let kept = kept(addresses.keys());
        alike.values_mut().for_each(|places| places.retain(|place| kept.contains(place)));
        alike.retain(|_, places| !places.is_empty());
    }
    let mut by_port: BTreeMap<&Option<Port>, Vec<usize>> = BTreeMap::new();
    for (group, ports) in alike.keys().enumerate() {
        for port in ports {
            let groups = by_port.entry(port).or_default();
            if groups.last() != Some(&group) {
                groups.push(group);
            }
        }
    }
    // Ports with the same addresses share a subset.
    let mut by_groups: BTreeMap<Vec<usize>, Vec<Port>> = BTreeMap::new();
    for (port, groups) in by_port {
        by_groups.entry(groups).or_default().extend(port.clone());
    }
    let places: Vec<&BTreeSet<Place>> = alike.values().collect();
    let of_groups = |(groups, ports): (Vec<usize>, Vec<Port>)| -> (BTreeSet<Place>, Vec<Port>) {
        (groups.into_iter().flat_map(|group| places[group].iter().cloned()).collect(), ports)
    };
    let by_places: BTreeMap<BTreeSet<Place>, Vec<Port>> = by_groups.into_iter().map(of_groups).collect();
    let subset = |(places, ports): (BTreeSet<Place>, Vec<Port>)| {
        let of = |ready: bool| -> Option<Vec<EndpointAddress>> {
            let list: Vec<_> = places
                .iter()
                .filter(|place| place.2 == ready)
                .filter_map(|place| addresses.get(place).cloned())
                .collect();
            (!list.is_empty()).then_some(list)
        };
        EndpointSubset { addresses: of(true), not_ready_addresses: of(false), ports: port_list(ports) }
    };
    (by_places.into_iter().map(subset).collect(), truncated)
}

/// What of the Service's ports a pod has; a headless Service may have none, and has the pod all the same.
fn ports(service: &Service, pod: &Pod) -> Vec<Option<Port>> {
    let listed = || service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    if listed().next().is_none() {
        return if endpoint::is_headless(service) { vec![None] } else { Vec::new() };
    }
    let of = |port: &ServicePort| {
        let number = endpoint::target_port(port, pod)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        Some(Some((port.name.clone().unwrap_or_default(), number, protocol, port.app_protocol.clone())))
    };
    listed().filter_map(of).collect()
}

/// Those that are ready have precedence where not all fit.
fn kept<'a>(places: impl Iterator<Item = &'a Place>) -> BTreeSet<Place> {
    let (ready, unready): (Vec<&Place>, Vec<&Place>) = places.partition(|place| place.2);
    ready.into_iter().chain(unready).take(CAPACITY).cloned().collect()
}

fn port_list(ports: Vec<Port>) -> Option<Vec<EndpointPort>> {
    let port = |(name, port, protocol, app_protocol): Port| EndpointPort {
        name: (!name.is_empty()).then_some(name),
        port,
        protocol: Some(protocol),
        app_protocol,
    };
    (!ports.is_empty()).then(|| ports.into_iter().map(port).collect())
}

fn address(service: &Service, pod: &Pod, ip: &str) -> EndpointAddress {
    let node = pod::node(pod);
    EndpointAddress {
        ip: ip.to_owned(),
        hostname: endpoint::hostname(service, pod),
        node_name: (!node.is_empty()).then(|| node.to_owned()),
        target_ref: Some(endpoint::target_ref(pod)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, pods: &[(&str, bool, i32)], expected: Value) {
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "a" }, "spec": spec,
        }))
        .expect("a service");
        let pods: Vec<Arc<Pod>> = pods
            .iter()
            .map(|(ip, ready, port)| {
                let ready = if *ready { "True" } else { "False" };
                let json = json!({
                    "metadata": { "uid": ip },
                    "spec": { "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": port }] }] },
                    "status": { "podIP": ip, "conditions": [{ "type": "Ready", "status": ready }] },
                });
                Arc::new(serde_json::from_value(json).expect("a pod"))
            })
            .collect();
        let made = plan(&service, &pods, None).expect("something new");
        let simple = made.subsets.iter().flatten().map(|subset| {
            let ips = |list: &Option<Vec<EndpointAddress>>| {
                list.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>()
            };
            let ports: Vec<i32> = subset.ports.iter().flatten().map(|port| port.port).collect();
            json!([ips(&subset.addresses), ips(&subset.not_ready_addresses), ports])
        });
        assert_eq!(Value::from_iter(simple), expected, "{spec}");
        assert_eq!(plan(&service, &pods, Some(&made)), None, "comes to rest");
    }

    #[test]
    fn pods_become_subsets() {
        let ports = json!([{ "port": 80, "targetPort": 8080 }]);
        check(json!({ "ports": ports }), &[], json!([]));
        check(
            json!({ "ports": ports }),
            &[("10.0.0.2", true, 1), ("10.0.0.1", true, 1), ("10.0.0.3", false, 1)],
            json!([[["10.0.0.1", "10.0.0.2"], ["10.0.0.3"], [8080]]]),
        );
        check(
            json!({ "ports": ports, "publishNotReadyAddresses": true }),
            &[("10.0.0.3", false, 1)],
            json!([[["10.0.0.3"], [], [8080]]]),
        );
        check(
            json!({ "ports": [{ "port": 80, "name": "a", "targetPort": "http" }, { "port": 9, "name": "b" }] }),
            &[("10.0.0.1", true, 1), ("10.0.0.2", true, 2)],
            json!([[["10.0.0.1"], [], [1]], [["10.0.0.1", "10.0.0.2"], [], [9]], [["10.0.0.2"], [], [2]]]),
        );
        check(json!({ "clusterIP": "None" }), &[("10.0.0.1", true, 1)], json!([[["10.0.0.1"], [], []]]));
    }
}

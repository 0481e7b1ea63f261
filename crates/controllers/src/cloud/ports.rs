//! Which ports of a node are free for a LoadBalancer Service: not those that the node listens on itself, not the node ports
//! of others, not those of an older LoadBalancer Service that has the node. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;

use super::service::is_ours;

/// Where a node tells which ports it listens on itself: `tcp/22,tcp/6443,udp/53`.
pub const LISTENING_PORTS: &str = "ferry.dev/listening-ports";
/// More reasons than this are counted, not told.
const MOST_REASONS: usize = 4;

/// `tcp/80`.
pub(crate) type Port = String;

fn port(protocol: Option<&str>, number: i32) -> Port {
    format!("{}/{number}", protocol.unwrap_or("TCP").to_lowercase())
}

fn ports(service: &Service) -> impl Iterator<Item = &k8s_openapi::api::core::v1::ServicePort> {
    service.spec.iter().flat_map(|spec| spec.ports.iter().flatten())
}

/// The ports at which a LoadBalancer Service is to be reached; of others there are none.
pub(crate) fn balanced(service: &Service) -> BTreeSet<Port> {
    let wanted = is_ours(service) && service.metadata.deletion_timestamp.is_none();
    let all = ports(service).filter(|_| wanted);
    all.map(|one| port(one.protocol.as_deref(), one.port)).collect()
}

/// The ports that it has on every node.
pub(crate) fn node_ports(service: &Service) -> BTreeSet<Port> {
    let numbers = ports(service).filter_map(|one| Some((one, one.node_port.filter(|number| *number != 0)?)));
    numbers.map(|(one, number)| port(one.protocol.as_deref(), number)).collect()
}

/// What decides between Services: since when they exist, then their names.
fn age(service: &Service) -> (i64, String, String) {
    let since = service.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
    (since, service.namespace().unwrap_or_default(), service.name_any())
}

fn name(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

/// The ports that a node has for itself.
fn own(node: &Node) -> BTreeSet<Port> {
    let told = node.annotations().get(LISTENING_PORTS).map(String::as_str).unwrap_or_default();
    let endpoints = node.status.as_ref().and_then(|status| status.daemon_endpoints.as_ref());
    let kubelet = endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    let kubelet = kubelet.map(|endpoint| port(None, endpoint.port));
    told.split(',').filter(|text| !text.is_empty()).map(str::to_owned).chain(kubelet).collect()
}

/// The nodes at which the Service can be reached, and why not at the others.
pub(crate) fn divide<'a>(
    service: &Service,
    nodes: &'a [Arc<Node>],
    services: &[Arc<Service>],
) -> (Vec<&'a Arc<Node>>, Vec<String>) {
    let wanted = balanced(service);
    let mut of_services: BTreeMap<Port, String> = BTreeMap::new();
    for other in services {
        of_services.extend(node_ports(other).into_iter().map(|port| (port, name(other))));
    }
    // Those that could be in the way, the oldest first. Whether an older one has a node depends on still older ones.
    let mine = age(service);
    let mut older: Vec<_> = services.iter().filter(|other| age(other) < mine).collect();
    older.retain(|other| is_ours(other));
    if older.iter().all(|other| balanced(other).is_disjoint(&wanted)) {
        older.clear();
    }
    older.sort_by_key(|other| age(other));
    let (mut free, mut reasons) = (Vec::new(), Vec::new());
    for node in nodes {
        let own = own(node);
        let mut held: BTreeMap<Port, String> = BTreeMap::new();
        let obstacle = |held: &BTreeMap<Port, String>, name: &str, ports: &BTreeSet<Port>| {
            ports.iter().find_map(|port| {
                if own.contains(port) {
                    return Some(format!("{port} of node {} is in use by the node itself", node.name_any()));
                }
                if let Some(other) = of_services.get(port).filter(|other| *other != name) {
                    return Some(format!("{port} is the node port of Service {other}"));
                }
                held.get(port).map(|other| format!("{port} of node {} is in use by Service {other}", node.name_any()))
            })
        };
        for other in &older {
            let (name, ports) = (name(other), balanced(other));
            if obstacle(&held, &name, &ports).is_none() {
                held.extend(ports.into_iter().map(|port| (port, name.clone())));
            }
        }
        match obstacle(&held, &name(service), &wanted) {
            Some(why) => reasons.push(why),
            None => free.push(node),
        }
    }
    (free, reasons)
}

/// The reasons in one sentence.
pub(crate) fn sentence(mut reasons: Vec<String>) -> String {
    reasons.dedup();
    let more = reasons.len().saturating_sub(MOST_REASONS);
    reasons.truncate(MOST_REASONS);
    match more {
        0 => reasons.join("; "),
        more => format!("{}; and {more} more", reasons.join("; ")),
    }
}

#[cfg(test)]
mod tests;

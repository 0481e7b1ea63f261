//! Which addresses this node announces. Pure: every node comes to the same result from the same objects.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sha2::{Digest, Sha256};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// What of a node matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    name: String,
    is_ready: bool,
    /// It is about to go, or was told not to take part.
    is_out: bool,
}

impl Candidate {
    pub(super) fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let labels = node.metadata.labels.as_ref();
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            is_ready: conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True"),
            is_out: node.metadata.deletion_timestamp.is_some()
                || labels.is_some_and(|labels| labels.contains_key(EXCLUDED)),
        }
    }
}

pub(super) fn plan(
    own: &str,
    in_pool: &dyn Fn(IpAddr) -> bool,
    nodes: &[Arc<Node>],
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
) -> BTreeSet<IpAddr> {
    let candidates: Vec<Candidate> = nodes.iter().map(|node| Candidate::of(node)).filter(|one| !one.is_out).collect();
    let mut announced = BTreeSet::new();
    for service in services {
        let addresses: Vec<IpAddr> = addresses(service).filter(|address| in_pool(*address)).collect();
        if addresses.is_empty() {
            continue;
        }
        let is_local =
            service.spec.as_ref().is_some_and(|spec| spec.external_traffic_policy.as_deref() == Some("Local"));
        let with_endpoints = is_local.then(|| nodes_of(service, slices));
        let may = |one: &&Candidate| with_endpoints.as_ref().is_none_or(|some| some.contains(one.name.as_str()));
        let able: Vec<&Candidate> = candidates.iter().filter(may).collect();
        for address in addresses {
            if announcer(address, &able) == Some(own) {
                announced.insert(address);
            }
        }
    }
    announced
}

fn addresses(service: &Service) -> impl Iterator<Item = IpAddr> + '_ {
    let is_balanced = service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()).filter(|_| is_balanced);
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    ingress.filter_map(|one| one.ip.as_ref()?.parse().ok())
}

/// The nodes with an endpoint that is ready.
fn nodes_of<'a>(service: &Service, slices: &'a [Arc<EndpointSlice>]) -> HashSet<&'a str> {
    let is_its = |slice: &&Arc<EndpointSlice>| {
        let name = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        slice.metadata.namespace == service.metadata.namespace && name == service.metadata.name.as_ref()
    };
    let endpoints = slices.iter().filter(is_its).flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|one| one.conditions.as_ref().and_then(|all| all.ready) != Some(false));
    ready.filter_map(|one| one.node_name.as_deref()).collect()
}

/// The node that answers for an address: of those that are ready, or of all where none is. When one goes, only its own
/// addresses move.
fn announcer<'a>(address: IpAddr, able: &[&'a Candidate]) -> Option<&'a str> {
    let is_any_ready = able.iter().any(|one| one.is_ready);
    let weight = |one: &&&Candidate| Sha256::digest(format!("{address} {}", one.name).as_bytes());
    let chosen = able.iter().filter(|one| one.is_ready || !is_any_ready).max_by_key(weight)?;
    Some(&chosen.name)
}

#[cfg(test)]
mod tests;

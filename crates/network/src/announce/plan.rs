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
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn of<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(value).expect("an object"))
    }

    fn node(name: &str, ready: &str, labels: Value) -> Arc<Node> {
        of(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
        )
    }

    fn service(name: &str, policy: &str, ip: &str) -> Arc<Service> {
        of(
            json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy},
            "status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}),
        )
    }

    /// Who announces what, by all of the nodes.
    fn all(nodes: &[Arc<Node>], services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> BTreeMap<IpAddr, String> {
        let pool = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().starts_with(&[192, 0, 2]),
            IpAddr::V6(_) => true,
        };
        let mut found = BTreeMap::new();
        for name in ["a", "b", "c"] {
            for address in plan(name, &pool, nodes, services, slices) {
                assert!(found.insert(address, name.to_owned()).is_none(), "two nodes announce {address}");
            }
        }
        found
    }

    #[test]
    fn one_node_announces_each_address_and_few_move() {
        let services: Vec<_> =
            (1..100).map(|n| service(&format!("s{n}"), "Cluster", &format!("192.0.2.{n}"))).collect();
        let ready = ["a", "b", "c"].map(|name| node(name, "True", json!({})));
        let before = all(&ready, &services, &[]);
        assert_eq!(before.len(), 99);
        let count = |name: &str| before.values().filter(|one| *one == name).count();
        assert!(["a", "b", "c"].iter().all(|name| count(name) > 15), "they share the work");
        let failed = [node("a", "True", json!({})), node("b", "Unknown", json!({})), node("c", "True", json!({}))];
        let after = all(&failed, &services, &[]);
        assert_eq!(after.len(), 99);
        for (address, name) in &before {
            let now = &after[address];
            assert!(if name == "b" { now != "b" } else { now == name }, "{address}: {name} to {now}");
        }
        let none = ["a", "b", "c"].map(|name| node(name, "Unknown", json!({})));
        assert_eq!(all(&none, &services, &[]), before, "where none is ready, nothing moves");
        let out = [node("a", "True", json!({EXCLUDED: ""})), node("b", "True", json!({}))];
        assert!(all(&out, &services, &[]).values().all(|name| name == "b"));
    }

    #[test]
    fn local_services_are_where_their_endpoints_are() {
        let nodes = ["a", "b", "c"].map(|name| node(name, "True", json!({})));
        let services = [
            service("s", "Local", "192.0.2.1"),
            service("t", "Local", "fd00::5"),
            service("other", "Cluster", "203.0.113.1"),
        ];
        let slice: Arc<EndpointSlice> = of(
            json!({"metadata": {"namespace": "d", "labels": {SERVICE_NAME: "s"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "b"}, {"addresses": ["10.0.0.2"], "nodeName": "a", "conditions": {"ready": false}}]}),
        );
        let found = all(&nodes, &services, &[slice]);
        assert_eq!(
            found,
            BTreeMap::from([([192, 0, 2, 1].into(), "b".to_owned())]),
            "no endpoint, no node; not of the pool"
        );
    }
}

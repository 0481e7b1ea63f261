//! Which endpoints of a service port may receive traffic on this node: readiness, termination, locality and hints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice};

use crate::family::Family;

/// What the choice depends on besides the objects of the service itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    /// `topology.kubernetes.io/zone` of the node.
    pub(crate) zone: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// The endpoints of one service port, by the policy they serve. Sorted, so that equal inputs give equal rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// For traffic policy `Cluster`.
    pub(crate) cluster: Vec<Endpoint>,
    /// For traffic policy `Local`: those of this node.
    pub(crate) local: Vec<Endpoint>,
    /// Those of this node that are ready, as load balancers count them.
    pub(crate) ready_local: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
struct Candidate {
    ready: bool,
    serving: bool,
    terminating: bool,
    local: bool,
    zones: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl Endpoint {
    /// As `dnat to` takes it.
    pub(crate) fn target(&self) -> String {
        std::net::SocketAddr::new(self.address, self.port).to_string()
    }
}

impl Candidate {
    fn new(endpoint: &SliceEndpoint, node: &NodeView) -> Self {
        let conditions = endpoint.conditions.clone().unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let hints = endpoint.hints.clone().unwrap_or_default();
        Self {
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
            local: endpoint.node_name.as_deref() == Some(node.name.as_str()),
            zones: hints.for_zones.into_iter().flatten().map(|zone| zone.name).collect(),
            nodes: hints.for_nodes.into_iter().flatten().map(|node| node.name).collect(),
        }
    }

    fn last_resort(&self) -> bool {
        self.serving && self.terminating
    }
}

/// Chooses for one port. Endpoints that end but still serve are used only while no ready one exists.
pub(crate) fn choose<'a>(
    port: &ServicePort,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    node: &NodeView,
    family: Family,
) -> Choice {
    let candidates = candidates(port, slices, node, family);
    let ready: Vec<_> = candidates.iter().filter(|(_, candidate)| candidate.ready).collect();
    let preferred = Preference::of(&ready, node);
    let mut cluster: Vec<Endpoint> = ready
        .iter()
        .filter(|(_, candidate)| preferred.accepts(candidate, node))
        .map(|(endpoint, _)| **endpoint)
        .collect();
    if cluster.is_empty() {
        cluster = candidates.iter().filter(|(_, c)| c.last_resort()).map(|(endpoint, _)| *endpoint).collect();
    }
    let mut local: Vec<Endpoint> = ready.iter().filter(|(_, c)| c.local).map(|(endpoint, _)| **endpoint).collect();
    let ready_local = local.iter().map(|endpoint| endpoint.address).collect();
    if local.is_empty() {
        local = candidates.iter().filter(|(_, c)| c.local && c.last_resort()).map(|(endpoint, _)| *endpoint).collect();
    }
    Choice { cluster, local, ready_local }
}

/// An endpoint moving between slices stands in both for a moment; the ready copy counts.
fn candidates<'a>(
    port: &ServicePort,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    node: &NodeView,
    family: Family,
) -> BTreeMap<Endpoint, Candidate> {
    let mut found: BTreeMap<Endpoint, Candidate> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| slice.address_type == family.slice_type()) {
        let numbers = slice.ports.iter().flatten().filter(|candidate| {
            candidate.name.as_deref().unwrap_or("") == port.name.as_deref().unwrap_or("")
                && candidate.protocol.as_deref().unwrap_or("TCP") == port.protocol.as_deref().unwrap_or("TCP")
        });
        for number in numbers.filter_map(|number| number.port).filter_map(|port| u16::try_from(port).ok()) {
            for endpoint in slice.endpoints.iter().flatten() {
                // Only the first address counts: the API defines the others as equivalent to it.
                let Some(address) = endpoint.addresses.first().and_then(|text| family.parse(text)) else {
                    continue;
                };
                let candidate = Candidate::new(endpoint, node);
                let key = Endpoint { address, port: number };
                if !found.get(&key).is_some_and(|known| known.ready && !candidate.ready) {
                    found.insert(key, candidate);
                }
            }
        }
    }
    found
}

/// Hints restrict the choice only when all ready endpoints carry them and one is meant for this node or zone.
enum Preference {
    Anywhere,
    SameNode,
    SameZone,
}

impl Preference {
    fn of(ready: &[(&Endpoint, &Candidate)], node: &NodeView) -> Self {
        let all_hint = |hints: fn(&Candidate) -> &BTreeSet<String>| ready.iter().all(|(_, c)| !hints(c).is_empty());
        if all_hint(|c| &c.nodes) && ready.iter().any(|(_, c)| c.nodes.contains(&node.name)) {
            return Self::SameNode;
        }
        match &node.zone {
            Some(zone) if all_hint(|c| &c.zones) && ready.iter().any(|(_, c)| c.zones.contains(zone)) => Self::SameZone,
            _ => Self::Anywhere,
        }
    }

    fn accepts(&self, candidate: &Candidate, node: &NodeView) -> bool {
        match self {
            Self::Anywhere => true,
            Self::SameNode => candidate.nodes.contains(&node.name),
            Self::SameZone => node.zone.as_ref().is_some_and(|zone| candidate.zones.contains(zone)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(endpoints: serde_json::Value, cluster: &[&str], local: &[&str]) {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4", "metadata": {"name": "s"}, "endpoints": endpoints,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "other", "port": 81, "protocol": "TCP"}],
        }))
        .expect("a slice");
        let port = ServicePort { name: Some("http".into()), port: 1, ..ServicePort::default() };
        let node = NodeView { name: "here".into(), zone: Some("a".into()) };
        let choice = choose(&port, [&slice], &node, Family::Ipv4);
        let text = |list: &[Endpoint]| list.iter().map(|e| format!("{}:{}", e.address, e.port)).collect::<Vec<_>>();
        assert_eq!(text(&choice.cluster), cluster, "cluster endpoints of {endpoints}");
        assert_eq!(text(&choice.local), local, "local endpoints of {endpoints}");
    }

    #[test]
    fn endpoints_are_chosen_by_condition_and_place() {
        let ready = json!({"ready": true, "serving": true, "terminating": false});
        let ending = json!({"ready": false, "serving": true, "terminating": true});
        let ended = json!({"ready": false, "serving": false, "terminating": true});
        check(json!([]), &[], &[]);
        check(
            json!([{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.1"], "nodeName": "here", "conditions": ready}]),
            &["10.0.0.1:80", "10.0.0.2:80"],
            &["10.0.0.1:80"],
        );
        // Ready ones elsewhere keep ending ones out of the cluster choice, yet the local choice falls back to them.
        check(
            json!([{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.1"], "nodeName": "here", "conditions": ending}]),
            &["10.0.0.2:80"],
            &["10.0.0.1:80"],
        );
        check(
            json!([{"addresses": ["10.0.0.1"], "nodeName": "here", "conditions": ending}, {"addresses": ["10.0.0.3"], "conditions": ended}]),
            &["10.0.0.1:80"],
            &["10.0.0.1:80"],
        );
        check(
            json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}, {"addresses": ["fd00::1"]}]),
            &[],
            &[],
        );
    }

    #[test]
    fn hints_restrict_only_when_complete() {
        let zone = |address: &str, zone: &str| json!({"addresses": [address], "hints": {"forZones": [{"name": zone}]}});
        let node = |address: &str, node: &str| json!({"addresses": [address], "hints": {"forNodes": [{"name": node}]}});
        check(json!([zone("10.0.0.1", "a"), zone("10.0.0.2", "b")]), &["10.0.0.1:80"], &[]);
        check(json!([zone("10.0.0.1", "a"), {"addresses": ["10.0.0.2"]}]), &["10.0.0.1:80", "10.0.0.2:80"], &[]);
        check(json!([zone("10.0.0.1", "b"), zone("10.0.0.2", "b")]), &["10.0.0.1:80", "10.0.0.2:80"], &[]);
        check(json!([node("10.0.0.1", "here"), node("10.0.0.2", "there")]), &["10.0.0.1:80"], &[]);
    }
}

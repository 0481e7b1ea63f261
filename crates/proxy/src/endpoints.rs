//! Which endpoints of a service port may receive traffic on this node: readiness, termination, locality and hints.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ferry_client::endpoint_slices::{Member, Names, Slice};
use k8s_openapi::api::core::v1::ServicePort;

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

#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    ready: bool,
    serving: bool,
    terminating: bool,
    local: bool,
    for_zones: &'a [Box<str>],
    for_nodes: &'a [Box<str>],
}

impl Endpoint {
    /// As `dnat to` takes it.
    pub(crate) fn target(&self) -> String {
        std::net::SocketAddr::new(self.address, self.port).to_string()
    }
}

impl<'a> Candidate<'a> {
    fn new(endpoint: &'a Member, node: &NodeView) -> Self {
        let names = endpoint.names();
        let hints = |of: fn(&'a Names) -> &'a [Box<str>]| names.map(of).unwrap_or_default();
        Self {
            ready: endpoint.ready,
            serving: endpoint.serving,
            terminating: endpoint.terminating,
            local: names.and_then(|names| names.node.as_deref()) == Some(node.name.as_str()),
            for_zones: hints(|names| &names.for_zones),
            for_nodes: hints(|names| &names.for_nodes),
        }
    }

    fn last_resort(&self) -> bool {
        self.serving && self.terminating
    }
}

/// The ports of a Service's slices of one family, by name and protocol: a Service with very many looks none of them up twice.
pub(crate) struct Ports<'a> {
    family: Family,
    named: HashMap<(&'a str, &'a str), Vec<(u16, &'a Slice)>>,
}

impl<'a> Ports<'a> {
    pub(crate) fn of(slices: impl IntoIterator<Item = &'a Slice>, family: Family) -> Self {
        let mut named: HashMap<_, Vec<_>> = HashMap::new();
        for slice in slices.into_iter().filter(|slice| *slice.address_type == *family.slice_type()) {
            for port in &slice.ports {
                named.entry((&*port.name, &*port.protocol)).or_default().push((port.number, slice));
            }
        }
        Self { family, named }
    }

    fn get<'s>(&'s self, port: &'s ServicePort) -> &'s [(u16, &'s Slice)] {
        let known: &'s HashMap<(&'s str, &'s str), Vec<(u16, &'s Slice)>> = &self.named;
        let named = (port.name.as_deref().unwrap_or(""), port.protocol.as_deref().unwrap_or("TCP"));
        known.get(&named).map_or(&[], Vec::as_slice)
    }
}

/// Chooses for one port. Endpoints that end but still serve are used only while no ready one exists.
pub(crate) fn choose(port: &ServicePort, ports: &Ports<'_>, node: &NodeView) -> Choice {
    let candidates = candidates(port, ports, node);
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
fn candidates<'a>(port: &'a ServicePort, ports: &'a Ports<'_>, node: &NodeView) -> BTreeMap<Endpoint, Candidate<'a>> {
    let mut found: BTreeMap<Endpoint, Candidate<'_>> = BTreeMap::new();
    for (number, slice) in ports.get(port) {
        for endpoint in &slice.endpoints {
            // Only the first address counts: the API defines the others as equivalent to it.
            let Some(address) = endpoint.addresses().first().copied().filter(|address| ports.family.has(address))
            else {
                continue;
            };
            let candidate = Candidate::new(endpoint, node);
            let key = Endpoint { address, port: *number };
            if !found.get(&key).is_some_and(|known| known.ready && !candidate.ready) {
                found.insert(key, candidate);
            }
        }
    }
    found
}

fn has(hints: &[Box<str>], wanted: &str) -> bool {
    hints.iter().any(|hint| **hint == *wanted)
}

/// Hints restrict the choice only when all ready endpoints carry them and one is meant for this node or zone.
enum Preference {
    Anywhere,
    SameNode,
    SameZone,
}

impl Preference {
    fn of(ready: &[(&Endpoint, &Candidate<'_>)], node: &NodeView) -> Self {
        let (mut all_nodes, mut all_zones) = (true, true);
        let (mut some_node, mut some_zone) = (false, false);
        for (_, candidate) in ready {
            all_nodes &= !candidate.for_nodes.is_empty();
            all_zones &= !candidate.for_zones.is_empty();
            some_node |= has(candidate.for_nodes, &node.name);
            some_zone |= node.zone.as_ref().is_some_and(|zone| has(candidate.for_zones, zone));
        }
        match () {
            () if all_nodes && some_node => Self::SameNode,
            () if all_zones && some_zone => Self::SameZone,
            () => Self::Anywhere,
        }
    }

    fn accepts(&self, candidate: &Candidate<'_>, node: &NodeView) -> bool {
        match self {
            Self::Anywhere => true,
            Self::SameNode => has(candidate.for_nodes, &node.name),
            Self::SameZone => node.zone.as_ref().is_some_and(|zone| has(candidate.for_zones, zone)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(endpoints: serde_json::Value, cluster: &[&str], local: &[&str]) {
        let slice: k8s_openapi::api::discovery::v1::EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4", "metadata": {"name": "s"}, "endpoints": endpoints,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "other", "port": 81, "protocol": "TCP"}],
        }))
        .expect("a slice");
        let slice = Slice::from(slice);
        let port = ServicePort { name: Some("http".into()), port: 1, ..ServicePort::default() };
        let node = NodeView { name: "here".into(), zone: Some("a".into()) };
        let choice = choose(&port, &Ports::of([&slice], Family::Ipv4), &node);
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

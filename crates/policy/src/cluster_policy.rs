//! ClusterNetworkPolicies (`policy.networking.k8s.io`, v0.2 of network-policy-api): as the informer holds them, and as they are meant.
//!
//! Whatever is not known here closes: a rule that accepts accepts nothing by it, one that denies or passes denies everything.

use std::borrow::Cow;

use ferry_client::Wire;
use ferry_meta::selector::LabelSelector;
use ferry_semantics::cidr;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::{Deserialize, Serialize};
use kube::{Resource, ResourceExt};
use serde_json::Value;

use crate::policy::{Action, Direction, Namespaces, Peer, Pods, Port, Protocol, Rule};

pub const GROUP: &str = "policy.networking.k8s.io";
pub const VERSION: &str = "v1alpha2";
pub const PLURAL: &str = "clusternetworkpolicies";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(crate = "k8s_openapi::serde")]
pub struct StoredClusterPolicy {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
}

impl Wire for StoredClusterPolicy {
    fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

impl Resource for StoredClusterPolicy {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "ClusterNetworkPolicy".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Before the NetworkPolicies of a pod, or in place of them where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    Admin,
    Baseline,
}

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admin => "Admin",
            Self::Baseline => "Baseline",
        }
    }
}

#[derive(Debug)]
pub(crate) struct ClusterPolicy {
    pub(crate) tier: Tier,
    pub(crate) priority: i64,
    pub(crate) name: String,
    pub(crate) subject: Pods,
    pub(crate) ingress: Vec<Rule>,
    pub(crate) egress: Vec<Rule>,
    /// What of it is not known here, for whoever wrote it.
    pub(crate) complaints: Vec<String>,
}

impl ClusterPolicy {
    /// None where even its place among others is not known.
    pub(crate) fn read(policy: &StoredClusterPolicy) -> Result<Self, String> {
        let spec = &policy.spec;
        let tier = match spec["tier"].as_str() {
            Some("Admin") => Tier::Admin,
            Some("Baseline") => Tier::Baseline,
            other => return Err(format!("its tier is {other:?}")),
        };
        let subject = read_pods(&spec["subject"]).ok_or("its subject is of no kind that is known here")?;
        let mut complaints = Vec::new();
        let mut rules = |direction| {
            let (field, peers) = match direction {
                Direction::Ingress => ("ingress", "from"),
                Direction::Egress => ("egress", "to"),
            };
            let all = items(&spec[field]).iter().enumerate();
            all.filter_map(|(number, rule)| {
                let read = read_rule(rule, peers, direction);
                if let Err(unknown) = &read {
                    complaints.push(format!("spec.{field}[{number}]: {unknown}"));
                }
                // A rule that is not known as a whole: see the module's first lines.
                read.or_else(|_| closed(&rule["action"]).ok_or(())).ok()
            })
            .collect()
        };
        let (ingress, egress) = (rules(Direction::Ingress), rules(Direction::Egress));
        let priority = spec["priority"].as_i64().unwrap_or_default();
        Ok(Self { tier, priority, name: policy.name_any(), subject, ingress, egress, complaints })
    }

    pub(crate) fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// What stands for a rule that is not known; None where it would have accepted.
fn closed(action: &Value) -> Option<Rule> {
    (action != "Accept").then_some(Rule { peers: None, ports: None, action: Action::Deny })
}

fn read_rule(rule: &Value, field: &str, direction: Direction) -> Result<Rule, String> {
    let action = match rule["action"].as_str() {
        Some("Accept") => Action::Accept,
        Some("Deny") => Action::Deny,
        Some("Pass") => Action::Pass,
        other => return Err(format!("the action {other:?} is not known")),
    };
    let mut peers = Vec::new();
    for peer in items(&rule[field]) {
        peers.extend(read_peer(peer, direction)?);
    }
    let mut ports = Vec::new();
    for protocol in items(&rule["protocols"]) {
        ports.extend(read_protocol(protocol)?);
    }
    let ports = (!items(&rule["protocols"]).is_empty()).then_some(ports);
    Ok(Rule { peers: Some(peers), ports, action })
}

fn read_peer(peer: &Value, direction: Direction) -> Result<Vec<Peer>, String> {
    if let Some(pods) = read_pods(peer) {
        return Ok(vec![Peer::Pods(pods)]);
    }
    if direction == Direction::Egress && peer["nodes"].is_object() {
        let labels = selector(&peer["nodes"]);
        return Ok(vec![Peer::Pods(Pods { namespaces: Namespaces::Nodes, labels })]);
    }
    if direction == Direction::Egress && peer["networks"].is_array() {
        let ranges = items(&peer["networks"]).iter().map(|text| {
            let range =
                text.as_str().and_then(cidr::parse).ok_or_else(|| format!("{text} is no range of addresses"))?;
            Ok(Peer::Block { range: range.trunc(), except: Vec::new() })
        });
        return ranges.collect();
    }
    let names: Vec<&str> = peer.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    Err(format!("a peer by {} is not known", if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }))
}

/// By namespaces, or by pods in them. None: neither.
fn read_pods(value: &Value) -> Option<Pods> {
    if value["namespaces"].is_object() {
        let namespaces = Namespaces::Selected(selector(&value["namespaces"]));
        return Some(Pods { namespaces, labels: LabelSelector::default() });
    }
    let pods = value["pods"].as_object()?;
    let of = |field: &str| pods.get(field).map(selector).unwrap_or_default();
    Some(Pods { namespaces: Namespaces::Selected(of("namespaceSelector")), labels: of("podSelector") })
}

/// One that cannot be read selects nothing: the API server lets none in.
fn selector(value: &Value) -> LabelSelector {
    LabelSelector::from_object(value).unwrap_or_else(|_| LabelSelector::nothing())
}

fn read_protocol(protocol: &Value) -> Result<Vec<Port>, String> {
    if let Some(name) = protocol["destinationNamedPort"].as_str().filter(|name| !name.is_empty()) {
        return Ok(Protocol::ALL.map(|protocol| Port::Named(protocol, name.to_owned())).into());
    }
    let found = Protocol::ALL.into_iter().find(|one| protocol[one.name()].is_object());
    let found = found.ok_or_else(|| format!("the protocol {protocol} is not known"))?;
    let attributes = &protocol[found.name()];
    let port = &attributes["destinationPort"];
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let range = match (number(&port["number"]), number(&port["range"]["start"]), number(&port["range"]["end"])) {
        (Some(only), _, _) => Some((only, only)),
        (None, Some(first), Some(last)) if first <= last => Some((first, last)),
        _ => None,
    };
    let (first, last) = range.ok_or_else(|| format!("{} by {attributes} is not known", found.name()))?;
    Ok(vec![Port::Range(found, first, last)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: Value) -> Result<ClusterPolicy, String> {
        ClusterPolicy::read(&StoredClusterPolicy { metadata: ObjectMeta::default(), spec })
    }

    fn with_rule(rule: &Value) -> ClusterPolicy {
        let spec = json!({"tier": "Admin", "priority": 7, "subject": {"namespaces": {}}, "egress": [rule]});
        read(spec).expect("a policy")
    }

    #[test]
    fn what_is_not_known_closes() {
        let all = json!([{"namespaces": {}}]);
        for (peers, protocols) in [
            (json!([{"namespaces": {}}, {"domainNames": ["example.com"]}]), json!(null)),
            (json!([{}]), json!(null)),
            (json!([{"services": {}}]), json!(null)),
            (json!([{"networks": ["10.0.0.0/8", "nonsense"]}]), json!(null)),
            (all.clone(), json!([{"icmp": {}}])),
            (all.clone(), json!([{"tcp": {"destinationPort": {}}}])),
            (all.clone(), json!([{"tcp": {"destinationPort": {"range": {"start": 9, "end": 8}}}}])),
        ] {
            for action in ["Accept", "Deny", "Pass", "Log"] {
                let policy = with_rule(&json!({"action": action, "to": peers, "protocols": protocols}));
                assert_eq!(policy.complaints.len(), 1, "{peers} {protocols}");
                assert!(policy.complaints[0].starts_with("spec.egress[0]: "), "{:?}", policy.complaints);
                match policy.egress.as_slice() {
                    [] => assert_eq!(action, "Accept"),
                    [rule] => assert!(rule.action == Action::Deny && rule.peers.is_none() && rule.ports.is_none()),
                    more => panic!("{more:?}"),
                }
            }
        }
    }

    #[test]
    fn what_is_known_is_read() {
        let policy = with_rule(&json!({"action": "Pass",
            "to": [{"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}}, {"nodes": {}}, {"networks": ["10.1.2.3/8", "fd00::/8"]}],
            "protocols": [{"tcp": {"destinationPort": {"number": 80}}}, {"sctp": {"destinationPort": {"range": {"start": 1, "end": 9}}}}, {"destinationNamedPort": "web"}]}));
        assert!(policy.complaints.is_empty() && policy.priority == 7 && policy.tier == Tier::Admin);
        let [rule] = policy.rules(Direction::Egress) else { panic!("one rule") };
        assert_eq!((rule.action, rule.peers.as_ref().map(Vec::len)), (Action::Pass, Some(4)));
        let ports = rule.ports.as_ref().expect("ports");
        assert_eq!(ports[..2], [Port::Range(Protocol::Tcp, 80, 80), Port::Range(Protocol::Sctp, 1, 9)]);
        assert_eq!(ports.len(), 5, "a name is of any protocol");
        assert!(policy.rules(Direction::Ingress).is_empty());
        assert!(read(json!({"tier": "Other", "subject": {"namespaces": {}}})).is_err());
        assert!(read(json!({"tier": "Admin", "subject": {"nodes": {}}})).is_err());
    }
}

//! A NetworkPolicy as it is meant: defaults filled in, selectors and ranges read, nothing left that is a text of its author's.

use ferry_meta::selector::LabelSelector;
use ferry_semantics::cidr::{self, IpNet};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// As `nft` names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// As the API names it; TCP where it names none.
    pub(crate) fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// What becomes of a packet that a rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Accept,
    Deny,
    /// The next tier decides.
    Pass,
}

impl Action {
    /// As `nft` says it, in a chain that has the rules of one tier.
    pub(crate) fn verdict(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Deny => "drop",
            Self::Pass => "return",
        }
    }
}

/// What is allowed to the pods that it selects. None: the policy says nothing of this direction.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) selects: LabelSelector,
    pub(crate) ingress: Option<Vec<Rule>>,
    pub(crate) egress: Option<Vec<Rule>>,
}

/// Fits what comes from (or goes to) one of the peers, at one of the ports. None: any.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) peers: Option<Vec<Peer>>,
    pub(crate) ports: Option<Vec<Port>>,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Pods(Pods),
    Block { range: IpNet, except: Vec<IpNet> },
}

#[derive(Clone, Debug)]
pub(crate) struct Pods {
    pub(crate) namespaces: Namespaces,
    pub(crate) labels: LabelSelector,
}

impl Pods {
    pub(crate) fn everywhere() -> Self {
        Self { namespaces: Namespaces::Selected(LabelSelector::default()), labels: LabelSelector::default() }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Namespaces {
    One(String),
    Selected(LabelSelector),
    /// Nodes, not pods.
    Nodes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Any(Protocol),
    Range(Protocol, u16, u16),
    Named(Protocol, String),
}

impl Policy {
    pub(crate) fn read(policy: &NetworkPolicy) -> Self {
        let namespace = policy.namespace().unwrap_or_default();
        let spec = policy.spec.clone().unwrap_or_default();
        let has_type = |wanted: &str| spec.policy_types.iter().flatten().any(|kind| kind == wanted);
        let says_nothing = spec.policy_types.as_ref().is_none_or(Vec::is_empty);
        // Without types every policy is one of ingress, and one of egress where it has rules for it.
        let ingress = says_nothing || has_type("Ingress");
        let egress =
            has_type("Egress") || (says_nothing && spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()));
        let rule = |peers: &Option<Vec<NetworkPolicyPeer>>, ports: &Option<Vec<NetworkPolicyPort>>| Rule {
            peers: some(peers).map(|peers| peers.iter().filter_map(|peer| read_peer(&namespace, peer)).collect()),
            ports: some(ports).map(|ports| ports.iter().filter_map(read_port).collect()),
            action: Action::Accept,
        };
        Self {
            selects: selector(&spec.pod_selector.unwrap_or_default()),
            ingress: ingress.then(|| spec.ingress.iter().flatten().map(|one| rule(&one.from, &one.ports)).collect()),
            egress: egress.then(|| spec.egress.iter().flatten().map(|one| rule(&one.to, &one.ports)).collect()),
            name: policy.name_any(),
            namespace,
        }
    }

    pub(crate) fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }
}

/// An empty list is as good as none: both allow all.
fn some<T>(list: &Option<Vec<T>>) -> Option<&Vec<T>> {
    list.as_ref().filter(|list| !list.is_empty())
}

/// One that cannot be read selects nothing: the API server lets none in.
fn selector(selector: &v1::LabelSelector) -> LabelSelector {
    let value = serde_json::to_value(selector).unwrap_or_default();
    LabelSelector::from_object(&value).unwrap_or_else(|_| LabelSelector::nothing())
}

fn read_peer(namespace: &str, peer: &NetworkPolicyPeer) -> Option<Peer> {
    if let Some(block) = &peer.ip_block {
        let range = cidr::parse(&block.cidr)?.trunc();
        let mut except: Vec<IpNet> =
            block.except.iter().flatten().filter_map(|text| cidr::parse(text)).map(|range| range.trunc()).collect();
        except.retain(|one| cidr::overlap(one, &range));
        return Some(Peer::Block { range, except: IpNet::aggregate(&except) });
    }
    let namespaces = match &peer.namespace_selector {
        Some(chosen) => Namespaces::Selected(selector(chosen)),
        None if peer.pod_selector.is_some() => Namespaces::One(namespace.to_owned()),
        None => return None,
    };
    let labels = peer.pod_selector.as_ref().map(selector).unwrap_or_default();
    Some(Peer::Pods(Pods { namespaces, labels }))
}

fn read_port(port: &NetworkPolicyPort) -> Option<Port> {
    let protocol = Protocol::parse(port.protocol.as_deref())?;
    Some(match &port.port {
        None => Port::Any(protocol),
        Some(IntOrString::String(name)) => Port::Named(protocol, name.clone()),
        Some(IntOrString::Int(first)) => {
            let first = u16::try_from(*first).ok()?;
            let last = port.end_port.map_or(Some(first), |last| u16::try_from(last).ok())?;
            (first <= last).then_some(Port::Range(protocol, first, last))?
        }
    })
}

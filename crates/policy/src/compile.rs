//! The rules of a policy as the kernel has them: one chain for each policy and direction, which accepts what the policy allows
//! and returns otherwise. ClusterNetworkPolicies have a chain for each tier, in which the first rule that fits decides.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use ferry_meta::selector::LabelSelector;
use ferry_semantics::cidr::IpNet;
use sha2::{Digest, Sha256};

use crate::cluster_policy::Tier;
use crate::policy::{Action, Direction, Namespaces, Peer, Pods, Port, Protocol, Rule};

/// A policy of a few kilobytes stands for more than any memory: peers, ranges of ports and names are multiplied.
const MOST: usize = 200_000;
/// A chain that differs from pod to pod counts as often as a node may have pods that differ.
const EACH: usize = 50;

/// Names of chains and sets say what is in them, so that what is equal is there once, and what changes gets another name. Who
/// writes policies must not be able to find two with one name.
pub(crate) fn digest(prefix: &str, text: &str) -> Arc<str> {
    let mut name = prefix.to_owned();
    for byte in Sha256::digest(text.as_bytes()).iter().take(16) {
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

/// Pods that a set holds the addresses of; with a port, those that have a port of this name, each with its number.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) name: Arc<str>,
    pub(crate) pods: Pods,
    pub(crate) port: Option<(Protocol, String)>,
}

impl Selector {
    fn new(pods: &Pods, port: Option<(Protocol, String)>) -> Arc<Self> {
        let canonical = |selector: &LabelSelector| {
            let mut all: Vec<String> = selector.requirements().iter().map(|one| format!("{one:?}")).collect();
            all.sort();
            (selector.is_everything(), all)
        };
        let namespaces = match &pods.namespaces {
            Namespaces::One(name) => (Some(name), None),
            Namespaces::Selected(selector) => (None, Some(canonical(selector))),
            Namespaces::Nodes => (None, None),
        };
        let text = format!("{:?}", (namespaces, canonical(&pods.labels), &port));
        let prefix = match &pods.namespaces {
            Namespaces::Nodes => "nodes-",
            _ if port.is_some() => "ports-",
            _ => "pods-",
        };
        Arc::new(Self { name: digest(prefix, &text), pods: pods.clone(), port })
    }
}

/// One thing that is decided.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    pub(crate) who: Who,
    pub(crate) at: At,
    pub(crate) action: Action,
    /// Of a ClusterNetworkPolicy: its tier and name.
    pub(crate) by: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Who {
    Anyone,
    Pods(Arc<Selector>),
    Block { range: IpNet, except: Vec<IpNet> },
}

#[derive(Clone, Debug)]
pub(crate) enum At {
    Anything,
    /// Ports in order, none of which touch; empty: all of them.
    Ports(Protocol, Vec<(u16, u16)>),
    /// The port that the other pod calls by a name.
    Named(Protocol, Arc<Selector>),
}

/// A policy's chain, or that of a tier.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) name: Arc<str>,
    pub(crate) rules: Arc<[String]>,
    pub(crate) clauses: Vec<Clause>,
    /// What it allows is more than a node keeps rules for: it allows nothing.
    pub(crate) is_refused: bool,
}

impl Compiled {
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Arc<Selector>> {
        self.clauses.iter().flat_map(|one| {
            let who = match &one.who {
                Who::Pods(selector) => Some(selector),
                _ => None,
            };
            let at = match &one.at {
                At::Named(_, selector) => Some(selector),
                _ => None,
            };
            who.into_iter().chain(at)
        })
    }
}

/// A chain that allows nothing, since there is no room for its rules.
pub(crate) fn refused(direction: Direction) -> Compiled {
    Compiled { is_refused: true, ..compile(&[], direction, &[], None, |_, _| Vec::new()) }
}

/// Whether the chain differs from pod to pod: a named port of ingress is the selected pod's.
pub(crate) fn depends_on_pod(rules: &[Rule], direction: Direction) -> bool {
    direction == Direction::Ingress
        && rules.iter().flat_map(|rule| rule.ports.iter().flatten()).any(|port| matches!(port, Port::Named(..)))
}

/// `families` are those that pods have addresses of; `ports_of` tells which ports the selected pod calls by a name. Who
/// rules is written beside each rule, where it is said.
pub(crate) fn compile(
    rules: &[Rule],
    direction: Direction,
    families: &[Family],
    by: Option<&Arc<str>>,
    ports_of: impl Fn(Protocol, &str) -> Vec<u16>,
) -> Compiled {
    let mut clauses = Vec::new();
    let (mut left, mut is_refused) = (MOST, false);
    for rule in rules {
        let places = places(rule.ports.as_deref(), direction, &ports_of);
        let taken = extent(rule, &places);
        // What a NetworkPolicy allows and nobody can keep is not allowed. Lists of other policies have bounds.
        if taken > left && by.is_none() {
            is_refused = true;
            clauses.clear();
            break;
        }
        left = left.saturating_sub(taken);
        add(rule, places, by, &mut clauses);
    }
    let comment = by.map(|text| format!(" comment \"{}\"", readable(text))).unwrap_or_default();
    // What fits nothing on this node must not keep a set either: the chain's name says which sets it needs.
    let mut rules: Vec<String> = Vec::new();
    clauses.retain(|one| {
        let count = rules.len();
        rules.extend(render(one, direction, families).into_iter().map(|rule| rule + &comment));
        rules.len() > count
    });
    let prefix = match direction {
        Direction::Ingress => "from-",
        Direction::Egress => "to-",
    };
    Compiled { name: digest(prefix, &rules.join("\n")), rules: rules.into(), clauses, is_refused }
}

/// The chain of a tier: the rules of its policies, one after the other. None: no policy of the tier says anything.
pub(crate) fn tier(tier: Tier, direction: Direction, policies: &[Arc<Compiled>]) -> Option<Arc<Compiled>> {
    let rules: Vec<String> = policies.iter().flat_map(|one| one.rules.iter().cloned()).collect();
    if rules.is_empty() {
        return None;
    }
    let prefix = match (tier, direction) {
        (Tier::Admin, Direction::Ingress) => "admin-from-",
        (Tier::Admin, Direction::Egress) => "admin-to-",
        (Tier::Baseline, Direction::Ingress) => "baseline-from-",
        (Tier::Baseline, Direction::Egress) => "baseline-to-",
    };
    let clauses = policies.iter().flat_map(|one| one.clauses.iter().cloned()).collect();
    let name = digest(prefix, &rules.join("\n"));
    Some(Arc::new(Compiled { name, rules: rules.into(), clauses, is_refused: false }))
}

/// Cut to what the kernel takes as a comment.
pub(crate) fn readable(text: &str) -> String {
    text.chars().filter(|one| one.is_ascii_alphanumeric() || "-./ ".contains(*one)).take(120).collect()
}

/// About how many rules all of these stand for. Those of one that is refused are none.
pub(crate) fn weight(rules: &[Rule], direction: Direction) -> usize {
    let taken = rules.iter().map(|rule| extent(rule, &places(rule.ports.as_deref(), direction, &|_, _| vec![1])));
    let all = taken.fold(0, usize::saturating_add);
    match depends_on_pod(rules, direction) {
        _ if all > MOST => 0,
        true => all * EACH,
        false => all,
    }
}

/// What a rule takes: each of its peers is allowed each range of ports, and each port by name.
fn extent(rule: &Rule, (places, names): &Places) -> usize {
    let ranges = places.iter().map(|at| if let At::Ports(_, ranges) = at { ranges.len() } else { 0 }).sum::<usize>();
    let excepted = |peer: &Peer| if let Peer::Block { except, .. } = peer { except.len() } else { 0 };
    let peers = rule.peers.as_ref();
    let count = peers.map_or(1, Vec::len);
    let except = peers.map_or(0, |peers| peers.iter().map(excepted).fold(0, usize::saturating_add));
    let for_each = ranges + places.len() + names.len();
    count.saturating_mul(for_each).saturating_add(except.saturating_mul(places.len() + names.len()))
}

fn add(rule: &Rule, (places, names): Places, by: Option<&Arc<str>>, clauses: &mut Vec<Clause>) {
    let clause = |who, at| Clause { who, at, action: rule.action, by: by.cloned() };
    let peers: Vec<Option<&Peer>> = match &rule.peers {
        None => vec![None],
        Some(peers) => peers.iter().map(Some).collect(),
    };
    for peer in peers {
        let who = match peer {
            None => Who::Anyone,
            Some(Peer::Pods(pods)) => Who::Pods(Selector::new(pods, None)),
            Some(Peer::Block { range, except }) => Who::Block { range: *range, except: except.clone() },
        };
        clauses.extend(places.iter().map(|at| clause(who.clone(), at.clone())));
        for (protocol, name) in &names {
            let port = Some((*protocol, name.clone()));
            // The set of ports has no others than the peer's.
            let (who, pods) = match peer {
                Some(Peer::Pods(pods)) => (Who::Anyone, pods.clone()),
                _ => (who.clone(), Pods::everywhere()),
            };
            clauses.push(clause(who, At::Named(*protocol, Selector::new(&pods, port))));
        }
    }
}

type Places = (Vec<At>, Vec<(Protocol, String)>);

/// Where a rule fits traffic to go, and which ports of it are others' to number.
fn places(ports: Option<&[Port]>, direction: Direction, ports_of: &impl Fn(Protocol, &str) -> Vec<u16>) -> Places {
    let Some(ports) = ports else { return (vec![At::Anything], Vec::new()) };
    let mut ranges: BTreeMap<Protocol, Vec<(u16, u16)>> = BTreeMap::new();
    let mut names = Vec::new();
    let mut whole = Vec::new();
    for port in ports {
        match port {
            Port::Any(protocol) => whole.push(*protocol),
            Port::Range(protocol, first, last) => ranges.entry(*protocol).or_default().push((*first, *last)),
            Port::Named(protocol, name) => match direction {
                Direction::Ingress => {
                    let numbers = ports_of(*protocol, name);
                    if !numbers.is_empty() {
                        ranges.entry(*protocol).or_default().extend(numbers.into_iter().map(|port| (port, port)));
                    }
                }
                Direction::Egress => names.push((*protocol, name.clone())),
            },
        }
    }
    let mut places = Vec::new();
    for protocol in Protocol::ALL {
        if whole.contains(&protocol) {
            places.push(At::Ports(protocol, Vec::new()));
        } else if let Some(ranges) = ranges.remove(&protocol) {
            places.push(At::Ports(protocol, merged(ranges)));
        }
    }
    (places, names)
}

/// In order and apart: `nft` refuses a set whose ranges overlap.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// The rules for one thing that is decided, for each family of addresses.
fn render(clause: &Clause, direction: Direction, known: &[Family]) -> Vec<String> {
    let families: &[Family] = match (&clause.who, &clause.at) {
        (Who::Block { range: IpNet::V4(_), .. }, _) => &[Family::V4],
        (Who::Block { range: IpNet::V6(_), .. }, _) => &[Family::V6],
        (Who::Anyone, At::Anything | At::Ports(..)) => {
            return vec![format!("{}{}", ports(&clause.at, Family::V4), clause.action.verdict())];
        }
        _ => known,
    };
    let side = match direction {
        Direction::Ingress => "saddr",
        Direction::Egress => "daddr",
    };
    let who = |family: Family| match &clause.who {
        Who::Anyone => String::new(),
        Who::Pods(selector) => format!("{} {side} @{} ", family.name(), family.set(&selector.name)),
        Who::Block { range, except } => {
            let mut text = match range.prefix_len() {
                0 => format!("meta nfproto {} ", family.protocol()),
                _ => format!("{} {side} {range} ", family.name()),
            };
            if !except.is_empty() {
                let list: Vec<String> = except.iter().map(ToString::to_string).collect();
                let set =
                    if let [only] = list.as_slice() { only.clone() } else { format!("{{ {} }}", list.join(", ")) };
                let _ = write!(text, "{} {side} != {set} ", family.name());
            }
            text
        }
    };
    // A range without a single address of its own left.
    if let Who::Block { range, except } = &clause.who
        && except.iter().any(|one| one.contains(range))
    {
        return Vec::new();
    }
    // A set of ports is there for the families that pods have, and a rule must not name one that is not.
    let has_set = |family: &&Family| !matches!(clause.at, At::Named(..)) || known.contains(family);
    families
        .iter()
        .filter(has_set)
        .map(|family| format!("{}{}{}", who(*family), ports(&clause.at, *family), clause.action.verdict()))
        .collect()
}

fn ports(at: &At, family: Family) -> String {
    match at {
        At::Anything => String::new(),
        At::Ports(protocol, ranges) if ranges.is_empty() => format!("meta l4proto {} ", protocol.name()),
        At::Ports(protocol, ranges) => {
            let range = |(first, last): &(u16, u16)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            // A set costs the kernel a walk over all others when the rule is made, which one port does not need.
            if let [only] = ranges.as_slice() {
                return format!("{} dport {} ", protocol.name(), range(only));
            }
            let list: Vec<String> = ranges.iter().map(range).collect();
            format!("{} dport {{ {} }} ", protocol.name(), list.join(", "))
        }
        At::Named(protocol, selector) => {
            format!("{} daddr . {} dport @{} ", family.name(), protocol.name(), family.set(&selector.name))
        }
    }
}

/// Addresses of a family are in maps and sets of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const BOTH: &[Self] = &[Self::V4, Self::V6];
    pub(crate) const FIRST: &[Self] = &[Self::V4];

    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    fn protocol(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// The type of its addresses in sets.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }

    /// The name of the set of this family.
    pub(crate) fn set(self, name: &str) -> String {
        match self {
            Self::V4 => format!("{name}-4"),
            Self::V6 => format!("{name}-6"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::Policy;

    /// Each of these is at most as long as an object may be. Multiplied, they were rules of many gigabytes, on every node.
    #[test]
    fn what_a_policy_lists_is_not_multiplied_without_end() {
        let blocks = |count: usize| -> Vec<Value> {
            let address = |at: usize| format!("10.{}.{}.{}/32", at >> 16, at >> 8 & 255, at & 255);
            (0..count).map(|at| json!({"ipBlock": {"cidr": address(at)}})).collect()
        };
        let numbers = |count: usize| -> Vec<Value> { (0..count).map(|at| json!({"port": 2 * at + 1})).collect() };
        let names = |count: usize| -> Vec<Value> { (0..count).map(|at| json!({"port": format!("p{at}")})).collect() };
        let excepted: Vec<String> = (0..30_000).map(|at| format!("10.{}.{}.0/24", at >> 7, 2 * (at & 127))).collect();
        let check = |peers: Vec<Value>, ports: Vec<Value>, allowed: bool| {
            let policy: NetworkPolicy = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"},
                "spec": {"podSelector": {}, "policyTypes": ["Egress"],
                    "egress": [{"ports": [{"port": 1}]}, {"to": peers, "ports": ports}]}}))
            .expect("a policy");
            let policy = Policy::read(&policy);
            let rules = policy.rules(Direction::Egress).expect("rules");
            let made = compile(rules, Direction::Egress, Family::BOTH, None, |_, _| Vec::new());
            assert_eq!(!made.rules.is_empty(), allowed, "{} peers, {} ports", peers.len(), ports.len());
        };
        check(blocks(1000), numbers(100), true);
        check(blocks(1000), names(100), true);
        check(blocks(20_000), Vec::new(), true);
        check(Vec::new(), numbers(20_000), true);
        check(blocks(10_000), numbers(10_000), false);
        check(blocks(10_000), names(10_000), false);
        let except = json!({"ipBlock": {"cidr": "10.0.0.0/7", "except": excepted}});
        check(vec![except.clone()], Vec::new(), true);
        check(vec![except], names(1000), false);
    }
}

//! The nftables table as a value. What changed since the kernel was told last makes the next transaction; the whole table can be
//! rendered at any time, which is how a start or a failed transaction is repaired.
//!
//! A packet that is forwarded looks up its source in the map of isolated pods for egress, its destination in that for ingress:
//! two look-ups however many policies there are. The pod's chain jumps to the chain of each policy that selects the pod, and
//! drops what none of them accepts. What a pod sends to its own node is judged by ClusterNetworkPolicies alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use ferry_nft::{Elements, Part, Value, Verb, Verdict};

use crate::Bridge;
use crate::compile::Family;
use crate::policy::Direction;

/// Through which packets come to all others.
pub(crate) const FIRST_CHAIN: &str = "egress";
/// Of packets between pods that have no pod's address.
const STRAYS: &str = "strays";

/// An element of a set: an address, or a port of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Element {
    pub(crate) address: IpAddr,
    pub(crate) port: Option<u16>,
}

/// On which way packets of a pod are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    In,
    Out,
    /// From a pod to the node that it is on.
    OwnNode,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::In, Self::Out, Self::OwnNode];

    pub(crate) fn of(direction: Direction) -> Self {
        match direction {
            Direction::Ingress => Self::In,
            Direction::Egress => Self::Out,
        }
    }

    fn map(self) -> &'static str {
        match self {
            Self::In => "isolated-ingress",
            Self::Out => "isolated-egress",
            Self::OwnNode => "isolated-node",
        }
    }
}

/// Key, old value and new value.
type Change<K, V> = (K, Option<V>, Option<V>);

/// Values by key, and what those were that changed since the last look.
#[derive(Debug)]
struct Tracked<K, V> {
    now: BTreeMap<K, V>,
    before: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), before: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Tracked<K, V> {
    fn set(&mut self, key: K, value: Option<V>) {
        let old = match value {
            Some(value) => self.now.insert(key.clone(), value),
            None => self.now.remove(&key),
        };
        self.before.entry(key).or_insert(old);
    }

    fn take(&mut self) -> Vec<Change<K, V>> {
        let before = std::mem::take(&mut self.before).into_iter();
        let all = before.map(|(key, old)| {
            let new = self.now.get(&key).cloned();
            (key, old, new)
        });
        all.filter(|(_, old, new)| old != new).collect()
    }

    fn all(&mut self) -> Vec<Change<K, V>> {
        self.before.clear();
        self.now.iter().map(|(key, value)| (key.clone(), None, Some(value.clone()))).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    bridge: Bridge,
    /// Of which selectors have sets.
    pub(crate) families: &'static [Family],
    /// By name, with its rules.
    chains: Tracked<Arc<str>, Arc<[String]>>,
    /// By name, with whether its elements have ports. Each is one for each family of addresses.
    sets: Tracked<Arc<str>, bool>,
    elements: Tracked<(Arc<str>, Element), ()>,
    /// The chain that packets from or to a pod take.
    isolated: Tracked<(Way, IpAddr), Arc<str>>,
    /// Pods that must reach themselves, through a Service.
    own: Tracked<IpAddr, ()>,
    /// There while any pod is isolated: packets between pods that belong to no pod by their address are dropped.
    strays: Tracked<(), ()>,
}

/// A change of the rules, and whether it may forbid what was allowed.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) rules: ferry_nft::Transaction,
    pub(crate) forbids: bool,
}

#[cfg(test)]
impl Transaction {
    pub(crate) fn script(&self) -> String {
        self.rules.script()
    }
}

impl Table {
    pub(crate) fn new(name: &str, bridge: Bridge) -> Self {
        Self {
            name: name.to_owned(),
            bridge,
            families: Family::FIRST,
            chains: Tracked::default(),
            sets: Tracked::default(),
            elements: Tracked::default(),
            isolated: Tracked::default(),
            own: Tracked::default(),
            strays: Tracked::default(),
        }
    }

    /// Forgets all but what it is for: to be filled and rendered.
    pub(crate) fn clear(&mut self) {
        *self = Self { families: self.families, ..Self::new(&self.name, self.bridge.clone()) };
    }

    pub(crate) fn chain(&mut self, name: &Arc<str>, rules: Option<&Arc<[String]>>) {
        self.chains.set(name.clone(), rules.cloned());
    }

    pub(crate) fn set(&mut self, name: &Arc<str>, with_ports: Option<bool>) {
        self.sets.set(name.clone(), with_ports);
    }

    pub(crate) fn element(&mut self, set: &Arc<str>, element: Element, present: bool) {
        self.elements.set((set.clone(), element), present.then_some(()));
    }

    pub(crate) fn isolate(&mut self, way: Way, address: IpAddr, chain: Option<&Arc<str>>) {
        self.isolated.set((way, address), chain.cloned());
        let is_isolated = Way::ALL.iter().any(|one| self.isolated.now.contains_key(&(*one, address)));
        self.own.set(address, is_isolated.then_some(()));
        self.strays.set((), (!self.own.now.is_empty()).then_some(()));
    }

    pub(crate) fn isolation(&self, way: Way, address: IpAddr) -> Option<&Arc<str>> {
        self.isolated.now.get(&(way, address))
    }

    pub(crate) fn isolated(&self) -> BTreeSet<IpAddr> {
        self.own.now.keys().copied().collect()
    }

    /// The transaction for what changed since the last call, empty when nothing did.
    pub(crate) fn transaction(&mut self) -> Transaction {
        let changes = Changes {
            chains: self.chains.take(),
            sets: self.sets.take(),
            elements: self.elements.take(),
            isolated: self.isolated.take(),
            own: self.own.take(),
            strays: self.strays.take(),
        };
        let forbids = changes.isolated.iter().any(|(_, _, new)| new.is_some())
            || changes.elements.iter().any(|(_, _, new)| new.is_none());
        Transaction { rules: self.write(&changes), forbids }
    }

    /// The transaction that replaces whatever is in the kernel by exactly this table.
    pub(crate) fn render(&mut self) -> Transaction {
        let changes = Changes {
            chains: self.chains.all(),
            sets: self.sets.all(),
            elements: self.elements.all(),
            isolated: self.isolated.all(),
            own: self.own.all(),
            strays: self.strays.all(),
        };
        let mut rules = ferry_nft::Transaction::of_script(frame(&self.name, &self.bridge.name));
        rules.join(self.write(&changes));
        Transaction { rules, forbids: true }
    }

    /// What is referred to is there before, and goes after, whatever refers to it.
    fn write(&self, changes: &Changes) -> ferry_nft::Transaction {
        let table = &self.name;
        let (mut text, mut after) = (String::new(), String::new());
        for (name, _, new) in &changes.sets {
            if let Some(with_ports) = new {
                let port = if *with_ports { " . inet_service" } else { "" };
                for family in self.families {
                    let _ =
                        writeln!(text, "add set inet {table} {} {{ type {}{port}; }}", family.set(name), family.kind());
                }
            }
        }
        for (name, _, _) in changes.chains.iter().filter(|(_, _, new)| new.is_some()) {
            let _ = writeln!(text, "add chain inet {table} {name}");
        }
        for (name, _, rules) in &changes.chains {
            for rule in rules.iter().flat_map(|rules| rules.iter()) {
                let _ = writeln!(text, "add rule inet {table} {name} {rule}");
            }
        }
        self.write_strays(changes, &mut text);
        let gone = || changes.chains.iter().filter(|(_, _, new)| new.is_none());
        for (name, _, _) in gone() {
            let _ = writeln!(after, "flush chain inet {table} {name}");
        }
        for (name, _, _) in gone() {
            let _ = writeln!(after, "delete chain inet {table} {name}");
        }
        for (name, _, _) in changes.sets.iter().filter(|(_, _, new)| new.is_none()) {
            for family in self.families {
                let _ = writeln!(after, "delete set inet {table} {}", family.set(name));
            }
        }
        ferry_nft::Transaction { before: text, elements: self.elements(changes), after }
    }

    fn elements(&self, changes: &Changes) -> Vec<Elements> {
        let (mut gone, mut come): (Lists, Lists) = Default::default();
        // A node may have addresses of a family that no pod has: there are no sets for those until one does, and then all is
        // written anew.
        let has_set = |element: &Element| self.families.contains(&Family::of(element.address));
        for ((set, element), _, new) in changes.elements.iter().filter(|((_, element), _, _)| has_set(element)) {
            let list = if new.is_some() { &mut come } else { &mut gone };
            // The elements of a set that goes need not go before it.
            if new.is_some() || self.sets.now.contains_key(set) {
                let (family, port) = (Family::of(element.address), element.port.map(Part::Port));
                let key = [Part::Address(element.address)].into_iter().chain(port).collect();
                let element = ferry_nft::Element { key, value: None };
                list.entry(family.set(set)).or_default().push(element);
            }
        }
        for ((way, address), old, new) in &changes.isolated {
            let map = Family::of(*address).set(way.map());
            for (list, chain) in [(&mut gone, old), (&mut come, new)] {
                let Some(chain) = chain else { continue };
                let value = Value::Verdict(Verdict::Goto(chain.to_string().into()));
                let element = ferry_nft::Element { key: vec![Part::Address(*address)], value: Some(value) };
                list.entry(map.clone()).or_default().push(element);
            }
        }
        for (address, _, new) in &changes.own {
            let list = if new.is_some() { &mut come } else { &mut gone };
            let element = ferry_nft::Element { key: vec![Part::Address(*address); 2], value: None };
            list.entry(Family::of(*address).set("own")).or_default().push(element);
        }
        let of = |verb, lists: Lists| {
            let table = &self.name;
            lists.into_iter().map(move |(set, list)| Elements {
                verb,
                family: ferry_nft::Family::Inet,
                table: table.clone(),
                set,
                list,
            })
        };
        of(Verb::Delete, gone).chain(of(Verb::Add, come)).collect()
    }

    /// Policies judge packets by pods' addresses. Every pod also has a link-local address of IPv6, and takes what is sent to
    /// all; such packets cross the bridge without an address that could be looked up. Only the search for neighbours passes.
    fn write_strays(&self, changes: &Changes, text: &mut String) {
        let table = &self.name;
        for (_, _, new) in &changes.strays {
            if new.is_none() {
                let _ = writeln!(text, "flush chain inet {table} {STRAYS}");
                continue;
            }
            let mut to_all = vec!["0.0.0.0".to_owned(), "224.0.0.0/3".to_owned()];
            to_all.extend(self.bridge.broadcasts.iter().map(ToString::to_string));
            let mut rules = vec!["icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept".to_owned()];
            if self.families.contains(&Family::V6) {
                rules.push("ip6 saddr { ::, fe80::/10 } drop".to_owned());
                rules.push("ip6 daddr { fe80::/10, ff00::/8 } drop".to_owned());
            } else {
                // Whatever the addresses, they are no pod's.
                rules.push("meta nfproto ipv6 drop".to_owned());
            }
            rules.push(format!("ip daddr {{ {} }} drop", to_all.join(", ")));
            for rule in rules {
                let _ = writeln!(text, "add rule inet {table} {STRAYS} {rule}");
            }
        }
    }
}

struct Changes {
    chains: Vec<Change<Arc<str>, Arc<[String]>>>,
    sets: Vec<Change<Arc<str>, bool>>,
    elements: Vec<Change<(Arc<str>, Element), ()>>,
    isolated: Vec<Change<(Way, IpAddr), Arc<str>>>,
    own: Vec<Change<IpAddr, ()>>,
    strays: Vec<Change<(), ()>>,
}

/// Elements by the name of their set.
type Lists = BTreeMap<String, Vec<ferry_nft::Element>>;

/// The fixed part. Emptied first: the same transaction also creates it, so that deleting never fails.
///
/// NetworkPolicies judge only what is forwarded: whatever goes between a pod and its own node is allowed, kubelet's probes first
/// of all. What a pod opens to its node is judged by ClusterNetworkPolicies, which can name nodes.
/// Destinations are translated before, so that Services are judged by the pod that is behind them. Answers pass; of the other
/// direction every packet is judged, not only the first, so that what a policy forbids ends at once.
fn frame(table: &str, bridge: &str) -> String {
    let passes = "    ct direction reply accept
    meta l4proto { icmp, icmpv6 } ct state related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept
    ip saddr . ip daddr @own-4 accept
    ip6 saddr . ip6 daddr @own-6 accept";
    format!(
        "add table inet {table}
delete table inet {table}
table inet {table} {{
  comment \"Kubernetes NetworkPolicies, kept by ferry: changes made by hand do not last\"

  set own-4 {{ type ipv4_addr . ipv4_addr; }}
  set own-6 {{ type ipv6_addr . ipv6_addr; }}
  map isolated-egress-4 {{ type ipv4_addr : verdict; }}
  map isolated-egress-6 {{ type ipv6_addr : verdict; }}
  map isolated-node-4 {{ type ipv4_addr : verdict; }}
  map isolated-node-6 {{ type ipv6_addr : verdict; }}
  map isolated-ingress-4 {{ type ipv4_addr : verdict; }}
  map isolated-ingress-6 {{ type ipv6_addr : verdict; }}

  chain {FIRST_CHAIN} {{
    type filter hook forward priority -2; policy accept;
{passes}
    ip saddr vmap @isolated-egress-4
    ip6 saddr vmap @isolated-egress-6
  }}
  chain node {{
    type filter hook input priority -2; policy accept;
    ct direction reply accept
    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert }} accept
    ip saddr vmap @isolated-node-4
    ip6 saddr vmap @isolated-node-6
  }}
  chain {STRAYS} {{
  }}
  chain ingress {{
    type filter hook forward priority -1; policy accept;
    iifname \"{bridge}\" oifname \"{bridge}\" jump {STRAYS}
{passes}
    ip daddr vmap @isolated-ingress-4
    ip6 daddr vmap @isolated-ingress-6
  }}
}}
"
    )
}

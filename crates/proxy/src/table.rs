//! The nftables table as a value: a fixed frame, and one fragment of chains, sets and elements per service.
//!
//! Replacing fragments yields the smallest transaction that brings the kernel along; the whole table can be rendered at
//! any time, which is how a start or a failed transaction is repaired.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::claims::{Claims, Place, Standing};
use crate::conntrack::{Changes, Frontend};
use crate::endpoints::Endpoint;
use crate::frame::Frame;
use crate::health::Check;

/// `namespace/name` of the service a fragment belongs to.
pub(crate) type Owner = String;

/// The maps and sets of the frame whose elements come from services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Collection {
    Services,
    NodePorts,
    NoEndpoints,
    NoEndpointNodePorts,
    Firewall,
    ClusterAddresses,
    Hairpin,
}

impl Collection {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::NoEndpoints => "no-endpoints",
            Self::NoEndpointNodePorts => "no-endpoint-node-ports",
            Self::Firewall => "firewall",
            Self::ClusterAddresses => "cluster-addresses",
            Self::Hairpin => "hairpin",
        }
    }

    /// Whether its keys are places that one service has.
    fn is_of_places(self) -> bool {
        !matches!(self, Self::ClusterAddresses | Self::Hairpin)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ElementKey {
    pub(crate) collection: Collection,
    pub(crate) key: String,
}

/// What one service contributes. Chains and sets are its own; elements may be shared with other services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) chains: BTreeMap<String, Vec<String>>,
    /// Sets of client addresses, by name, with the seconds an entry lives.
    pub(crate) affinities: BTreeMap<String, u32>,
    /// Verdict for maps, nothing for sets.
    pub(crate) elements: BTreeMap<ElementKey, Option<String>>,
    /// Where datagrams for it arrive, and who may answer them.
    pub(crate) datagrams: Changes,
    /// Where it is to be reached, and by what right.
    pub(crate) claims: BTreeMap<Place, Standing>,
    pub(crate) cluster_addresses: BTreeSet<String>,
    /// What it asked for and does not get on this node, for its owner to read.
    pub(crate) refused: BTreeSet<String>,
    /// Where load balancers ask for its endpoints on this node.
    pub(crate) health: Option<Check>,
}

#[derive(Debug)]
pub(crate) struct Table {
    frame: Frame,
    fragments: BTreeMap<Owner, Fragment>,
    elements: BTreeMap<ElementKey, BTreeMap<Owner, Option<String>>>,
    claims: Claims,
    /// Places where somebody came or went since someone asked, and services that the node refuses something.
    touched: BTreeSet<Place>,
    refusing: BTreeSet<Owner>,
    /// Frontends of datagrams whose endpoints changed since someone asked.
    moved: Changes,
}

impl Table {
    pub(crate) fn new(frame: Frame) -> Self {
        Self {
            frame,
            fragments: BTreeMap::new(),
            elements: BTreeMap::new(),
            claims: Claims::default(),
            touched: BTreeSet::new(),
            refusing: BTreeSet::new(),
            moved: Changes::new(),
        }
    }

    /// Takes over the new fragments and returns the transaction for the difference; empty when nothing changed.
    pub(crate) fn replace(&mut self, updates: impl IntoIterator<Item = (Owner, Option<Fragment>)>) -> String {
        let (table, address) = (self.frame.place(), self.frame.family.address_type());
        let mut created = String::new();
        let mut filled = String::new();
        let mut removed = String::new();
        let mut before: BTreeMap<ElementKey, Option<Option<String>>> = BTreeMap::new();
        let mut answered: BTreeMap<Frontend, BTreeSet<Endpoint>> = BTreeMap::new();
        for (owner, update) in updates {
            let old = self.fragments.get(&owner).cloned().unwrap_or_default();
            let new = update.clone().unwrap_or_default();
            if old != new {
                write_affinities(&table, address, &old, &new, &mut created, &mut removed);
                write_chains(&table, &old, &new, &mut created, &mut filled, &mut removed);
                let places = self.affected(&old, &new);
                let shared = places.iter().flat_map(|place| elements_at(place));
                for key in old.elements.keys().chain(new.elements.keys()).cloned().chain(shared) {
                    let winner = self.winner(&key);
                    before.entry(key).or_insert(winner);
                }
                for frontend in places.iter().filter_map(|place| frontend_at(place)) {
                    let endpoints = self.answering(&frontend);
                    answered.entry(frontend).or_insert(endpoints);
                }
                self.touched.extend(places);
                if !new.refused.is_empty() {
                    self.refusing.insert(owner.clone());
                }
                self.exchange(&owner, &old, &new);
            }
            match update {
                Some(fragment) => self.fragments.insert(owner, fragment),
                None => self.fragments.remove(&owner),
            };
        }
        for (frontend, before) in answered {
            let now = self.answering(&frontend);
            if now != before {
                self.moved.insert(frontend, now);
            }
        }
        let elements = self.write_elements(&table, &before);
        // References must exist before they are used and be gone before their target is deleted. Chains are emptied
        // before the first of them is deleted, because they refer to each other.
        created + &filled + &elements + &removed
    }

    /// The transaction that replaces whatever is in the kernel by exactly this table.
    pub(crate) fn render(&self) -> String {
        let (table, address) = (&self.frame.place(), self.frame.family.address_type());
        let mut text = self.frame.render();
        let mut filled = String::new();
        for fragment in self.fragments.values() {
            write_affinities(table, address, &Fragment::default(), fragment, &mut text, &mut String::new());
            write_chains(table, &Fragment::default(), fragment, &mut text, &mut filled, &mut String::new());
        }
        text.push_str(&filled);
        let before = self.elements.keys().map(|key| (key.clone(), None)).collect();
        text + &self.write_elements(table, &before)
    }

    /// The sets of clients of Services with affinity, with the seconds that an entry lives.
    pub(crate) fn affinities(&self) -> BTreeMap<String, u32> {
        let sets = self.fragments.values().flat_map(|fragment| &fragment.affinities);
        sets.map(|(name, seconds)| (name.clone(), *seconds)).collect()
    }

    /// What became of frontends of datagrams since the last call.
    pub(crate) fn take_moved(&mut self) -> Changes {
        std::mem::take(&mut self.moved)
    }

    /// Several services may claim one place; in all maps together it is one of them that has it.
    fn winner(&self, key: &ElementKey) -> Option<Option<String>> {
        let owners = self.elements.get(key)?;
        if key.collection.is_of_places() {
            return owners.get(self.claims.holder(&key.key)?).cloned();
        }
        owners.values().next().cloned()
    }

    /// The places that may change hands when one service takes these for those.
    fn affected(&self, old: &Fragment, new: &Fragment) -> BTreeSet<Place> {
        let own = old.claims.keys().chain(new.claims.keys());
        let given = old.cluster_addresses.symmetric_difference(&new.cluster_addresses);
        let beside = own.clone().flat_map(|place| self.claims.beside(place));
        own.chain(beside).chain(given.flat_map(|address| self.claims.at(address))).cloned().collect()
    }

    /// Who may answer datagrams that arrive there.
    fn answering(&self, frontend: &Frontend) -> BTreeSet<Endpoint> {
        let place = match frontend.address {
            Some(address) => format!("{address} . udp . {}", frontend.port),
            None => format!("udp . {}", frontend.port),
        };
        let fragment = self.claims.holder(&place).and_then(|owner| self.fragments.get(owner));
        fragment.and_then(|fragment| fragment.datagrams.get(frontend)).cloned().unwrap_or_default()
    }

    /// What services asked for and do not get, by service, where that may have changed since the last call.
    pub(crate) fn take_refused(&mut self) -> BTreeMap<Owner, BTreeSet<String>> {
        let touched = std::mem::take(&mut self.touched);
        let mut all: BTreeMap<Owner, BTreeSet<String>> = BTreeMap::new();
        for (owner, why) in touched.iter().flat_map(|place| self.claims.refused(place)) {
            all.entry(owner).or_default().insert(why);
        }
        for owner in std::mem::take(&mut self.refusing) {
            let refused = self.fragments.get(&owner).map(|fragment| fragment.refused.clone()).unwrap_or_default();
            all.entry(owner).or_default().extend(refused);
        }
        all
    }

    fn exchange(&mut self, owner: &Owner, old: &Fragment, new: &Fragment) {
        for key in old.elements.keys() {
            if let Some(owners) = self.elements.get_mut(key) {
                owners.remove(owner);
                if owners.is_empty() {
                    self.elements.remove(key);
                }
            }
        }
        self.claims.remove(owner, &old.claims, &old.cluster_addresses);
        self.claims.add(owner, &new.claims, &new.cluster_addresses);
        for (key, value) in &new.elements {
            self.elements.entry(key.clone()).or_default().insert(owner.clone(), value.clone());
        }
    }

    fn write_elements(&self, table: &str, before: &BTreeMap<ElementKey, Option<Option<String>>>) -> String {
        let mut gone: BTreeMap<Collection, BTreeSet<String>> = BTreeMap::new();
        let mut come: BTreeMap<Collection, BTreeSet<String>> = BTreeMap::new();
        for (key, old) in before {
            let new = self.winner(key);
            if *old == new {
                continue;
            }
            let text = |value: &Option<String>| match value {
                Some(verdict) => format!("{} : {verdict}", key.key),
                None => key.key.clone(),
            };
            if let Some(value) = old {
                gone.entry(key.collection).or_default().insert(text(value));
            }
            if let Some(value) = &new {
                come.entry(key.collection).or_default().insert(text(value));
            }
        }
        let mut output = String::new();
        for (verb, collections) in [("delete", gone), ("add", come)] {
            for (collection, elements) in collections {
                let list = elements.into_iter().collect::<Vec<_>>().join(", ");
                let _ = writeln!(output, "{verb} element {table} {} {{ {list} }}", collection.name());
            }
        }
        output
    }
}

/// The maps that a place may stand in.
fn elements_at(place: &str) -> Vec<ElementKey> {
    let of_a_node = place.matches(" . ").count() == 1;
    let collections: &[Collection] = if of_a_node {
        &[Collection::NodePorts, Collection::NoEndpointNodePorts]
    } else {
        &[Collection::Services, Collection::NoEndpoints, Collection::Firewall]
    };
    collections.iter().map(|collection| ElementKey { collection: *collection, key: place.to_owned() }).collect()
}

/// The place as one where datagrams arrive.
fn frontend_at(place: &str) -> Option<Frontend> {
    match place.split(" . ").collect::<Vec<_>>().as_slice() {
        [address, "udp", port] => Some(Frontend { address: Some(address.parse().ok()?), port: port.parse().ok()? }),
        ["udp", port] => Some(Frontend { address: None, port: port.parse().ok()? }),
        _ => None,
    }
}

fn write_affinities(
    table: &str,
    address: &str,
    old: &Fragment,
    new: &Fragment,
    created: &mut String,
    removed: &mut String,
) {
    for (name, seconds) in &new.affinities {
        // The timeout belongs to the set's definition: another one needs another set, hence the seconds in the name.
        if !old.affinities.contains_key(name) {
            let _ = writeln!(
                created,
                "add set {table} {name} {{ type {address}; flags dynamic,timeout; timeout {seconds}s; }}"
            );
        }
    }
    for name in old.affinities.keys().filter(|name| !new.affinities.contains_key(*name)) {
        let _ = writeln!(removed, "delete set {table} {name}");
    }
}

fn write_chains(
    table: &str,
    old: &Fragment,
    new: &Fragment,
    created: &mut String,
    filled: &mut String,
    removed: &mut String,
) {
    for (name, rules) in &new.chains {
        let known = old.chains.get(name);
        match known {
            Some(known) if known == rules => continue,
            Some(_) => drop(writeln!(filled, "flush chain {table} {name}")),
            None => drop(writeln!(created, "add chain {table} {name}")),
        }
        for rule in rules {
            let _ = writeln!(filled, "add rule {table} {name} {rule}");
        }
    }
    let gone: Vec<_> = old.chains.keys().filter(|name| !new.chains.contains_key(*name)).collect();
    let mut tail = String::new();
    for name in &gone {
        let _ = writeln!(tail, "flush chain {table} {name}");
    }
    for name in &gone {
        let _ = writeln!(tail, "delete chain {table} {name}");
    }
    // Chains refer to the affinity sets, so they go first.
    *removed = tail + removed;
}

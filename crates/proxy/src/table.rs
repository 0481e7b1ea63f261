//! The nftables table as a value: a fixed frame, and one fragment of chains, sets and elements per service.
//!
//! Replacing fragments yields the smallest transaction that brings the kernel along; the whole table can be rendered at
//! any time, which is how a start or a failed transaction is repaired.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::conntrack::Changes;
use crate::frame::Frame;

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
}

#[derive(Debug)]
pub(crate) struct Table {
    frame: Frame,
    fragments: BTreeMap<Owner, Fragment>,
    elements: BTreeMap<ElementKey, BTreeMap<Owner, Option<String>>>,
    /// Frontends of datagrams whose endpoints changed since someone asked.
    moved: Changes,
}

impl Table {
    pub(crate) fn new(frame: Frame) -> Self {
        Self { frame, fragments: BTreeMap::new(), elements: BTreeMap::new(), moved: Changes::new() }
    }

    /// Takes over the new fragments and returns the transaction for the difference; empty when nothing changed.
    pub(crate) fn replace(&mut self, updates: impl IntoIterator<Item = (Owner, Option<Fragment>)>) -> String {
        let table = self.frame.table.clone();
        let mut created = String::new();
        let mut filled = String::new();
        let mut removed = String::new();
        let mut before: BTreeMap<ElementKey, Option<Option<String>>> = BTreeMap::new();
        for (owner, update) in updates {
            let old = self.fragments.remove(&owner).unwrap_or_default();
            let new = update.clone().unwrap_or_default();
            if old != new {
                write_affinities(&table, &old, &new, &mut created, &mut removed);
                write_chains(&table, &old, &new, &mut created, &mut filled, &mut removed);
                for key in old.elements.keys().chain(new.elements.keys()) {
                    before.entry(key.clone()).or_insert_with(|| self.winner(key));
                }
                self.exchange(&owner, &old, &new);
                for frontend in old.datagrams.keys().chain(new.datagrams.keys()) {
                    if old.datagrams.get(frontend) != new.datagrams.get(frontend) {
                        let endpoints = new.datagrams.get(frontend).cloned().unwrap_or_default();
                        self.moved.insert(*frontend, endpoints);
                    }
                }
            }
            if let Some(fragment) = update {
                self.fragments.insert(owner, fragment);
            }
        }
        let elements = self.write_elements(&table, &before);
        // References must exist before they are used and be gone before their target is deleted. Chains are emptied
        // before the first of them is deleted, because they refer to each other.
        created + &filled + &elements + &removed
    }

    /// The transaction that replaces whatever is in the kernel by exactly this table.
    pub(crate) fn render(&self) -> String {
        let table = &self.frame.table;
        let mut text = self.frame.render();
        let mut filled = String::new();
        for fragment in self.fragments.values() {
            write_affinities(table, &Fragment::default(), fragment, &mut text, &mut String::new());
            write_chains(table, &Fragment::default(), fragment, &mut text, &mut filled, &mut String::new());
        }
        text.push_str(&filled);
        let before = self.elements.keys().map(|key| (key.clone(), None)).collect();
        text + &self.write_elements(table, &before)
    }

    /// What became of frontends of datagrams since the last call.
    pub(crate) fn take_moved(&mut self) -> Changes {
        std::mem::take(&mut self.moved)
    }

    /// Two services may claim one address and port; the first by name has it until it goes.
    fn winner(&self, key: &ElementKey) -> Option<Option<String>> {
        self.elements.get(key).and_then(|owners| owners.values().next().cloned())
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
                let _ = writeln!(output, "{verb} element ip {table} {} {{ {list} }}", collection.name());
            }
        }
        output
    }
}

fn write_affinities(table: &str, old: &Fragment, new: &Fragment, created: &mut String, removed: &mut String) {
    for (name, seconds) in &new.affinities {
        // The timeout belongs to the set's definition: another one needs another set, hence the seconds in the name.
        if !old.affinities.contains_key(name) {
            let _ = writeln!(
                created,
                "add set ip {table} {name} {{ type ipv4_addr; flags dynamic,timeout; timeout {seconds}s; }}"
            );
        }
    }
    for name in old.affinities.keys().filter(|name| !new.affinities.contains_key(*name)) {
        let _ = writeln!(removed, "delete set ip {table} {name}");
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
            Some(_) => drop(writeln!(filled, "flush chain ip {table} {name}")),
            None => drop(writeln!(created, "add chain ip {table} {name}")),
        }
        for rule in rules {
            let _ = writeln!(filled, "add rule ip {table} {name} {rule}");
        }
    }
    let gone: Vec<_> = old.chains.keys().filter(|name| !new.chains.contains_key(*name)).collect();
    let mut tail = String::new();
    for name in &gone {
        let _ = writeln!(tail, "flush chain ip {table} {name}");
    }
    for name in &gone {
        let _ = writeln!(tail, "delete chain ip {table} {name}");
    }
    // Chains refer to the affinity sets, so they go first.
    *removed = tail + removed;
}

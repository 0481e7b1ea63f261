//! The nftables table as a value: a fixed frame, chains that Services share, and one fragment per Service.
//!
//! Replacing fragments yields the smallest transaction that brings the kernel along; the whole table can be rendered at
//! any time, which is how a start or a failed transaction is repaired.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use ferry_nft::{Element, Elements, Part, Protocol, Transaction, Value, Verb};

use crate::claims::Claims;
use crate::conntrack::{Changes, Frontend};
use crate::endpoints::Endpoint;
use crate::fragment::{Collection, Fragment};
use crate::frame::Frame;
use crate::service_address::ServiceAddress;
use crate::shape::Shape;

/// `namespace/name` of the service a fragment belongs to.
pub(crate) type Owner = Arc<str>;

/// Elements by what they are found under.
type Contents = BTreeMap<(Collection, Vec<Part>), Option<Value>>;

#[derive(Debug)]
pub(crate) struct Table {
    frame: Frame,
    fragments: BTreeMap<Owner, Fragment>,
    claims: Claims,
    /// How many fragments want an address in the set of those that may be sent to themselves.
    hairpin: HashMap<IpAddr, u32>,
    /// How many fronts need a shared chain.
    shapes: BTreeMap<Shape, usize>,
    /// The shared chains that the kernel has. Those that nobody needs any more go when another one comes.
    present: BTreeSet<Shape>,
    /// Places where somebody came or went since someone asked, and services that the node refuses something.
    touched: BTreeSet<ServiceAddress>,
    refusing: BTreeSet<Owner>,
    /// Frontends of datagrams whose endpoints changed since someone asked.
    moved: Changes,
}

/// What a change is made from.
#[derive(Default)]
struct Draft {
    created: String,
    filled: String,
    removed: String,
    /// What may change, and how it was before.
    places: BTreeSet<ServiceAddress>,
    hairpin: BTreeSet<IpAddr>,
    cluster_addresses: BTreeSet<IpAddr>,
    before: Contents,
}

impl Table {
    pub(crate) fn new(frame: Frame) -> Self {
        Self {
            frame,
            fragments: BTreeMap::new(),
            claims: Claims::default(),
            hairpin: HashMap::new(),
            shapes: BTreeMap::new(),
            present: BTreeSet::new(),
            touched: BTreeSet::new(),
            refusing: BTreeSet::new(),
            moved: Changes::new(),
        }
    }

    /// Takes over the new fragments and returns the transaction for the difference; empty when nothing changed.
    pub(crate) fn replace(&mut self, updates: impl IntoIterator<Item = (Owner, Option<Fragment>)>) -> Transaction {
        let mut draft = Draft::default();
        self.take_over(updates, Some(&mut draft));
        let elements = self.elements(&draft);
        // References must exist before they are used and be gone before their target is deleted. Chains are emptied
        // before the first of them is deleted, because they refer to each other.
        let Draft { mut created, mut filled, mut removed, .. } = draft;
        let new: Vec<Shape> = self.shapes.keys().filter(|shape| !self.present.contains(shape)).copied().collect();
        self.write_shapes(&new, &mut created, &mut filled);
        self.present.extend(new);
        if !(created.is_empty() && filled.is_empty() && removed.is_empty()) {
            removed = self.forget_shapes() + &removed;
        }
        Transaction { before: created + &filled, elements, after: removed }
    }

    /// Takes over the new fragments, for the table to be rendered.
    pub(crate) fn absorb(&mut self, updates: impl IntoIterator<Item = (Owner, Option<Fragment>)>) {
        self.take_over(updates, None);
    }

    fn take_over(
        &mut self,
        updates: impl IntoIterator<Item = (Owner, Option<Fragment>)>,
        mut draft: Option<&mut Draft>,
    ) {
        let mut answered: BTreeMap<Frontend, BTreeSet<Endpoint>> = BTreeMap::new();
        for (owner, update) in updates {
            let old = self.fragments.get(&owner).cloned().unwrap_or_default();
            let none = Fragment::default();
            let new = update.as_ref().unwrap_or(&none);
            if old != *new {
                let places = self.affected(&old, new);
                if let Some(draft) = draft.as_deref_mut() {
                    self.note(&places, &old, new, draft);
                }
                for frontend in places.iter().filter_map(frontend_at) {
                    let endpoints = self.answering(&frontend);
                    answered.entry(frontend).or_insert(endpoints);
                }
                self.touched.extend(places);
                if !new.refused.is_empty() {
                    self.refusing.insert(owner.clone());
                }
                self.exchange(&owner, &old, new);
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
    }

    /// Writes down what the new fragment brings, and how everything is that it may change.
    fn note(&self, places: &BTreeSet<ServiceAddress>, old: &Fragment, new: &Fragment, draft: &mut Draft) {
        let (table, address) = (self.frame.place(), self.frame.family.address_type());
        write_affinities(&table, address, old, new, &mut draft.created, &mut draft.removed);
        write_chains(&table, old, new, &mut draft.created, &mut draft.filled, &mut draft.removed);
        for place in places {
            if draft.places.insert(*place) {
                self.read_place(place, &mut draft.before);
            }
        }
        for address in old.hairpin.iter().chain(&new.hairpin) {
            if draft.hairpin.insert(*address) {
                self.read_hairpin(*address, &mut draft.before);
            }
        }
        for address in old.cluster_addresses.iter().chain(&new.cluster_addresses) {
            if draft.cluster_addresses.insert(*address) {
                self.read_cluster_address(*address, &mut draft.before);
            }
        }
    }

    fn read_place(&self, place: &ServiceAddress, contents: &mut Contents) {
        let holder = self.claims.holder(place).and_then(|owner| self.fragments.get(owner));
        if let Some(front) = holder.and_then(|fragment| fragment.front(place)) {
            front.elements(place, |collection, Element { key, value }| {
                contents.insert((collection, key), value);
            });
        }
    }

    fn read_hairpin(&self, address: IpAddr, contents: &mut Contents) {
        if self.hairpin.contains_key(&address) {
            contents.insert((Collection::Hairpin, hairpin_of(address)), None);
        }
    }

    fn read_cluster_address(&self, address: IpAddr, contents: &mut Contents) {
        if self.claims.is_cluster_address(&address) {
            contents.insert((Collection::ClusterAddresses, vec![Part::Address(address)]), None);
        }
    }

    /// What went and what came since the draft was begun.
    fn elements(&self, draft: &Draft) -> Vec<Elements> {
        let (before, mut now) = (&draft.before, Contents::new());
        draft.places.iter().for_each(|place| self.read_place(place, &mut now));
        draft.hairpin.iter().for_each(|address| self.read_hairpin(*address, &mut now));
        draft.cluster_addresses.iter().for_each(|address| self.read_cluster_address(*address, &mut now));
        let only_in = |these: &Contents, those: &Contents| {
            let mut lists: BTreeMap<Collection, Vec<Element>> = BTreeMap::new();
            for (at, value) in these.iter().filter(|(at, value)| those.get(*at) != Some(*value)) {
                let (collection, key) = at.clone();
                lists.entry(collection).or_default().push(Element { key, value: value.clone() });
            }
            lists
        };
        let mut all = Vec::new();
        for (verb, lists) in [(Verb::Delete, only_in(before, &now)), (Verb::Add, only_in(&now, before))] {
            all.extend(lists.into_iter().map(|(collection, list)| Elements {
                verb,
                family: self.frame.family.of_nft(),
                table: self.frame.table.clone(),
                set: collection.name().to_owned(),
                list,
            }));
        }
        all
    }

    /// The transaction that replaces whatever is in the kernel by exactly this table.
    pub(crate) fn render(&mut self) -> String {
        let (table, address) = (&self.frame.place(), self.frame.family.address_type());
        let mut text = self.frame.render();
        let (mut filled, none) = (String::new(), Fragment::default());
        for fragment in self.fragments.values() {
            write_affinities(table, address, &none, fragment, &mut text, &mut String::new());
            write_chains(table, &none, fragment, &mut text, &mut filled, &mut String::new());
        }
        self.present = self.shapes.keys().copied().collect();
        let shapes: Vec<Shape> = self.present.iter().copied().collect();
        self.write_shapes(&shapes, &mut text, &mut filled);
        text.push_str(&filled);
        // Written as they are found: there may be hundreds of thousands.
        let mut lists: BTreeMap<Collection, String> = BTreeMap::new();
        let mut add = |collection: Collection, element: Element| {
            let list = lists.entry(collection).or_default();
            let _ = write!(list, "{}{element}", if list.is_empty() { "" } else { ", " });
        };
        for (owner, fragment) in &self.fragments {
            for (place, front) in fragment.fronts.iter().filter(|(place, _)| self.claims.holder(place) == Some(owner)) {
                front.elements(place, &mut add);
            }
        }
        let hairpin: BTreeSet<&IpAddr> = self.hairpin.keys().collect();
        hairpin.into_iter().for_each(|address| {
            add(Collection::Hairpin, Element { key: hairpin_of(*address), value: None });
        });
        for address in self.claims.cluster_addresses() {
            add(Collection::ClusterAddresses, Element { key: vec![Part::Address(*address)], value: None });
        }
        for (collection, list) in lists {
            let _ = writeln!(text, "add element {table} {} {{ {list} }}", collection.name());
        }
        text
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

    /// The places that may change hands when one service takes these for those.
    fn affected(&self, old: &Fragment, new: &Fragment) -> BTreeSet<ServiceAddress> {
        let own = || old.fronts.iter().chain(&new.fronts).map(|(place, _)| place);
        let beside = own().flat_map(|place| self.claims.beside(place));
        let (lost, given) = (&old.cluster_addresses, &new.cluster_addresses);
        let moved = lost.iter().filter(|address| !given.contains(address));
        let moved = moved.chain(given.iter().filter(|address| !lost.contains(address)));
        own().chain(beside).chain(moved.flat_map(|address| self.claims.at(*address))).copied().collect()
    }

    /// Who may answer datagrams that arrive there.
    fn answering(&self, frontend: &Frontend) -> BTreeSet<Endpoint> {
        let place = ServiceAddress { address: frontend.address, protocol: Protocol::Udp, port: frontend.port };
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
        self.claims.remove(owner, &old.fronts, &old.cluster_addresses);
        self.claims.add(owner, &new.fronts, &new.cluster_addresses);
        for address in &new.hairpin {
            *self.hairpin.entry(*address).or_default() += 1;
        }
        for shape in new.shapes() {
            *self.shapes.entry(shape).or_default() += 1;
        }
        for address in &old.hairpin {
            if let Some(count) = self.hairpin.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.hairpin.remove(address);
                }
            }
        }
        for shape in old.shapes() {
            if let Some(count) = self.shapes.get_mut(&shape) {
                *count -= 1;
                if *count == 0 {
                    self.shapes.remove(&shape);
                }
            }
        }
    }

    fn write_shapes(&self, shapes: &[Shape], created: &mut String, filled: &mut String) {
        let table = self.frame.place();
        for shape in shapes {
            let name = shape.name();
            let _ = writeln!(created, "add chain {table} {name}");
            for rule in shape.rules(&self.frame) {
                let _ = writeln!(filled, "add rule {table} {name} {rule}");
            }
        }
    }

    /// What takes the shared chains away that nobody needs.
    fn forget_shapes(&mut self) -> String {
        let (table, mut text) = (self.frame.place(), String::new());
        let gone: Vec<Shape> = self.present.iter().filter(|shape| !self.shapes.contains_key(shape)).copied().collect();
        for verb in ["flush", "delete"] {
            for shape in &gone {
                let _ = writeln!(text, "{verb} chain {table} {}", shape.name());
            }
        }
        self.present.retain(|shape| self.shapes.contains_key(shape));
        text
    }
}

fn hairpin_of(address: IpAddr) -> Vec<Part> {
    vec![Part::Address(address), Part::Address(address)]
}

/// The place as one where datagrams arrive.
fn frontend_at(place: &ServiceAddress) -> Option<Frontend> {
    (place.protocol == Protocol::Udp).then_some(Frontend { address: place.address, port: place.port })
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

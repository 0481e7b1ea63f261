//! What the proxy knows of the cluster, and which services changed since the kernel was last told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferry_client::endpoint_slices::Slice;
use ferry_nft::{Room, Transaction};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use crate::conntrack::Changes;
use crate::family::Family;
use crate::fragment::Fragment;
use crate::frame::Frame;
use crate::health::Check;
use crate::listeners::Listeners;
use crate::plan::{View, plan};
use crate::table::{Owner, Table};

/// Services with this label are left to another proxy.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// So many elements all Services of a family may stand for: about a gigabyte of the kernel's memory.
const MOST: usize = 8_000_000;

#[derive(Default)]
struct Known {
    service: Option<Arc<Service>>,
    /// By their keys, in order. Mostly there is one.
    slices: Vec<(Arc<str>, Arc<Slice>)>,
}

impl Known {
    fn remove(&mut self, slice: &str) {
        self.slices.retain(|(key, _)| &**key != slice);
    }

    fn insert(&mut self, key: Arc<str>, slice: Arc<Slice>) {
        match self.slices.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(index) => self.slices[index].1 = slice,
            Err(index) => {
                self.slices.reserve_exact(1);
                self.slices.insert(index, (key, slice));
            }
        }
    }
}

pub(crate) struct Proxier {
    view: View,
    known: BTreeMap<Owner, Known>,
    /// Where each slice was counted, by its own key: its label may have changed since.
    slice_owners: BTreeMap<Arc<str>, Owner>,
    changed: BTreeSet<Owner>,
    table: Table,
    /// What services were told they do not get.
    told: BTreeMap<Owner, BTreeSet<String>>,
    checks: BTreeMap<Owner, Check>,
    room: Room,
}

impl Proxier {
    pub(crate) fn new(frame: Frame, view: View) -> Self {
        Self {
            view,
            known: BTreeMap::new(),
            slice_owners: BTreeMap::new(),
            changed: BTreeSet::new(),
            table: Table::new(frame),
            told: BTreeMap::new(),
            checks: BTreeMap::new(),
            room: Room::new(MOST),
        }
    }

    pub(crate) fn service(&mut self, service: &Arc<Service>, present: bool) {
        let owner = key(service.as_ref());
        let ours = present && !service.labels().contains_key(PROXY_NAME);
        self.known.entry(owner.clone()).or_default().service = ours.then(|| service.clone());
        self.touch(owner);
    }

    pub(crate) fn slice(&mut self, slice: &Arc<Slice>, present: bool) {
        let slice_key = key(slice.as_ref());
        // Those of a headless Service are for DNS alone: it was headless when they were made.
        let owner = slice.service.as_deref().filter(|_| present && !slice.is_headless).map(Owner::from);
        if let Some(previous) = self.slice_owners.remove(&slice_key)
            && owner.as_ref() != Some(&previous)
        {
            if let Some(known) = self.known.get_mut(&previous) {
                known.remove(&slice_key);
            }
            self.touch(previous);
        }
        if let Some(owner) = owner {
            self.slice_owners.insert(slice_key.clone(), owner.clone());
            self.known.entry(owner.clone()).or_default().insert(slice_key, slice.clone());
            self.touch(owner);
        }
    }

    pub(crate) fn zone(&mut self, zone: Option<String>) {
        if self.view.node.zone != zone {
            self.view.node.zone = zone;
            self.changed.extend(self.known.keys().cloned());
        }
    }

    /// Whether a changed service wants to be reached at addresses or ports that the node may have itself.
    pub(crate) fn wants_the_nodes(&self) -> bool {
        let changed = self.changed.iter().filter_map(|owner| self.known.get(owner)?.service.as_ref());
        changed.into_iter().any(|service| is_external(service))
    }

    /// Whether any service does.
    pub(crate) fn has_external(&self) -> bool {
        self.known.values().filter_map(|known| known.service.as_ref()).any(|service| is_external(service))
    }

    /// Whether planning what changed takes milliseconds.
    pub(crate) fn has_much_to_plan(&self) -> bool {
        const MUCH: usize = 10_000;
        let of_slices = |known: &Known| -> usize {
            known.slices.iter().map(|(_, slice)| slice.endpoints.len().saturating_mul(slice.ports.len())).sum()
        };
        let of_service = |known: &Known| {
            let spec = known.service.as_ref().and_then(|service| service.spec.as_ref());
            spec.and_then(|spec| spec.ports.as_ref()).map_or(0, Vec::len)
        };
        let mut left = MUCH;
        self.changed.iter().filter_map(|owner| self.known.get(owner)).any(|known| {
            left = left.saturating_sub(1 + of_service(known) + of_slices(known));
            left == 0
        })
    }

    /// What the node listens on now: services that this is of matter for are planned anew.
    pub(crate) fn listeners(&mut self, listeners: Listeners) {
        let moved = self.view.listeners.changed_to(&listeners);
        if moved.is_empty() {
            return;
        }
        self.view.listeners = listeners;
        for (owner, known) in &self.known {
            if known.service.as_ref().is_some_and(|service| is_external(service) && moved.concern(service)) {
                self.changed.insert(owner.clone());
            }
        }
    }

    /// What services do not get that they ask for, and were not told yet.
    pub(crate) fn take_refused(&mut self) -> Vec<(Arc<Service>, String)> {
        let refused = self.table.take_refused();
        let mut news = Vec::new();
        self.told.retain(|owner, _| self.known.contains_key(owner));
        for (owner, reasons) in refused {
            let Some(service) = self.known.get(&owner).and_then(|known| known.service.clone()) else { continue };
            let told = self.told.entry(owner).or_default();
            let new = reasons.difference(told).cloned().collect::<Vec<_>>();
            news.extend(new.iter().map(|why| (service.clone(), why.clone())));
            told.extend(new);
        }
        news
    }

    /// Where load balancers ask for endpoints on this node, by service.
    pub(crate) fn checks(&self) -> &BTreeMap<Owner, Check> {
        &self.checks
    }

    pub(crate) fn of(&self, owner: &str) -> Option<Arc<Service>> {
        self.known.get(owner)?.service.clone()
    }

    fn touch(&mut self, owner: Owner) {
        if self.known.get(&owner).is_some_and(|known| known.service.is_none() && known.slices.is_empty()) {
            self.known.remove(&owner);
        }
        self.changed.insert(owner);
    }

    /// The transaction for everything that changed since the last call; empty when the rules stay the same.
    pub(crate) fn transaction(&mut self) -> Transaction {
        let updates = self.updates();
        self.table.replace(updates)
    }

    fn updates(&mut self) -> Vec<(Owner, Option<Fragment>)> {
        let mut changed: Vec<Owner> = std::mem::take(&mut self.changed).into_iter().collect();
        let mut updates = Vec::new();
        while !changed.is_empty() {
            updates.extend(changed.into_iter().map(|owner| {
                let fragment = self.fragment(&owner);
                (owner, fragment)
            }));
            // Where one has become smaller, there may be room for another.
            changed = self.room.admissible();
        }
        for (owner, fragment) in &updates {
            match fragment.as_ref().and_then(|fragment| fragment.health) {
                Some(check) => self.checks.insert(owner.clone(), check),
                None => self.checks.remove(owner),
            };
        }
        updates
    }

    fn fragment(&mut self, owner: &Owner) -> Option<Fragment> {
        let mut is_weighed = false;
        let fragment = self.known.get(owner).and_then(|known| {
            let slices = known.slices.iter().map(|(_, slice)| &**slice);
            let admit = |elements| {
                is_weighed = true;
                if self.room.take(owner, elements) { Ok(()) } else { Err(too_many(owner)) }
            };
            plan(known.service.as_ref()?, slices, &self.view, admit)
        });
        if !is_weighed {
            self.room.give_back(owner);
        }
        fragment
    }

    pub(crate) fn family(&self) -> Family {
        self.view.family
    }

    /// Frontends of datagrams whose endpoints changed since the last call.
    pub(crate) fn take_moved(&mut self) -> Changes {
        self.table.take_moved()
    }

    /// The sets in which clients are remembered.
    pub(crate) fn affinities(&self) -> BTreeMap<String, u32> {
        self.table.affinities()
    }

    /// The transaction that makes the kernel agree whatever is in it now.
    pub(crate) fn resync(&mut self) -> String {
        let updates = self.updates();
        self.table.absorb(updates);
        self.table.render()
    }
}

fn too_many(owner: &Owner) -> String {
    let namespace = owner.split_once('/').map_or("", |(namespace, _)| namespace);
    format!("the Service is not served: those of namespace {namespace} would be more than a node keeps rules for")
}

/// Whether it is to be reached at more than a ClusterIP.
fn is_external(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty())
            || spec.type_.as_deref().is_some_and(|kind| kind != "ClusterIP")
    })
}

fn key<K: kube::Resource>(object: &K) -> Owner {
    let meta = object.meta();
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()).into()
}

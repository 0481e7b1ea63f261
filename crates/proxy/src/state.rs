//! What the proxy knows of the cluster, and which services changed since the kernel was last told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;

use crate::conntrack::Changes;
use crate::frame::Frame;
use crate::plan::{View, plan};
use crate::table::{Owner, Table};

/// The label by which a slice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Services with this label are left to another proxy.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

#[derive(Default)]
struct Known {
    service: Option<Arc<Service>>,
    slices: BTreeMap<String, Arc<EndpointSlice>>,
}

pub(crate) struct State {
    view: View,
    known: BTreeMap<Owner, Known>,
    /// Where each slice was counted, by its own key: its label may have changed since.
    slice_owners: BTreeMap<String, Owner>,
    changed: BTreeSet<Owner>,
    table: Table,
}

impl State {
    pub(crate) fn new(frame: Frame, view: View) -> Self {
        Self {
            view,
            known: BTreeMap::new(),
            slice_owners: BTreeMap::new(),
            changed: BTreeSet::new(),
            table: Table::new(frame),
        }
    }

    pub(crate) fn service(&mut self, service: &Arc<Service>, present: bool) {
        let owner = key(service.as_ref());
        let ours = present && !service.labels().contains_key(PROXY_NAME);
        self.known.entry(owner.clone()).or_default().service = ours.then(|| service.clone());
        self.touch(owner);
    }

    pub(crate) fn slice(&mut self, slice: &Arc<EndpointSlice>, present: bool) {
        let slice_key = key(slice.as_ref());
        let owner =
            slice.labels().get(SERVICE_NAME).map(|name| format!("{}/{name}", slice.namespace().unwrap_or_default()));
        let owner = owner.filter(|_| present);
        if let Some(previous) = self.slice_owners.remove(&slice_key)
            && owner.as_ref() != Some(&previous)
        {
            if let Some(known) = self.known.get_mut(&previous) {
                known.slices.remove(&slice_key);
            }
            self.touch(previous);
        }
        if let Some(owner) = owner {
            self.slice_owners.insert(slice_key.clone(), owner.clone());
            self.known.entry(owner.clone()).or_default().slices.insert(slice_key, slice.clone());
            self.touch(owner);
        }
    }

    pub(crate) fn zone(&mut self, zone: Option<String>) {
        if self.view.node.zone != zone {
            self.view.node.zone = zone;
            self.changed.extend(self.known.keys().cloned());
        }
    }

    fn touch(&mut self, owner: Owner) {
        if self.known.get(&owner).is_some_and(|known| known.service.is_none() && known.slices.is_empty()) {
            self.known.remove(&owner);
        }
        self.changed.insert(owner);
    }

    /// The transaction for everything that changed since the last call; empty when the rules stay the same.
    pub(crate) fn transaction(&mut self) -> String {
        let changed = std::mem::take(&mut self.changed);
        let updates: Vec<_> = changed
            .into_iter()
            .map(|owner| {
                let fragment = self.known.get(&owner).and_then(|known| {
                    plan(known.service.as_ref()?, known.slices.values().map(Arc::as_ref), &self.view)
                });
                (owner, fragment)
            })
            .collect();
        self.table.replace(updates)
    }

    /// Frontends of datagrams whose endpoints changed since the last call.
    pub(crate) fn take_moved(&mut self) -> Changes {
        self.table.take_moved()
    }

    /// The transaction that makes the kernel agree whatever is in it now.
    pub(crate) fn resync(&mut self) -> String {
        let _ = self.transaction();
        self.table.render()
    }
}

fn key<K: kube::Resource>(object: &K) -> String {
    format!(
        "{}/{}",
        object.meta().namespace.as_deref().unwrap_or_default(),
        object.meta().name.as_deref().unwrap_or_default()
    )
}

//! The names of the cluster as they were told.

use std::collections::HashSet;

use ferry_client::endpoint_slices::Slice;
use ferry_client::{Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;

use super::line::{Kind, Line};
use crate::cluster::Cluster;
use crate::reload::Written;

/// Clones share the objects.
#[derive(Clone)]
pub(super) struct Tables {
    services: Informer<Service>,
    slices: Informer<Slice>,
    namespaces: Informer<Namespace>,
    /// Until all has been told: they are empty, or what was known once.
    untold: watch::Sender<bool>,
    /// While everything is told: what has not been named again yet.
    unnamed: Option<HashSet<(Kind, ObjectKey)>>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            services: Informer::detached(),
            slices: Informer::detached(),
            namespaces: Informer::detached(),
            untold: watch::channel(true).0,
            unnamed: None,
        }
    }
}

impl Tables {
    pub(super) fn cluster(&self) -> Cluster {
        let cluster = Cluster::new(self.services.clone(), self.slices.clone(), self.namespaces.clone());
        cluster.untold(self.untold.subscribe())
    }

    /// Gives the Corefile, where it is one.
    pub(super) fn apply(&mut self, line: Line) -> Option<Written> {
        match line {
            Line::All => self.unnamed = Some(self.keys().collect()),
            Line::Complete => {
                for (kind, key) in self.unnamed.take().into_iter().flatten() {
                    self.remove(kind, &key);
                }
                self.mark_synced();
                self.untold.send_replace(false);
            }
            Line::Service(service) => {
                self.named(Kind::Service, ObjectKey::of(&*service));
                self.services.apply(*service);
            }
            Line::Slice(slice) => {
                self.named(Kind::Slice, ObjectKey::of(&*slice));
                self.slices.apply(Slice::from(*slice));
            }
            Line::Namespace(name) => {
                self.named(Kind::Namespace, ObjectKey::new("", name.as_str()));
                let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
                self.namespaces.apply(Namespace { metadata, ..Namespace::default() });
            }
            Line::Gone { kind, namespace, name } => self.remove(kind, &ObjectKey::new(namespace, name)),
            Line::Corefile(written) => return Some(written),
        }
        None
    }

    /// What is there was known once: it counts until something else is told.
    pub(super) fn recall(&self) {
        self.mark_synced();
    }

    pub(super) fn clear(&mut self) {
        let all: Vec<_> = self.keys().collect();
        for (kind, key) in all {
            self.remove(kind, &key);
        }
    }

    /// Whether everything has been told, and nothing is being told anew.
    pub(super) fn is_confirmed(&self) -> bool {
        self.services.is_synced() && self.unnamed.is_none() && !*self.untold.borrow()
    }

    /// All of it, as it would be told.
    pub(super) fn lines(&self, corefile: Option<Written>) -> impl Iterator<Item = Line> {
        let namespaces = self.namespaces.list().into_iter();
        let namespaces =
            namespaces.map(|namespace| Line::Namespace(namespace.metadata.name.clone().unwrap_or_default()));
        let services = self.services.list().into_iter().map(|service| Line::service(&service));
        let slices = self.slices.list().into_iter().map(|slice| Line::slice(&slice));
        corefile.map(Line::Corefile).into_iter().chain(namespaces).chain(services).chain(slices)
    }

    fn mark_synced(&self) {
        self.services.mark_synced();
        self.slices.mark_synced();
        self.namespaces.mark_synced();
    }

    fn named(&mut self, kind: Kind, key: ObjectKey) {
        if let Some(unnamed) = &mut self.unnamed {
            unnamed.remove(&(kind, key));
        }
    }

    fn keys(&self) -> impl Iterator<Item = (Kind, ObjectKey)> {
        let services = self.services.list().into_iter().map(|service| (Kind::Service, ObjectKey::of(&*service)));
        let slices = self.slices.list().into_iter().map(|slice| (Kind::Slice, ObjectKey::of(&*slice)));
        let namespaces = self.namespaces.list().into_iter();
        let namespaces = namespaces.map(|namespace| (Kind::Namespace, ObjectKey::of(&*namespace)));
        services.chain(slices).chain(namespaces)
    }

    fn remove(&self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Service => remove(&self.services, key),
            Kind::Slice => remove(&self.slices, key),
            Kind::Namespace => remove(&self.namespaces, key),
        }
    }
}

fn remove<K: ferry_client::informer::Cached + Clone>(informer: &Informer<K>, key: &ObjectKey) {
    if let Some(object) = informer.get_key(key) {
        informer.remove(K::clone(&object));
    }
}

//! The other kinds that plugins read, from the informers' caches.

use std::sync::Arc;

use ferry_client::{Informer, Informers};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};

use crate::devices::Devices;
use crate::model::labels::Labels;

#[derive(Clone)]
pub struct Listers {
    pub namespaces: Informer<Namespace>,
    pub services: Informer<Service>,
    pub replica_sets: Informer<ReplicaSet>,
    pub replication_controllers: Informer<ReplicationController>,
    pub stateful_sets: Informer<StatefulSet>,
    pub budgets: Informer<PodDisruptionBudget>,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    pub classes: Informer<StorageClass>,
    pub csi_nodes: Informer<CSINode>,
    pub devices: Arc<Devices>,
}

impl Listers {
    pub fn new(informers: &Informers) -> Self {
        Self {
            namespaces: informers.of(),
            services: informers.of(),
            replica_sets: informers.of(),
            replication_controllers: informers.of(),
            stateful_sets: informers.of(),
            budgets: informers.of(),
            claims: informers.of(),
            volumes: informers.of(),
            classes: informers.of(),
            csi_nodes: informers.of(),
            devices: Arc::new(Devices::new(informers)),
        }
    }

    /// Empty ones that nobody fills but the caller.
    pub fn detached() -> Self {
        Self {
            namespaces: Informer::detached(),
            services: Informer::detached(),
            replica_sets: Informer::detached(),
            replication_controllers: Informer::detached(),
            stateful_sets: Informer::detached(),
            budgets: Informer::detached(),
            claims: Informer::detached(),
            volumes: Informer::detached(),
            classes: Informer::detached(),
            csi_nodes: Informer::detached(),
            devices: Arc::new(Devices::detached()),
        }
    }

    pub fn namespace_labels(&self, namespace: &str) -> Labels {
        self.namespaces.get("", namespace).and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default()
    }
}

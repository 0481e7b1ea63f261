//! What ReplicaSet and ReplicationController have in common.

use ferry_client::informer::Cached;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope};
use kube::Resource;

use crate::common::selector::Selector;

/// An object that keeps a number of equal pods.
pub(crate) trait ReplicaOwner:
    Cached + Clone + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Metadata<Ty = ObjectMeta>
{
    const CONTROLLER: &'static str;
    const KIND: &'static str;
    /// What its queue is called in metrics.
    const QUEUE: &'static str;
    /// Whether its status tells how many pods are terminating.
    const COUNTS_TERMINATING: bool;

    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn selector(&self) -> Selector;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> ReplicaSetStatus;
    fn set_status(&mut self, status: ReplicaSetStatus);
}

impl ReplicaOwner for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const KIND: &'static str = "ReplicaSet";
    const QUEUE: &'static str = "replicaset";
    const COUNTS_TERMINATING: bool = true;

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    fn selector(&self) -> Selector {
        Selector::new(Some(&self.spec.selector))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(status);
    }
}

impl ReplicaOwner for ReplicationController {
    const CONTROLLER: &'static str = "replication-controller";
    const KIND: &'static str = "ReplicationController";
    const QUEUE: &'static str = "replicationmanager";
    const COUNTS_TERMINATING: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn selector(&self) -> Selector {
        match self.spec.as_ref().and_then(|spec| spec.selector.as_ref()) {
            Some(labels) => Selector::of_labels(Some(labels)),
            None => Selector::new(None),
        }
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let condition = |from: ReplicationControllerCondition| ReplicaSetCondition {
            type_: Some(from.type_),
            status: Some(from.status),
            reason: from.reason,
            message: from.message,
            last_transition_time: from.last_transition_time,
        };
        ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|list| list.into_iter().map(condition).collect()),
            terminating_replicas: None,
        }
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        let condition = |from: ReplicaSetCondition| ReplicationControllerCondition {
            type_: from.type_.unwrap_or_default(),
            status: from.status.unwrap_or_default(),
            reason: from.reason,
            message: from.message,
            last_transition_time: from.last_transition_time,
        };
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|list| list.into_iter().map(condition).collect()),
        });
    }
}

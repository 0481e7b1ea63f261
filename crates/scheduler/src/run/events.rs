//! From changes of objects to the events that plugins wait for.

use ferry_client::Change;
use k8s_openapi::api::core::v1::{Node, Pod, PodResourceClaimStatus};

use crate::framework::Events;
use crate::model::PodInfo;

pub(super) fn of_node(change: &Change<Node>) -> Events {
    match change {
        Change::Added(_) => Events::NODE_ADDED,
        Change::Deleted(_) => Events::NODE_GONE,
        Change::Modified { old, new } => {
            let mut events = Events::NONE;
            if old.metadata.labels != new.metadata.labels {
                events = events.and(Events::NODE_LABELS);
            }
            let taints = |node: &Node| node.spec.as_ref().map(|spec| (spec.taints.clone(), spec.unschedulable));
            if taints(old) != taints(new) {
                events = events.and(Events::NODE_TAINTS);
            }
            let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
            if allocatable(old) != allocatable(new) {
                events = events.and(Events::NODE_ALLOCATABLE);
            }
            events
        }
    }
}

pub(super) fn of_placed_pod(before: Option<&PodInfo>, now: &PodInfo) -> Events {
    let Some(before) = before else { return Events::POD_PLACED };
    let mut events = Events::NONE;
    if before.labels != now.labels {
        events = events.and(Events::POD_LABELS);
    }
    let (less, more) = (&now.requests, &before.requests);
    if less.milli_cpu < more.milli_cpu || less.memory < more.memory || less.scalars != more.scalars {
        events = events.and(Events::POD_SHRUNK);
    }
    // A pod that began to end no longer counts for spreading.
    if now.is_terminating && !before.is_terminating {
        events = events.and(Events::POD_LABELS);
    }
    events
}

/// The claims of devices that were made for a pod.
fn claimed(pod: &Pod) -> Option<&Vec<PodResourceClaimStatus>> {
    pod.status.as_ref()?.resource_claim_statuses.as_ref()
}

/// Whether a change of a waiting pod may affect where it can go: most of its status does not.
pub(super) fn matters(change: &Change<Pod>) -> bool {
    match change {
        Change::Modified { old, new } => {
            old.spec != new.spec
                || old.metadata.labels != new.metadata.labels
                || old.metadata.annotations != new.metadata.annotations
                || claimed(old) != claimed(new)
        }
        _ => true,
    }
}

//! What the API server tells, taken into the cache and the queue.

use std::sync::Arc;

use ferry_client::Change;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::time::Instant;

use super::{SchedulingLoop, events};
use crate::framework::{Events, Happening};
use crate::model::PodInfo;

impl SchedulingLoop {
    pub(super) fn namespace_changed(&mut self, change: &Change<Namespace>) {
        let namespace = change.object();
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let gone = matches!(change, Change::Deleted(_));
        let labels = (!gone).then(|| namespace.metadata.labels.clone().unwrap_or_default());
        self.cache.set_namespace(name, labels);
        self.happened(Events::NAMESPACE);
    }

    pub(super) fn node_changed(&mut self, change: &Change<Node>) {
        let node = change.object();
        let name = node.metadata.name.clone().unwrap_or_default();
        let events = events::of_node(change);
        match change {
            Change::Deleted(_) => self.cache.remove_node(&name),
            _ => self.cache.set_node(node.clone()),
        }
        if !events.is_none() {
            let node = self.cache.node(&name);
            self.queue.happen(&Happening { node, ..Happening::of(events) }, Instant::now());
        }
    }

    pub(super) fn claim_changed(&mut self, change: &Change<ResourceClaim>) {
        let happening = Happening { claim: Some(change), ..Happening::of(Events::RESOURCE_CLAIM) };
        self.queue.happen(&happening, Instant::now());
    }

    pub(super) fn pod_changed(&mut self, change: &Change<Pod>) {
        let object = change.object();
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let was_assumed = self.cache.is_assumed(uid);
        if !matches!(change, Change::Deleted(_)) && self.cache.confirm(object) {
            // What was assumed came true, or only the status changed.
            self.queue.remove(uid);
            self.nominations.remove(uid);
            if was_assumed && let Some((pod, _)) = self.cache.placement(uid) {
                let happening = Happening::of_pod(Events::POD_PLACED, pod);
                self.queue.happen(&happening, Instant::now());
            }
            return;
        }
        let pod = Arc::new(PodInfo::new(change.object().clone()));
        let placed = pod.node_name().is_some();
        let counted_before = self.cache.placement(&pod.uid).map(|(pod, _)| pod.clone());
        let now = Instant::now();
        if matches!(change, Change::Deleted(_)) || (placed && pod.has_ended()) {
            let was_counted = self.cache.remove_pod(&pod.uid);
            self.nominations.remove(&pod.uid);
            self.queue.remove(&pod.uid);
            self.verdicts.forget(&pod);
            if was_counted {
                self.queue.happen(&Happening::of_pod(Events::POD_GONE, &pod), now);
            }
        } else if placed {
            self.queue.remove(&pod.uid);
            self.nominations.remove(&pod.uid);
            self.verdicts.forget(&pod);
            self.cache.set_pod(pod.clone());
            let counted_before = counted_before.filter(|_| !was_assumed);
            let events = events::of_placed_pod(counted_before.as_deref(), &pod);
            if !events.is_none() {
                self.queue.happen(&Happening::of_pod(events, &pod), now);
            }
        } else if !self.cache.is_assumed(&pod.uid) || self.queue.contains(&pod.uid) {
            // An assumed pod that the queue no longer knows is bound already: this is older news.
            if let Some(node) = pod.nominated_node()
                && self.nominations.node_of(&pod.uid).is_none()
            {
                // From before a restart, or set by someone else.
                self.nominations.set(pod.clone(), node);
            }
            self.queue.set(pod, events::matters(change), now);
        }
    }
}

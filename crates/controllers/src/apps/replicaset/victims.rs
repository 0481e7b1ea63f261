//! Which pods go first when there are too many.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::common::pod;

const COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(super) fn choose(
    active: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    surplus: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut pods = active.to_vec();
    if surplus < pods.len() {
        let mut on_node: HashMap<String, usize> = HashMap::new();
        for pod in related().iter().filter(|pod| pod::is_active(pod)) {
            *on_node.entry(pod::node(pod).to_owned()).or_default() += 1;
        }
        pods.sort_by(|one, other| order(one, other, &on_node, now));
        pods.truncate(surplus);
    }
    pods
}

/// Less goes first.
fn order(one: &Pod, other: &Pod, on_node: &HashMap<String, usize>, now: Timestamp) -> Ordering {
    let crowd = |pod: &Pod| Reverse(on_node.get(pod::node(pod)).copied().unwrap_or_default());
    (!pod::node(one).is_empty())
        .cmp(&!pod::node(other).is_empty())
        .then_with(|| phase(one).cmp(&phase(other)))
        .then_with(|| pod::is_ready(one).cmp(&pod::is_ready(other)))
        .then_with(|| cost(one).cmp(&cost(other)))
        .then_with(|| crowd(one).cmp(&crowd(other)))
        .then_with(|| age(pod::ready_since(one), now).cmp(&age(pod::ready_since(other), now)))
        .then_with(|| restarts(one).cmp(&restarts(other)))
        .then_with(|| age(created(one), now).cmp(&age(created(other), now)))
        // Of pods of about the same age it is as good as random which goes, so that a scale-down does not empty one zone
        // after the other.
        .then_with(|| one.metadata.uid.cmp(&other.metadata.uid))
}

fn phase(pod: &Pod) -> u8 {
    match pod::phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

fn cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(COST_ANNOTATION));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The most restarts of any container, then of any sidecar; more go first.
fn restarts(pod: &Pod) -> Reverse<(i32, i32)> {
    let (status, most) = (pod.status.as_ref(), pod::most_restarts(pod));
    let is_sidecar = |name: &str| {
        let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
        init.into_iter()
            .flatten()
            .any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    let sidecars = init.into_iter().flatten().filter(|status| is_sidecar(&status.name));
    Reverse((most, sidecars.map(|status| status.restart_count).max().unwrap_or_default()))
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Ages are compared on a logarithmic scale; no time counts as the youngest. Nothing but the rank may decide here: an
/// order that looks closer at some pairs than at others is none, and sorting by it fails.
fn age(since: Option<Timestamp>, now: Timestamp) -> Option<Option<u32>> {
    since.map(|at| u128::try_from(now.duration_since(at).as_nanos()).ok().and_then(u128::checked_ilog2))
}

#[cfg(test)]
mod tests;

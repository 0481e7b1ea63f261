//! What a pod's status says.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;

use super::conditions;

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Counts as a replica.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    conditions::find(pod.status.as_ref()?.conditions.as_ref(), kind)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// The most restarts of any container.
pub(crate) fn most_restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or_default()
}

/// Since when the pod is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let condition = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// Ready for at least `min_ready_seconds`; otherwise how long until then, when the pod is ready at all.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::NotReady;
    }
    if min_ready_seconds <= 0 {
        return Availability::Available;
    }
    let Some(since) = ready_since(pod) else { return Availability::NotReady };
    let needed = Duration::from_secs(u64::from(min_ready_seconds.unsigned_abs()));
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match needed.checked_sub(passed) {
        None | Some(Duration::ZERO) => Availability::Available,
        Some(left) => Availability::After(left),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    NotReady,
    After(Duration),
    Available,
}

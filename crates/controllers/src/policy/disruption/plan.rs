//! The status of a budget, as a function of its pods and of how many there should be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::common::number::{Round, count, scaled};
use crate::common::pod;

/// A pod that should have been disrupted and is still there after this long was not.
const STALE_AFTER: Duration = Duration::from_secs(120);
/// A pod whose eviction was granted and that is still there after this long was not evicted.
const GRANTED_FOR: Duration = Duration::from_secs(120);
const ALLOWED: &str = "DisruptionAllowed";

/// Whether the budget needs to know how many pods there should be, beyond how many there are.
pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let spec = budget.spec.as_ref();
    let percent = matches!(spec.and_then(|spec| spec.min_available.as_ref()), Some(IntOrString::String(_)));
    percent || spec.is_some_and(|spec| spec.max_unavailable.is_some())
}

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) status: Option<PodDisruptionBudgetStatus>,
    /// When a granted eviction will have expired.
    pub(super) again: Option<Duration>,
    /// Pods that were granted an eviction and not evicted.
    pub(super) not_deleted: Vec<String>,
}

/// `scale` is the number of pods there should be, for budgets that need it.
pub(super) fn plan(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], scale: i32, now: Timestamp) -> Plan {
    let old = budget.status.clone().unwrap_or_default();
    let spec = budget.spec.clone().unwrap_or_default();
    let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (scale, (scale - scaled(most, scale, Round::Up)).max(0)),
        (None, Some(IntOrString::Int(least))) => (count(pods.len()), *least),
        (None, Some(least)) => (scale, scaled(least, scale, Round::Up)),
        (None, None) => (count(pods.len()), 0),
    };
    let (granted, again, not_deleted) = still_granted(&old, pods, now);
    let healthy = pods
        .iter()
        .filter(|pod| pod::is_ready(pod) && !pod::is_terminating(pod) && !granted.contains_key(&pod.name_any()));
    let healthy = count(healthy.count());
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut new = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!granted.is_empty()).then_some(granted),
        observed_generation: budget.metadata.generation,
        conditions: old.conditions.clone(),
    };
    let generation = budget.metadata.generation;
    let (state, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set(&mut new, state, reason, "", generation, now);
    let plan_status = (normalised(&old) != new).then_some(new);
    Plan { status: plan_status, again, not_deleted }
}

/// The status when it cannot be known how many pods there should be: nothing may be evicted.
pub(super) fn failed(budget: &PodDisruptionBudget, message: &str, now: Timestamp) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    let mut new = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), ..normalised(&old) };
    set(&mut new, "False", "SyncFailed", message, old.observed_generation, now);
    (normalised(&old) != new).then_some(new)
}

fn set(
    status: &mut PodDisruptionBudgetStatus,
    state: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let list = status.conditions.get_or_insert_default();
    let known = list.iter().position(|condition| condition.type_ == ALLOWED);
    let since =
        known.map(|at| &list[at]).filter(|known| known.status == state).map(|known| known.last_transition_time.clone());
    let condition = Condition {
        type_: ALLOWED.into(),
        status: state.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match known {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

fn normalised(status: &PodDisruptionBudgetStatus) -> PodDisruptionBudgetStatus {
    let number = |field: Option<i32>| Some(field.unwrap_or_default());
    PodDisruptionBudgetStatus {
        current_healthy: number(status.current_healthy),
        desired_healthy: number(status.desired_healthy),
        expected_pods: number(status.expected_pods),
        disruptions_allowed: number(status.disruptions_allowed),
        disrupted_pods: status.disrupted_pods.clone().filter(|pods| !pods.is_empty()),
        ..status.clone()
    }
}

/// How long until a pod that was announced to go, and does not, is no longer taken for one; none when it is not announced.
pub(super) fn stale_in(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let announced = pod::condition(pod, "DisruptionTarget").filter(|condition| condition.status == "True")?;
    if pod::is_terminating(pod) || pod::is_terminal(pod) {
        return None;
    }
    let since = announced.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(STALE_AFTER.saturating_sub(passed))
}

/// Evictions that were granted and whose pods are still there, not going yet, and not overdue.
fn still_granted(
    status: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>, Vec<String>) {
    let (mut granted, mut again, mut overdue) = (BTreeMap::new(), None::<Duration>, Vec::new());
    for (name, since) in status.disrupted_pods.iter().flatten() {
        let there = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name));
        if there.is_none_or(|pod| pod::is_terminating(pod)) {
            continue;
        }
        let passed = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
        match GRANTED_FOR.checked_sub(passed).filter(|left| !left.is_zero()) {
            None => overdue.push(name.clone()),
            Some(left) => {
                granted.insert(name.clone(), since.clone());
                again = Some(again.map_or(left, |again| again.min(left)));
            }
        }
    }
    (granted, again, overdue)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({ "metadata": { "generation": 1 }, "spec": spec })).expect("a budget")
    }

    fn pods(ready: usize, unready: usize) -> Vec<Arc<Pod>> {
        let pod = |at: usize, state: &str| {
            let json = json!({
                "metadata": { "name": format!("p{at}") },
                "status": { "conditions": [{ "type": "Ready", "status": state }] },
            });
            Arc::new(serde_json::from_value(json).expect("a pod"))
        };
        (0..ready).map(|at| pod(at, "True")).chain((ready..ready + unready).map(|at| pod(at, "False"))).collect()
    }

    /// Expected pods, healthy ones needed, healthy now, evictions allowed.
    fn check(spec: Value, ready: usize, unready: usize, scale: i32, numbers: [i32; 4]) {
        let now = Timestamp::from_second(1000).expect("a time");
        let mut budget = budget(spec.clone());
        let pods = pods(ready, unready);
        let status = plan(&budget, &pods, scale, now).status.expect("a change");
        let made = [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed];
        assert_eq!(made, numbers.map(Some), "{spec}");
        budget.status = Some(status);
        assert_eq!(plan(&budget, &pods, scale, now).status, None, "comes to rest");
    }

    #[test]
    fn budgets_count_in_numbers_and_percent() {
        check(json!({ "minAvailable": 2 }), 3, 0, 0, [3, 2, 3, 1]);
        check(json!({ "minAvailable": 2 }), 2, 1, 0, [3, 2, 2, 0]);
        check(json!({ "minAvailable": "50%" }), 3, 0, 5, [5, 3, 3, 0]);
        check(json!({ "maxUnavailable": 1 }), 3, 0, 3, [3, 2, 3, 1]);
        check(json!({ "maxUnavailable": "30%" }), 10, 0, 10, [10, 7, 10, 3]);
        check(json!({ "maxUnavailable": 1 }), 0, 0, 0, [0, 0, 0, 0]);
    }

    #[test]
    fn an_announcement_that_comes_to_nothing_expires() {
        let now = Timestamp::from_second(1000).expect("a time");
        let check = |state: &str, phase: &str, expected: Option<u64>| {
            let pod: Pod = serde_json::from_value(json!({ "status": { "phase": phase, "conditions": [
                { "type": "DisruptionTarget", "status": state, "lastTransitionTime": "1970-01-01T00:15:00Z" },
            ] } }))
            .expect("a pod");
            assert_eq!(stale_in(&pod, now), expected.map(Duration::from_secs), "{state} {phase}");
            assert_eq!(stale_in(&pod, now + Duration::from_secs(60)), expected.map(|_| Duration::ZERO));
        };
        check("True", "Running", Some(20));
        check("False", "Running", None);
        check("True", "Failed", None);
    }

    #[test]
    fn what_failed_was_not_observed() {
        let mut budget = budget(json!({ "maxUnavailable": 1 }));
        budget.metadata.generation = Some(3);
        budget.status = serde_json::from_value(json!({
            "currentHealthy": 4, "desiredHealthy": 2, "disruptionsAllowed": 2, "expectedPods": 4, "observedGeneration": 2,
        }))
        .ok();
        let status = failed(&budget, "no", Timestamp::UNIX_EPOCH).expect("a change");
        assert_eq!((status.disruptions_allowed, status.current_healthy), (Some(0), Some(4)));
        let condition = &status.conditions.as_deref().unwrap_or_default()[0];
        assert_eq!((status.observed_generation, condition.observed_generation), (Some(2), Some(2)));
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "no"));
    }

    #[test]
    fn a_granted_eviction_counts_until_it_expires() {
        let mut budget = budget(json!({ "minAvailable": 1 }));
        budget.status = serde_json::from_value(json!({
            "disruptedPods": { "p0": "1970-01-01T00:15:00Z", "gone": "1970-01-01T00:15:00Z" },
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }))
        .ok();
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let early = plan(&budget, &pods(2, 0), 0, at(910));
        let status = early.status.expect("a change");
        assert_eq!((status.current_healthy, status.disruptions_allowed), (Some(1), Some(0)));
        assert_eq!(early.again, Some(Duration::from_secs(110)));
        let late = plan(&budget, &pods(2, 0), 0, at(1100));
        assert_eq!(late.not_deleted, ["p0"]);
        assert_eq!(late.status.expect("a change").disruptions_allowed, Some(1));
    }
}

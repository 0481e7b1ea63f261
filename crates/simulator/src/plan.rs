//! What happens to a pod next: a pure function of the pod, of how long it has been in its state, and of the timing.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;

use crate::{Timing, annotation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    Wait(Duration),
    /// Containers run.
    Run {
        ready: bool,
    },
    /// Containers ended and begin again.
    Restart,
    /// Containers ended for good.
    End {
        code: i32,
    },
    /// The pod is being deleted: containers were stopped, the object goes.
    Stop,
    /// As Stop, with containers that had ended already.
    Remove,
}

/// For how long a pod has been bound, running and being deleted, as far as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elapsed {
    pub(crate) bound: Duration,
    pub(crate) running: Duration,
    pub(crate) stopping: Duration,
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn step(pod: &Pod, elapsed: Elapsed, timing: &Timing) -> Step {
    if pod.metadata.deletion_timestamp.is_some() {
        return stopping(pod, elapsed, timing);
    }
    if is_terminal(pod) {
        return Step::Nothing;
    }
    let ready_after = match pod.annotations().get(annotation::READY_AFTER).map(String::as_str) {
        Some("never") => None,
        Some(text) => Some(duration(text).unwrap_or(timing.ready)),
        None => Some(timing.ready),
    };
    if phase(pod) != "Running" {
        return match timing.start.checked_sub(elapsed.bound) {
            Some(left) if !left.is_zero() => Step::Wait(left),
            _ => Step::Run { ready: ready_after.is_some_and(|delay| delay.is_zero()) },
        };
    }
    let mut wait = None;
    if let Some(lifetime) = pod.annotations().get(annotation::RUN_FOR).and_then(|text| duration(text)) {
        match lifetime.checked_sub(elapsed.running) {
            Some(left) if !left.is_zero() => wait = Some(left),
            _ => return ended(pod),
        }
    }
    let ready = ready_after.is_some_and(|delay| delay <= elapsed.running);
    if !is_reported(pod, ready) {
        return Step::Run { ready };
    }
    let until_ready = ready_after.and_then(|delay| delay.checked_sub(elapsed.running)).filter(|left| !left.is_zero());
    match (wait, until_ready) {
        (None, None) => Step::Nothing,
        (Some(one), None) | (None, Some(one)) => Step::Wait(one),
        (Some(one), Some(other)) => Step::Wait(one.min(other)),
    }
}

fn stopping(pod: &Pod, elapsed: Elapsed, timing: &Timing) -> Step {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    // Finalizers hold an object that this side is done with.
    if grace == 0 && is_terminal(pod) && pod.metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty()) {
        return Step::Nothing;
    }
    let grace = Duration::from_secs(grace.try_into().unwrap_or_default());
    match timing.stop.min(grace).checked_sub(elapsed.stopping) {
        Some(left) if !left.is_zero() && !is_terminal(pod) => Step::Wait(left),
        _ if is_terminal(pod) => Step::Remove,
        _ => Step::Stop,
    }
}

fn ended(pod: &Pod) -> Step {
    let code = pod.annotations().get(annotation::EXIT_CODE).and_then(|text| text.parse().ok()).unwrap_or_default();
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    match (policy, code) {
        ("Never", _) | ("OnFailure", 0) => Step::End { code },
        _ => Step::Restart,
    }
}

/// Whether the status says what it should of a running pod: anything else is told again, as a kubelet would.
fn is_reported(pod: &Pod, ready: bool) -> bool {
    let Some(status) = &pod.status else { return false };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let images_told = containers.into_iter().all(|container| {
        let told = status.container_statuses.iter().flatten().find(|told| told.name == container.name);
        told.is_some_and(|told| Some(&told.image) == container.image.as_ref() && told.ready == ready)
    });
    images_told
        && status.observed_generation.unwrap_or_default() >= pod.metadata.generation.unwrap_or_default()
        && holds(status, "ContainersReady") == ready
        && holds(status, "Ready") == (ready && gates_hold(pod))
}

pub(crate) fn holds(status: &PodStatus, kind: &str) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Whether all readiness gates are open.
pub(crate) fn gates_hold(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    gates.into_iter().flatten().all(|gate| holds(status, &gate.condition_type))
}

/// Go's durations, and plain seconds: `90`, `90s`, `100ms`, `2m`, `1h30m`.
pub fn duration(text: &str) -> Option<Duration> {
    let seconds = text.parse().ok().filter(|_| text.bytes().all(|digit| digit.is_ascii_digit()));
    seconds.map(Duration::from_secs).or_else(|| ferry_semantics::duration::parse_unsigned(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: Value) -> Pod {
        let mut object = json!({
            "metadata": { "name": "p", "generation": 1, "annotations": {} },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "restartPolicy": "Never" },
        });
        merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    fn running(ready: &str) -> Value {
        json!({ "phase": "Running", "observedGeneration": 1,
            "conditions": [{ "type": "Ready", "status": ready }, { "type": "ContainersReady", "status": ready }],
            "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": ready == "True", "restartCount": 0 }] })
    }

    #[test]
    fn a_pod_walks_through_its_phases() {
        let second = Duration::from_secs(1);
        let timing = Timing { start: second, ready: second, stop: second };
        let at = |bound, running, stopping| Elapsed {
            bound: second * bound,
            running: second * running,
            stopping: second * stopping,
        };
        let run_for = |time: &str, code: &str| json!({ annotation::RUN_FOR: time, annotation::EXIT_CODE: code });
        let deleted = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30 });
        let held = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0, "finalizers": ["a/b"] });
        let cases = [
            ("bound", json!({}), at(0, 0, 0), Step::Wait(second)),
            ("started", json!({}), at(1, 0, 0), Step::Run { ready: false }),
            ("not ready yet", json!({ "status": running("False") }), at(9, 0, 0), Step::Wait(second)),
            ("ready", json!({ "status": running("False") }), at(9, 1, 0), Step::Run { ready: true }),
            ("settled", json!({ "status": running("True") }), at(9, 1, 0), Step::Nothing),
            (
                "changed",
                json!({ "metadata": { "generation": 2 }, "status": running("True") }),
                at(9, 1, 0),
                Step::Run { ready: true },
            ),
            (
                "never ready",
                json!({ "metadata": { "annotations": { annotation::READY_AFTER: "never" } }, "status": running("False") }),
                at(9, 9, 0),
                Step::Nothing,
            ),
            (
                "a job at work",
                json!({ "metadata": { "annotations": run_for("5s", "0") }, "status": running("True") }),
                at(9, 2, 0),
                Step::Wait(second * 3),
            ),
            (
                "a job done",
                json!({ "metadata": { "annotations": run_for("5s", "3") }, "status": running("True") }),
                at(9, 5, 0),
                Step::End { code: 3 },
            ),
            (
                "a server that ends",
                json!({ "metadata": { "annotations": run_for("5s", "0") }, "spec": { "restartPolicy": "Always" }, "status": running("True") }),
                at(9, 5, 0),
                Step::Restart,
            ),
            ("ended", json!({ "status": { "phase": "Failed" } }), at(9, 9, 0), Step::Nothing),
            (
                "being deleted",
                json!({ "metadata": deleted, "status": running("True") }),
                at(9, 9, 0),
                Step::Wait(second),
            ),
            ("stopped", json!({ "metadata": deleted, "status": running("True") }), at(9, 9, 1), Step::Stop),
            (
                "deleted after its end",
                json!({ "metadata": deleted, "status": { "phase": "Failed" } }),
                at(9, 9, 0),
                Step::Remove,
            ),
            (
                "held by a finalizer",
                json!({ "metadata": held, "status": { "phase": "Failed" } }),
                at(9, 9, 9),
                Step::Nothing,
            ),
        ];
        for (what, change, elapsed, expected) in cases {
            assert_eq!(step(&pod(change), elapsed, &timing), expected, "{what}");
        }
    }

    #[test]
    fn durations_are_read() {
        let read: Vec<_> = ["5", "5s", "100ms", "2m", "1h"].map(|text| duration(text).unwrap().as_millis()).to_vec();
        assert_eq!(read, [5000, 5000, 100, 120_000, 3_600_000]);
        for bad in ["", "s", "1d", "-1s", "99999999999999999999", "18446744073709551615h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}

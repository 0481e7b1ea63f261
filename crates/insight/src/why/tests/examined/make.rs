//! Objects as a cluster holds them, in a few words.

use serde_json::{Value, json};

use super::merge;

/// An object that was made an hour ago.
pub(super) fn made(kind: &str, name: &str, parts: Value) -> Value {
    let mut item = json!({
        "kind": kind,
        "metadata": { "name": name, "creationTimestamp": "2026-01-01T11:00:00Z", "generation": 1 },
    });
    merge(&mut item, &parts);
    item
}

/// A pod `p` on node `n`, with one container.
pub(super) fn pod(parts: Value) -> Value {
    let mut item = super::super::pod(
        json!({ "metadata": { "creationTimestamp": "2026-01-01T11:00:00Z" }, "status": { "conditions": [
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z" }] } }),
    );
    merge(&mut item, &parts);
    item
}

/// The same, and it is ready.
pub(super) fn serving(parts: Value) -> Value {
    let state = json!({ "running": { "startedAt": "2026-01-01T11:00:05Z" } });
    let mut item = pod(json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:10Z" }],
        "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 0, "state": state }],
    } }));
    merge(&mut item, &parts);
    item
}

/// A pod without a node, as the scheduler leaves it.
pub(super) fn unscheduled(message: &str, parts: Value) -> Value {
    let mut item = pod(json!({ "status": { "phase": "Pending", "podIP": null, "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }] } }));
    item["spec"].as_object_mut().unwrap().remove("nodeName");
    merge(&mut item, &parts);
    item
}

/// A pod whose container has ended so, for the fifth time.
pub(super) fn crashing(ended: Value, parts: Value) -> Value {
    let mut last = json!({
        "exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T11:57:00Z", "finishedAt": "2026-01-01T11:57:20Z",
    });
    merge(&mut last, &ended);
    let mut item = pod(json!({ "status": { "containerStatuses": [{
        "name": "c", "image": "img", "ready": false, "restartCount": 5, "lastState": { "terminated": last },
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting failed container=c" } },
    }] } }));
    merge(&mut item, &parts);
    item
}

/// A pod whose container waits.
pub(super) fn waiting(reason: &str, message: &str, parts: Value) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    let mut item = pod(json!({ "status": { "phase": "Pending", "podIP": null,
        "containerStatuses": [{ "name": "c", "image": "img", "ready": false, "restartCount": 0, "state": state }] } }));
    merge(&mut item, &parts);
    item
}

/// A Warning about `kind/name`, of a minute ago.
pub(super) fn warned(of: &str, reason: &str, message: &str) -> Value {
    let (kind, name) = of.split_once('/').unwrap();
    json!({
        "kind": "Event", "metadata": { "name": format!("{name}.{reason}") }, "type": "Warning", "reason": reason,
        "message": message, "count": 7, "firstTimestamp": "2026-01-01T11:05:00Z", "lastTimestamp": "2026-01-01T11:59:00Z",
        "involvedObject": { "kind": kind, "name": name, "namespace": "d" },
    })
}

/// What a container wrote: `p/c`.
pub(super) fn log(of: &str, text: &str) -> Value {
    json!({ "kind": "Log", "metadata": { "name": of }, "text": text })
}

/// The controller that something belongs to.
pub(super) fn owner(version: &str, kind: &str, name: &str) -> Value {
    let uid = format!("{}-{name}", kind.to_lowercase());
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true }] } })
}

pub(super) fn with(mut item: Value, parts: &Value) -> Value {
    merge(&mut item, parts);
    item
}

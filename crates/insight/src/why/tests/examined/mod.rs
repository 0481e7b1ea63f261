//! Situations as a cluster holds them, read through an API as a real one is: what users meet every day, and what they meet
//! rarely. The objects are complete as far as anything is found in them.

mod again;
mod cluster;
mod hints;
mod network;
mod others;
mod pods;
mod scheduled;
mod storage;
mod well;
mod workloads;

use serde_json::{Value, json};

use super::super::{Reason, Verdict, findings, render, verdict};
use super::api::seen;
use super::{merge, node};

/// What is to be said first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Stuck(Reason),
    Way(Reason),
    /// Nothing but a note.
    Note(Reason),
    Well,
}
use Said::{Note, Stuck, Way, Well};

/// What it is about, the object, all that there is, and the words that are shown; those with `!` are not.
type Case<'a> = (&'a str, &'a str, Value, Said, &'a [&'a str]);

/// All that went wrong at once: what is false, and what stops too early.
fn examine(cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (what, object, objects, said, words) in cases {
        let mut objects = objects.clone();
        let all = objects.as_array_mut().unwrap();
        if !all.iter().any(|one| one["kind"] == "Node") {
            all.push(node("n", "True"));
        }
        let world = seen(object, &objects);
        let found = findings(&world);
        let shown = render(&world, &found);
        let told = found.first().map(|first| (verdict(&world, &found), first.reason));
        let is_right = match (*said, told) {
            (Well, None) => true,
            (Stuck(reason), Some((Verdict::Stuck, told))) => reason == told,
            (Way(reason), Some((Verdict::OnItsWay, told))) => reason == told,
            (Note(reason), Some((Verdict::Fine, told))) => reason == told,
            _ => false,
        };
        let is_false = |word: &&&str| word.strip_prefix('!').is_some_and(|word| shown.contains(word));
        let is_missing = |word: &&&str| !word.starts_with('!') && !shown.contains(**word);
        if !is_right {
            wrong.push(format!("false: {what}: not {said:?}: {shown}"));
        } else if let Some(word) = words.iter().find(is_false) {
            wrong.push(format!("false: {what}: {word:?} is in {shown}"));
        } else if let Some(word) = words.iter().find(is_missing) {
            wrong.push(format!("early: {what}: {word:?} is not in {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// An object that was made an hour ago.
fn made(kind: &str, name: &str, parts: Value) -> Value {
    let mut item = json!({
        "kind": kind,
        "metadata": { "name": name, "creationTimestamp": "2026-01-01T11:00:00Z", "generation": 1 },
    });
    merge(&mut item, &parts);
    item
}

/// A pod `p` on node `n`, with one container.
fn pod(parts: Value) -> Value {
    let mut item =
        super::pod(json!({ "metadata": { "creationTimestamp": "2026-01-01T11:00:00Z" }, "status": { "conditions": [
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z" }] } }));
    merge(&mut item, &parts);
    item
}

/// The same, and it is ready.
fn serving(parts: Value) -> Value {
    let state = json!({ "running": { "startedAt": "2026-01-01T11:00:05Z" } });
    let mut item = pod(json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:10Z" }],
        "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 0, "state": state }],
    } }));
    merge(&mut item, &parts);
    item
}

/// A pod without a node, as the scheduler leaves it.
fn unscheduled(message: &str, parts: Value) -> Value {
    let mut item = pod(json!({ "status": { "phase": "Pending", "podIP": null, "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }] } }));
    item["spec"].as_object_mut().unwrap().remove("nodeName");
    merge(&mut item, &parts);
    item
}

/// A pod whose container has ended so, for the fifth time.
fn crashing(ended: Value, parts: Value) -> Value {
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
fn waiting(reason: &str, message: &str, parts: Value) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    let mut item = pod(json!({ "status": { "phase": "Pending", "podIP": null,
        "containerStatuses": [{ "name": "c", "image": "img", "ready": false, "restartCount": 0, "state": state }] } }));
    merge(&mut item, &parts);
    item
}

/// A Warning about `kind/name`, of a minute ago.
fn warned(of: &str, reason: &str, message: &str) -> Value {
    let (kind, name) = of.split_once('/').unwrap();
    json!({
        "kind": "Event", "metadata": { "name": format!("{name}.{reason}") }, "type": "Warning", "reason": reason,
        "message": message, "count": 7, "firstTimestamp": "2026-01-01T11:05:00Z", "lastTimestamp": "2026-01-01T11:59:00Z",
        "involvedObject": { "kind": kind, "name": name, "namespace": "d" },
    })
}

/// What a container wrote: `p/c`.
fn log(of: &str, text: &str) -> Value {
    json!({ "kind": "Log", "metadata": { "name": of }, "text": text })
}

/// The controller that something belongs to.
fn owner(version: &str, kind: &str, name: &str) -> Value {
    let uid = format!("{}-{name}", kind.to_lowercase());
    json!({ "metadata": { "ownerReferences": [
        { "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true }] } })
}

fn with(mut item: Value, parts: &Value) -> Value {
    merge(&mut item, parts);
    item
}

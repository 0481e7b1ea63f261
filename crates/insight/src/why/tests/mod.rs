//! Each cause by a table: objects in, the hop and the words of the first finding out.

mod access;
mod api;
mod beyond;
mod budgets;
mod containers;
mod deletion;
mod documents;
mod examined;
mod found;
mod gateways;
mod healthy;
mod images;
mod intended;
mod invented;
mod invented_network;
mod jobs;
mod looked_up;
mod many;
mod met;
mod network;
mod others;
mod pods;
mod refusals;
mod rollouts;
mod scheduling;
mod servers;
mod slices;
mod storage;
mod tried;
mod truth;
mod unseen;
mod workloads;

use serde_json::{Value, json};

use super::{Hop, Reason, findings, held, render, to_json};
use crate::world::World;

const NOW: &str = "2026-01-01T12:00:00Z";

fn world(target: Value, lists: &[(&str, Value)]) -> World {
    let mut world = World::new(target, ferry_meta::time::parse(NOW).unwrap());
    for (plural, items) in lists {
        world.put(plural, items.as_array().cloned().unwrap_or_default());
    }
    world
}

/// Rows with these words are of what is as somebody wants it: there are notes, and nothing else.
const FINE: &str = "nothing holds it up";

/// What it is about, what there is, and what is to be said of it.
type Row<'a> = (&'a str, World, Option<(Hop, &'a [&'a str])>);

/// `want`: the hop, and texts that must all be in what is shown; None where nothing is wrong.
fn check(what: &str, world: &World, want: Option<(Hop, &[&str])>) {
    let found = findings(world);
    let shown = render(world, &found);
    match want {
        None => assert_eq!(found, [], "{what}: {shown}"),
        Some((hop, texts)) => {
            assert_eq!(found.first().map(|finding| finding.hop), Some(hop), "{what}: {shown}");
            for text in texts {
                assert!(shown.contains(text), "{what}: {text:?} is not in {shown}");
            }
            assert_eq!(to_json(world, &found)["fine"], texts.contains(&FINE), "{what}: {shown}");
        }
    }
}

/// What it is about, what there is, the cause, and texts that must be in what is shown.
type Situation<'a> = (&'a str, World, Reason, &'a [&'a str]);

/// Every row, and all that went wrong at once.
fn check_all(rows: &[Situation<'_>]) {
    let mut wrong = Vec::new();
    for (what, world, reason, texts) in rows {
        let found = findings(world);
        let shown = render(world, &found);
        if found.first().map(|finding| finding.reason) != Some(*reason) {
            wrong.push(format!("{what}: not {reason:?}: {shown}"));
        }
        if held(&found).is_none() != texts.contains(&FINE) {
            wrong.push(format!("{what}: well or not: {shown}"));
        }
        for text in texts.iter().filter(|text| !shown.contains(**text)) {
            wrong.push(format!("{what}: {text:?} is not in {shown}"));
        }
        // Commands that are to be copied have no placeholder for a name that is known.
        if shown.contains("NODE") || shown.contains("NAMESPACE") {
            wrong.push(format!("{what}: a placeholder in {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A pod with these parts put over a plain one that runs on node `n`.
fn pod(parts: Value) -> Value {
    let mut pod = json!({
        "kind": "Pod", "metadata": {
            "name": "p", "namespace": "d", "uid": "p-uid", "labels": { "app": "web" },
            "creationTimestamp": "2026-01-01T11:50:00Z",
        },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img" }] },
        "status": { "phase": "Running", "podIP": "10.0.0.1" },
    });
    merge(&mut pod, &parts);
    pod
}

fn merge(into: &mut Value, parts: &Value) {
    match (into, parts) {
        (Value::Object(into), Value::Object(parts)) => {
            for (key, part) in parts {
                merge(into.entry(key.clone()).or_insert(Value::Null), part);
            }
        }
        (into, parts) => *into = parts.clone(),
    }
}

fn conditions(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(name, status)| json!({ "type": name, "status": status })).collect()
}

fn ready_pod() -> Value {
    pod(json!({ "status": { "conditions": conditions(&[("Ready", "True")]) } }))
}

fn waiting(reason: &str, message: &str) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    pod(
        json!({ "status": { "phase": "Pending", "containerStatuses": [{ "name": "c", "image": "img", "state": state, "ready": false }] } }),
    )
}

fn event(of: &Value, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Event", "reason": reason, "message": message, "type": "Warning", "lastTimestamp": "2026-01-01T11:59:00Z",
        "involvedObject": { "kind": of["kind"], "name": of["metadata"]["name"], "uid": of["metadata"]["uid"] },
    })
}

fn node(name: &str, ready: &str) -> Value {
    json!({
        "kind": "Node", "metadata": { "name": name, "uid": name },
        "status": {
            "allocatable": { "cpu": "2", "memory": "4Gi" },
            "conditions": [{ "type": "Ready", "status": ready, "reason": "Why", "lastTransitionTime": "2026-01-01T11:55:00Z" }],
        },
    })
}

fn object(kind: &str, parts: Value) -> Value {
    let mut target = json!({ "kind": kind, "metadata": { "name": "x", "namespace": "d", "uid": "x", "generation": 1, "creationTimestamp": "2026-01-01T11:00:00Z" }, "status": { "observedGeneration": 1 } });
    merge(&mut target, &parts);
    target
}

fn one(kind: &str, parts: Value, lists: &[(&str, Value)]) -> World {
    world(object(kind, parts), lists)
}

fn owned(kind: &str, parts: Value, pods: &[Value], lists: &[(&str, Value)]) -> World {
    let mut base = json!({ "spec": { "replicas": 1 }, "status": { "replicas": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1 } });
    merge(&mut base, &parts);
    let pods: Value = pods.iter().enumerate().map(|(index, pod)| {
        let mut pod = pod.clone();
        merge(&mut pod, &json!({ "metadata": { "name": format!("x-{index}"), "uid": format!("p{index}"), "ownerReferences": [{ "uid": "x", "controller": true, "kind": kind, "name": "x" }] } }));
        pod
    }).collect();
    let mut world = one(kind, base, &[("pods", pods), ("nodes", json!([node("n", "True")]))]);
    for (plural, items) in lists {
        world.put(plural, items.as_array().cloned().unwrap_or_default());
    }
    world
}

//! Each cause by a table: objects in, the hop and the words of the first finding out.

mod others;
mod pods;
mod workloads;

use serde_json::{Value, json};

use super::{Hop, findings, render, to_json};
use crate::world::World;

const NOW: &str = "2026-01-01T12:00:00Z";

fn world(target: Value, lists: &[(&str, Value)]) -> World {
    let mut world = World::new(target, ferry_meta::time::parse(NOW).unwrap());
    for (plural, items) in lists {
        world.put(plural, items.as_array().cloned().unwrap_or_default());
    }
    world
}

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
            assert_eq!(to_json(world, &found)["fine"], false);
        }
    }
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

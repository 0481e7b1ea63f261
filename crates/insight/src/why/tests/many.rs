//! Large namespaces: what is said of them is short, and found in a moment.

use serde_json::{Value, json};

use super::*;

/// A Deployment of so many pods that all end, each with two Events of its own.
fn deployment(count: usize, code: impl Fn(usize) -> usize) -> World {
    let own = |kind: &str, uid: &str| json!([{ "uid": uid, "controller": true, "kind": kind, "name": uid }]);
    let pods: Vec<Value> = (0..count)
        .map(|place| {
            let ended = json!({ "exitCode": code(place), "reason": "Error", "startedAt": "2026-01-01T11:57:00Z", "finishedAt": "2026-01-01T11:57:20Z" });
            pod(json!({
                "metadata": { "name": format!("x-{place}"), "uid": format!("u{place}"), "ownerReferences": own("ReplicaSet", "set") },
                "status": { "containerStatuses": [{
                    "name": "c", "ready": false, "restartCount": 5, "lastState": { "terminated": ended },
                    "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                }] },
            }))
        })
        .collect();
    let events: Vec<Value> = pods
        .iter()
        .flat_map(|pod| [event(pod, "BackOff", "Back-off restarting failed container"), event(pod, "Unhealthy", "no")])
        .collect();
    let set = object(
        "ReplicaSet",
        json!({ "metadata": { "name": "x", "uid": "set", "ownerReferences": own("Deployment", "x") }, "spec": { "replicas": count } }),
    );
    one(
        "Deployment",
        json!({ "spec": { "replicas": count }, "status": { "replicas": count, "unavailableReplicas": count } }),
        &[
            ("pods", pods.into()),
            ("events", events.into()),
            ("replicasets", json!([set])),
            ("nodes", json!([node("n", "True")])),
        ],
    )
}

#[test]
fn of_pods_that_look_alike_some_are_examined() {
    let world = deployment(5_000, |_| 1);
    let began = std::time::Instant::now();
    let shown = render(&world, &findings(&world));
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert!(shown.lines().count() < 15, "{shown}");
    assert!(shown.contains("pod/x-0 and 49 more like it"), "{shown}");
    assert!(shown.contains("4950 more pods that look like those were not examined one by one"), "{shown}");
}

#[test]
fn of_many_causes_the_first_are_shown() {
    let world = deployment(500, |place| place % 250 + 1);
    let found = findings(&world);
    assert_eq!(found.len(), 6);
    let shown = render(&world, &found);
    assert!(shown.lines().count() < 60, "{shown}");
    assert!(shown.contains("44 more causes not shown"), "{shown}");
}

#[test]
fn of_many_nodes_the_first_are_named() {
    let nodes: Vec<Value> = (0..3_000)
        .map(|place| {
            let mut node = node(&format!("n{place}"), "True");
            merge(
                &mut node,
                &json!({ "spec": { "taints": [{ "key": format!("team-{place}"), "effect": "NoSchedule" }] } }),
            );
            node
        })
        .collect();
    let mut waits = pod(json!({ "status": { "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3000 nodes are available: 3000 node(s) had untolerated taints.",
    }] } }));
    waits["spec"].as_object_mut().unwrap().remove("nodeName");
    let world = world(waits, &[("nodes", nodes.into()), ("pods of all namespaces", json!([]))]);
    let shown = render(&world, &findings(&world));
    assert!(shown.len() < 4_000, "{} {shown}", shown.len());
}

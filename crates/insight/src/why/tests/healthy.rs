//! What is well is left alone.

use serde_json::{Value, json};

use super::{conditions, event, findings, merge, node, pod, ready_pod, render, world};
use crate::world::World;

fn of(target: Value, lists: &[(&str, Value)]) -> World {
    world(target, lists)
}

#[test]
fn healthy_objects_are_left_alone() {
    let nodes = ("nodes", json!([node("n", "True")]));
    let object = |kind: &str, parts: Value| {
        let mut target = json!({ "kind": kind, "metadata": { "name": "x", "namespace": "d", "uid": "x", "creationTimestamp": "2026-01-01T11:59:00Z" } });
        merge(&mut target, &parts);
        target
    };
    // It was restarted long ago, and has run for much longer since.
    let ended = json!({ "terminated": { "exitCode": 1, "startedAt": "2026-01-01T11:00:00Z", "finishedAt": "2026-01-01T11:01:00Z" } });
    let recovered = pod(
        json!({ "status": { "conditions": conditions(&[("Ready", "True")]), "containerStatuses": [{ "name": "c", "ready": true, "restartCount": 5, "state": { "running": { "startedAt": "2026-01-01T11:10:00Z" } }, "lastState": ended }] } }),
    );
    let old = event(&ready_pod(), "Unhealthy", "Readiness probe failed: connection refused");
    let slice = json!({ "metadata": { "labels": { "kubernetes.io/service-name": "x" } }, "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }] });
    let service = |spec: Value| {
        of(
            object("Service", json!({ "spec": spec })),
            &[("pods", json!([ready_pod()])), ("endpointslices", json!([slice])), nodes.clone()],
        )
    };
    let class = json!([{ "metadata": { "name": "nginx" }, "spec": { "controller": "k8s.io/ingress-nginx" } }]);
    let rules = json!([{ "host": "a", "http": { "paths": [{ "path": "/", "backend": { "service": { "name": "x", "port": { "number": 80 } } } }] } }]);
    let backend = json!([{ "kind": "Service", "metadata": { "name": "x", "namespace": "d" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }]);
    let ingress = object(
        "Ingress",
        json!({ "spec": { "ingressClassName": "nginx", "rules": rules }, "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }] } } }),
    );
    let allow = json!([{ "metadata": { "name": "allow" }, "spec": { "podSelector": {}, "ingress": [{}] } }, { "metadata": { "name": "deny" }, "spec": { "podSelector": {} } }]);
    let set = |kind: &str, parts: Value| {
        let mut target = object(
            kind,
            json!({ "metadata": { "generation": 1 }, "spec": { "replicas": 1, "selector": {} }, "status": { "observedGeneration": 1, "replicas": 1, "availableReplicas": 1, "updatedReplicas": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberAvailable": 1 } }),
        );
        merge(&mut target, &parts);
        let mut own = ready_pod();
        merge(
            &mut own,
            &json!({ "metadata": { "name": "x-0", "ownerReferences": [{ "uid": "x", "controller": true }] } }),
        );
        of(
            target,
            &[
                ("pods", json!([own])),
                nodes.clone(),
                ("services", json!([])),
                ("endpointslices", json!([])),
                ("replicasets", json!([])),
            ],
        )
    };
    let owned_by = json!({ "metadata": { "ownerReferences": [{ "uid": "dep", "controller": true, "kind": "Deployment", "name": "w" }] }, "spec": { "replicas": 0 } });
    let rows: Vec<(&str, World)> = vec![
        ("pod", of(ready_pod(), &[nodes.clone(), ("events", json!([old]))])),
        ("pod that found its feet", of(recovered, std::slice::from_ref(&nodes))),
        ("pod that is done", of(pod(json!({ "status": { "phase": "Succeeded" } })), std::slice::from_ref(&nodes))),
        ("pod with a policy that lets all in", of(ready_pod(), &[nodes.clone(), ("networkpolicies", allow)])),
        ("stateful set", set("StatefulSet", json!({}))),
        ("daemon set", set("DaemonSet", json!({}))),
        ("replica set", set("ReplicaSet", json!({}))),
        ("left behind", set("ReplicaSet", owned_by)),
        ("service", service(json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }] }))),
        ("headless", service(json!({ "clusterIP": "None", "selector": { "app": "web" } }))),
        (
            "external name",
            of(object("Service", json!({ "spec": { "type": "ExternalName", "externalName": "db.example.com" } })), &[]),
        ),
        (
            "ingress",
            of(
                ingress,
                &[
                    ("ingressclasses", class),
                    ("services", backend),
                    ("pods", json!([ready_pod()])),
                    ("endpointslices", json!([slice])),
                ],
            ),
        ),
        ("bound claim", of(object("PersistentVolumeClaim", json!({ "status": { "phase": "Bound" } })), &[])),
        ("bound volume", of(object("PersistentVolume", json!({ "status": { "phase": "Bound" } })), &[])),
        ("free volume", of(object("PersistentVolume", json!({ "status": { "phase": "Available" } })), &[])),
        ("node", of(node("n", "True"), &[])),
        ("job", of(object("Job", json!({ "status": { "conditions": conditions(&[("Complete", "True")]) } })), &[])),
        (
            "cron job whose time has not come",
            of(object("CronJob", json!({ "spec": { "schedule": "0 0 * * *" } })), &[("jobs", json!([]))]),
        ),
        (
            "quota with room",
            of(object("ResourceQuota", json!({ "status": { "hard": { "pods": "5" }, "used": { "pods": "2" } } })), &[]),
        ),
        (
            "autoscaler",
            of(
                object(
                    "HorizontalPodAutoscaler",
                    json!({ "status": { "conditions": conditions(&[("AbleToScale", "True"), ("ScalingActive", "True")]) } }),
                ),
                &[],
            ),
        ),
        ("budget", of(object("PodDisruptionBudget", json!({ "status": { "disruptionsAllowed": 1 } })), &[])),
        ("namespace", of(object("Namespace", json!({ "status": { "phase": "Active" } })), &[])),
        ("config map", of(object("ConfigMap", json!({})), &[])),
        (
            "custom resource",
            of(object("Widget", json!({ "status": { "conditions": conditions(&[("Ready", "True")]) } })), &[]),
        ),
        ("custom resource without status", of(object("Widget", json!({})), &[])),
        (
            "policy",
            of(
                object("NetworkPolicy", json!({ "spec": { "podSelector": { "matchLabels": { "app": "web" } } } })),
                &[("pods", json!([ready_pod()]))],
            ),
        ),
    ];
    let mut wrong = Vec::new();
    for (what, world) in &rows {
        let found = findings(world);
        if !found.is_empty() {
            wrong.push(format!("{what}: {}", render(world, &found)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

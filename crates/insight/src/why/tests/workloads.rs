//! Workloads and Jobs.

use serde_json::{Value, json};

use super::{Hop, Row, World, check, merge, node, ready_pod, waiting, world};

/// A workload with one ReplicaSet where it is a Deployment, and pods of it.
fn workload(kind: &str, parts: Value, pods: &[Value]) -> World {
    let mut target = json!({
        "kind": kind, "metadata": { "name": "w", "namespace": "d", "uid": "w", "generation": 1 },
        "spec": { "replicas": 1 }, "status": { "observedGeneration": 1, "replicas": 1 },
    });
    merge(&mut target, &parts);
    let owner = |uid: &str| json!([{ "uid": uid, "controller": true }]);
    let set = json!({ "kind": "ReplicaSet", "metadata": { "name": "w-1", "uid": "w-1", "ownerReferences": owner("w") }, "spec": { "replicas": 1 }, "status": { "replicas": 1 } });
    let of = if kind == "Deployment" { "w-1" } else { "w" };
    let pods = pods.iter().enumerate().map(|(index, pod)| {
        let mut pod = pod.clone();
        merge(&mut pod, &json!({ "metadata": { "name": format!("w-{index}"), "uid": format!("p{index}"), "ownerReferences": owner(of) } }));
        pod
    });
    let nodes = json!([node("n", "True")]);
    world(target, &[("pods", pods.collect()), ("replicasets", json!([set])), ("nodes", nodes)])
}

#[test]
fn workloads() {
    let failure = |message: &str| json!({ "status": { "conditions": [{ "type": "ReplicaFailure", "status": "True", "message": message }] } });
    let late = json!({ "status": { "conditions": [{ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out" }] } });
    let sick = waiting("ErrImagePull", "img: not found");
    let none = json!({});
    let rows: Vec<Row<'_>> = vec![
        ("fine", workload("Deployment", none.clone(), &[ready_pod()]), None),
        (
            "none wanted",
            workload("Deployment", json!({ "spec": { "replicas": 0 } }), &[]),
            Some((Hop::Controller, &["nothing holds it up", "scaled to zero"])),
        ),
        (
            "unseen",
            workload("Deployment", json!({ "metadata": { "generation": 2 } }), &[]),
            Some((Hop::Controller, &["has acted on generation 1"])),
        ),
        (
            "unseen for long",
            workload(
                "Deployment",
                json!({ "metadata": { "generation": 2, "managedFields": [{ "time": "2026-01-01T11:00:00Z" }] } }),
                &[],
            ),
            Some((Hop::Controller, &["it is stuck", "see that the controllers run"])),
        ),
        (
            "paused",
            workload("Deployment", json!({ "spec": { "paused": true } }), &[]),
            Some((Hop::Controller, &["nothing holds it up", "paused", "kubectl rollout resume -n d deployment/w"])),
        ),
        (
            "quota",
            workload("ReplicaSet", failure("pods \"w\" is forbidden: exceeded quota: q"), &[]),
            Some((
                Hop::Admission,
                &["\"q\" of namespace d has no room for another one", "kubectl edit -n d resourcequota/q"],
            )),
        ),
        (
            "security",
            workload("Deployment", failure("violates PodSecurity \"restricted:latest\""), &[]),
            Some((Hop::Admission, &["pod-security.kubernetes.io/enforce"])),
        ),
        (
            "webhook",
            workload("StatefulSet", failure("admission webhook \"x\" denied the request"), &[]),
            Some((Hop::Admission, &["admission webhook"])),
        ),
        (
            "pods alike",
            workload("Deployment", json!({ "spec": { "replicas": 3 } }), &[sick.clone(), sick.clone(), ready_pod()]),
            Some((Hop::Kubelet, &["pod/w-0 and 1 more like it", "no such image"])),
        ),
        (
            "deadline",
            workload("Deployment", late.clone(), std::slice::from_ref(&sick)),
            Some((Hop::Kubelet, &["ProgressDeadlineExceeded: timed out"])),
        ),
        (
            "deadline alone",
            workload("Deployment", late, &[]),
            Some((Hop::Controller, &["no progress within its deadline"])),
        ),
        (
            "missing",
            workload("StatefulSet", json!({ "spec": { "replicas": 2 } }), &[ready_pod()]),
            Some((Hop::Controller, &["1 of 2 pods are ready"])),
        ),
        (
            "no node",
            workload("DaemonSet", json!({ "status": { "desiredNumberScheduled": 0 } }), &[]),
            Some((Hop::Controller, &["the only node is not meant for it"])),
        ),
        (
            "held",
            workload(
                "Deployment",
                json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["foregroundDeletion", "example.com/x"] } }),
                &[],
            ),
            Some((
                Hop::Deletion,
                &["foregroundDeletion, example.com/x since 1 h 0 min", "the controller that set example.com/x"],
            )),
        ),
        (
            "job done",
            workload("Job", json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } }), &[]),
            None,
        ),
        (
            "job failed",
            workload(
                "Job",
                json!({ "spec": { "backoffLimit": 2 }, "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often" }] } }),
                &[sick],
            ),
            Some((Hop::Controller, &["backoffLimit=2", "too often", "pod/w-0: the image img"])),
        ),
        (
            "job policy",
            workload(
                "Job",
                json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "PodFailurePolicy" }] } }),
                &[],
            ),
            Some((Hop::Controller, &["podFailurePolicy"])),
        ),
        (
            "job suspended",
            workload("Job", json!({ "spec": { "suspend": true } }), &[]),
            Some((Hop::Controller, &["nothing holds it up", "suspended"])),
        ),
        (
            "job at work",
            workload("Job", json!({ "status": { "active": 1 } }), &[ready_pod()]),
            Some((Hop::Controller, &["on its way", "0 of 1 are done, 1 at work"])),
        ),
        (
            "cron suspended",
            workload("CronJob", json!({ "spec": { "suspend": true } }), &[]),
            Some((Hop::Controller, &["nothing holds it up", "suspended"])),
        ),
        ("cron waits", workload("CronJob", json!({ "spec": { "schedule": "0 0 * * *" } }), &[]), None),
    ];
    for (what, world, want) in &rows {
        check(what, world, *want);
    }
}

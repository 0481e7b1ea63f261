//! What is as somebody wants it, what is on its way, and what is long over: nothing of it is stuck.

use serde_json::{Value, json};

use super::super::Reason;
use super::{
    FINE, Situation, check_all, conditions, event, findings, held, merge, node, one, owned, pod, ready_pod, world,
};
use crate::gather::{ALL_BUDGETS, ALL_CLAIMS, ALL_PODS};
use crate::world::World;

const WAY: &str = "it is on its way";

/// NOW is 12:00:00.
const A_MOMENT_AGO: &str = "2026-01-01T11:59:50Z";

fn made(parts: Value) -> Value {
    let mut parts = parts;
    merge(&mut parts, &json!({ "metadata": { "creationTimestamp": A_MOMENT_AGO } }));
    parts
}

fn slices(service: &str) -> (&'static str, Value) {
    let of = json!({ "labels": { "kubernetes.io/service-name": service }, "namespace": "d" });
    let endpoint = json!({ "addresses": ["10.0.0.1"], "conditions": { "ready": true } });
    ("endpointslices", json!([{ "metadata": of, "endpoints": [endpoint] }]))
}

#[test]
fn what_is_wanted_is_a_note() {
    let nodes = ("nodes", json!([node("n", "True")]));
    let policy = |spec: Value| ("networkpolicies", json!([{ "metadata": { "name": "deny" }, "spec": spec }]));
    let egress = json!({ "podSelector": {}, "policyTypes": ["Egress"] });
    let paused_and_sick = super::waiting("ErrImagePull", "img: not found");
    let disabled = json!({ "status": { "conditions": [{ "type": "ScalingActive", "status": "False", "reason": "ScalingDisabled" }] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "no egress",
            world(ready_pod(), &[nodes.clone(), policy(egress)]),
            Reason::PoliciesSelect,
            &[FINE, "it may open no connection, except to its own node", "note", "to change"],
        ),
        (
            "policy before the pods",
            one(
                "NetworkPolicy",
                json!({ "spec": { "podSelector": { "matchLabels": { "a": "b" } } } }),
                &[("pods", json!([]))],
            ),
            Reason::PolicySelectsNothing,
            &[FINE, "there are no pods"],
        ),
        (
            "budget before the pods",
            one(
                "PodDisruptionBudget",
                json!({ "spec": { "selector": { "matchLabels": { "a": "b" } } } }),
                &[("pods", json!([]))],
            ),
            Reason::BudgetSelectsNothing,
            &[FINE],
        ),
        (
            "autoscaler off",
            one("HorizontalPodAutoscaler", disabled, &[]),
            Reason::HpaTargetZero,
            &[FINE, "kubectl scale"],
        ),
        (
            "kept for a claim",
            one(
                "PersistentVolume",
                json!({ "spec": { "claimRef": { "name": "c", "namespace": "d" } }, "status": { "phase": "Available" } }),
                &[(ALL_CLAIMS, json!([]))],
            ),
            Reason::NoVolume,
            &[FINE, "kept for the claim d/c"],
        ),
        (
            "not to be kept",
            one(
                "PersistentVolume",
                json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" }, "status": { "phase": "Released" } }),
                &[],
            ),
            Reason::VolumeReleased,
            &["it is stuck", "nobody has deleted it yet"],
        ),
        // The note does not hide what is wrong beside it.
        (
            "paused and sick",
            owned("ReplicaSet", json!({ "spec": { "paused": true } }), &[paused_and_sick], &[]),
            Reason::ImageNotFound,
            &["it is stuck", "note", "kubectl rollout resume"],
        ),
        (
            "paused while it grows",
            owned("ReplicaSet", json!({ "spec": { "paused": true, "replicas": 2 } }), &[ready_pod()], &[]),
            Reason::PodsMissing,
            &[WAY, "1 of 2 pods are ready", "kubectl rollout resume"],
        ),
    ];
    check_all(&rows);
    // Notes are no cause for programs either.
    let zero = owned("StatefulSet", json!({ "spec": { "replicas": 0 } }), &[], &[]);
    let found = findings(&zero);
    let told = super::to_json(&zero, &found);
    assert!(held(&found).is_none() && told["fine"] == true && told["findings"][0]["note"] == true, "{told}");
}

#[test]
fn what_is_early_is_on_its_way() {
    let late =
        |finalizers: Value| json!({ "metadata": { "deletionTimestamp": A_MOMENT_AGO, "finalizers": finalizers } });
    let ending = pod(
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:10Z", "deletionGracePeriodSeconds": 30, "finalizers": ["batch.kubernetes.io/job-tracking"] } }),
    );
    let mut going = ready_pod();
    merge(&mut going, &json!({ "metadata": { "name": "x-0", "deletionTimestamp": "2026-01-01T12:00:10Z" } }));
    let mut emptied = late(json!([]));
    merge(
        &mut emptied,
        &json!({ "status": { "conditions": conditions(&[("NamespaceFinalizersRemaining", "True")]) } }),
    );
    let balancer = json!({ "spec": { "type": "LoadBalancer", "selector": { "app": "web" } } });
    let class = ("storageclasses", json!([{ "metadata": { "name": "fast" }, "provisioner": "csi.x.io" }]));
    let driver = ("csidrivers", json!([{ "metadata": { "name": "csi.x.io" } }]));
    let claim = json!({ "spec": { "storageClassName": "fast" }, "status": { "phase": "Pending" } });
    let rows: Vec<Situation<'_>> = vec![
        ("pod in its grace period", world(ending, &[]), Reason::GracePeriod, &[WAY, "10 s of 30 s left"]),
        ("finalizer", one("ConfigMap", late(json!(["a.io/b"])), &[]), Reason::Finalizer, &[WAY, "a.io/b"]),
        ("namespace", one("Namespace", emptied, &[]), Reason::NamespaceTerminating, &[WAY]),
        (
            "name taken for a while",
            owned("StatefulSet", json!({}), &[], &[("pods", json!([going]))]),
            Reason::NotOwned,
            &[WAY, "when the pod of that name"],
        ),
        (
            "balancer",
            one("Service", made(balancer), &[("pods", json!([ready_pod()])), slices("x")]),
            Reason::LoadBalancerPending,
            &[WAY],
        ),
        ("provisioning", one("PersistentVolumeClaim", made(claim), &[class, driver]), Reason::Provisioning, &[WAY]),
    ];
    check_all(&rows);
}

#[test]
fn what_fits_is_not_held_against_a_claim() {
    let volume = |name: &str, size: &str| json!({ "metadata": { "name": name }, "spec": { "storageClassName": "manual", "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"] }, "status": { "phase": "Available" } });
    let claim = json!({ "spec": { "storageClassName": "manual", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } }, "status": { "phase": "Pending" } });
    let class = |mode: &str| {
        (
            "storageclasses",
            json!([{ "metadata": { "name": "manual" }, "volumeBindingMode": mode, "provisioner": "kubernetes.io/no-provisioner" }]),
        )
    };
    let both = ("persistentvolumes", json!([volume("small", "1Gi"), volume("large", "20Gi")]));
    let small = ("persistentvolumes", json!([volume("small", "1Gi")]));
    let none = ("pods", json!([]));
    let user = (
        "pods",
        json!([pod(
            json!({ "spec": { "nodeName": null, "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x" } }] } })
        )]),
    );
    let first = "WaitForFirstConsumer";
    let of = |claim: &Value, lists: &[(&str, Value)]| one("PersistentVolumeClaim", claim.clone(), lists);
    let young = made(claim.clone());
    let rows: Vec<Situation<'_>> = vec![
        (
            "just now",
            of(&young, &[class("Immediate"), both.clone()]),
            Reason::VolumeUnbound,
            &["on its way", "large fits"],
        ),
        ("for long", of(&claim, &[class("Immediate"), both.clone()]), Reason::VolumeUnbound, &["stuck", "large fits"]),
        (
            "without a pod",
            of(&claim, &[class(first), small.clone(), none]),
            Reason::WaitForFirstConsumer,
            &["nothing holds it up"],
        ),
        (
            "with a pod, and a volume",
            of(&claim, &[class(first), both, user.clone()]),
            Reason::WaitForFirstConsumer,
            &["on its way", "ferry why -n d pod/p"],
        ),
        (
            "with a pod, and none",
            of(&claim, &[class(first), small, user]),
            Reason::VolumeTooSmall,
            &["stuck", "has 1Gi"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn what_is_over_or_of_others_is_no_cause() {
    let evicted = pod(json!({ "status": { "phase": "Failed", "reason": "Evicted" } }));
    let mut refused = owned("ReplicaSet", json!({ "spec": { "replicas": 2 } }), &[ready_pod()], &[]);
    let mut newer = event(&refused.target, "SuccessfulCreate", "Created pod");
    newer["lastTimestamp"] = A_MOMENT_AGO.into();
    let old = event(&refused.target, "FailedCreate", "exceeded quota: q");
    refused.put("events", vec![newer, old.clone()]);
    let mut job = owned("Job", json!({ "status": { "active": 1 } }), &[ready_pod()], &[]);
    job.put("events", vec![event(&job.target, "FailedCreate", "exceeded quota: q")]);
    for (what, world) in [("replica set", &refused), ("job", &job)] {
        let first = findings(world).into_iter().next();
        assert!(first.as_ref().is_some_and(|first| first.underway), "{what}: {first:?}");
    }
    refused.put("events", vec![old]);
    assert_eq!(findings(&refused).first().map(|first| first.reason), Some(Reason::QuotaUsedUp));

    let times = |began: &str| json!({ "terminated": { "exitCode": 1, "startedAt": began, "finishedAt": "2026-01-01T11:50:00Z" } });
    let restarted = |began: &str| {
        pod(
            json!({ "status": { "conditions": conditions(&[("Ready", "True")]), "containerStatuses": [{ "name": "c", "ready": true, "restartCount": 3, "state": { "running": { "startedAt": "2026-01-01T11:58:00Z" } }, "lastState": times(began) }] } }),
        )
    };
    let nodes = ("nodes", json!([node("n", "True")]));
    assert_eq!(findings(&world(restarted("2026-01-01T11:45:00Z"), std::slice::from_ref(&nodes))).len(), 1);
    let done = pod(
        json!({ "spec": { "restartPolicy": "Never" }, "status": { "conditions": conditions(&[("Ready", "False")]), "containerStatuses": [
            { "name": "c", "ready": true, "state": { "running": {} } },
            { "name": "d", "ready": false, "state": { "terminated": { "exitCode": 0 } } },
        ] } }),
    );
    let deny = ("networkpolicies", json!([{ "metadata": { "name": "deny" }, "spec": { "podSelector": {} } }]));
    let no_egress = (
        "networkpolicies",
        json!([{ "metadata": { "name": "deny" }, "spec": { "podSelector": {}, "policyTypes": ["Egress"] } }]),
    );
    let mut on_host = ready_pod();
    merge(&mut on_host, &json!({ "spec": { "hostNetwork": true } }));
    let mut two = ready_pod();
    merge(
        &mut two,
        &json!({ "status": { "podIP": "fd00::1", "podIPs": [{ "ip": "fd00::1" }, { "ip": "10.0.0.1" }] } }),
    );
    let service = json!({ "kind": "Service", "metadata": { "name": "x", "namespace": "d" }, "spec": { "selector": { "app": "web" } } });
    let taken_up =
        json!({ "spec": { "rules": [] }, "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.9" }] } } });
    let rows: Vec<(&str, World)> = vec![
        ("evicted pods beside enough", owned("ReplicaSet", json!({}), &[evicted, ready_pod()], &[])),
        ("a restart after long", world(restarted("2026-01-01T10:00:00Z"), std::slice::from_ref(&nodes))),
        ("a container that is done", world(done, std::slice::from_ref(&nodes))),
        ("on the node's network", world(on_host, &[nodes.clone(), deny])),
        (
            "no egress behind a Service",
            one(
                "Service",
                json!({ "spec": { "selector": { "app": "web" } } }),
                &[("pods", json!([ready_pod()])), slices("x"), no_egress],
            ),
        ),
        ("two addresses", world(two, &[nodes, ("services", json!([service])), slices("x")])),
        ("taken up without a class", one("Ingress", taken_up, &[("ingressclasses", json!([]))])),
        ("Knative's", one("Service", json!({ "apiVersion": "serving.knative.dev/v1", "spec": {} }), &[])),
        (
            "Calico's",
            one(
                "NetworkPolicy",
                json!({ "apiVersion": "crd.projectcalico.org/v1", "spec": { "podSelector": { "matchLabels": { "a": "b" } } } }),
                &[("pods", json!([ready_pod()]))],
            ),
        ),
        (
            "Volcano's",
            one("Job", json!({ "apiVersion": "batch.volcano.sh/v1alpha1", "spec": { "suspend": true } }), &[]),
        ),
    ];
    for (what, world) in &rows {
        assert_eq!(findings(world), [], "{what}");
    }
    let own = one(
        "Service",
        json!({ "apiVersion": "v1", "spec": {} }),
        &[("pods", json!([])), ("endpointslices", json!([]))],
    );
    assert_eq!(findings(&own).first().map(|first| first.reason), Some(Reason::NoSelector));
}

#[test]
fn what_a_drain_leaves_does_not_block_it() {
    let mut cordoned = node("n", "True");
    merge(&mut cordoned, &json!({ "spec": { "unschedulable": true } }));
    let budget = json!([{ "metadata": { "name": "b", "namespace": "d" }, "spec": { "selector": { "matchLabels": { "app": "web" } } }, "status": { "disruptionsAllowed": 0 } }]);
    let of_daemons = json!({ "metadata": { "ownerReferences": [{ "kind": "DaemonSet", "name": "ds", "uid": "u", "controller": true }] } });
    for parts in [of_daemons, json!({ "status": { "phase": "Succeeded" } })] {
        let mut left = ready_pod();
        merge(&mut left, &parts);
        let found = findings(&world(cordoned.clone(), &[(ALL_PODS, json!([left])), (ALL_BUDGETS, budget.clone())]));
        assert!(held(&found).is_none(), "{parts}: {found:?}");
    }
}

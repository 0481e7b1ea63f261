//! Situations that were made on a real API server, with controllers and the scheduler, of classes that had none before.

use serde_json::json;

use super::*;

fn volume(name: &str, zone: &str) -> Value {
    made(
        "PersistentVolume",
        name,
        json!({ "spec": { "storageClassName": "hand", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone] }] }] } } },
            "status": { "phase": "Bound" } }),
    )
}

fn claim(name: &str, volume: &str) -> Value {
    made(
        "PersistentVolumeClaim",
        name,
        json!({ "metadata": { "namespace": "d" }, "spec": { "storageClassName": "hand", "accessModes": ["ReadWriteOnce"],
            "volumeName": volume, "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Bound" } }),
    )
}

fn in_zone(name: &str, zone: &str) -> Value {
    with(node(name, "True"), &json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": zone } } }))
}

fn with_claims(message: &str, names: &[&str]) -> Value {
    let volumes: Vec<Value> =
        names.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })).collect();
    unscheduled(message, json!({ "spec": { "volumes": volumes } }))
}

const NO_AFFINITY: &str = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.";

#[test]
fn volumes_are_where_they_are() {
    examine(&[
        (
            "a volume of a zone without nodes",
            "pod/p",
            json!([
                with_claims(NO_AFFINITY, &["a"]),
                claim("a", "va"),
                volume("va", "z9"),
                in_zone("n1", "z1"),
                in_zone("n2", "z2")
            ]),
            Stuck(Reason::NoNodeFits),
            &[
                "its nodeAffinity is for topology.kubernetes.io/zone=z9",
                "add, a node with topology.kubernetes.io/zone=z9",
            ],
        ),
        (
            "two volumes in two zones",
            "pod/p",
            json!([
                with_claims(NO_AFFINITY, &["a", "b"]),
                claim("a", "va"),
                claim("b", "vb"),
                volume("va", "z1"),
                volume("vb", "z2"),
                in_zone("n1", "z1"),
                in_zone("n2", "z2")
            ]),
            Stuck(Reason::NoNodeFits),
            &[
                "no node is for all of its volumes: va (claim a) is for topology.kubernetes.io/zone=z1; vb (claim b) is for topology.kubernetes.io/zone=z2",
                "make one of the claims a, b anew where the other volume is",
                "!bring back",
                "!see what keeps",
            ],
        ),
        (
            "the node of its volume is cordoned",
            "pod/p",
            json!([
                with_claims(
                    "0/2 nodes are available: 1 node(s) were unschedulable, 1 node(s) didn't match PersistentVolume's node affinity.",
                    &["a"]
                ),
                claim("a", "va"),
                volume("va", "z1"),
                with(in_zone("n1", "z1"), &json!({ "spec": { "unschedulable": true } })),
                in_zone("n2", "z2")
            ]),
            Stuck(Reason::NoNodeFits),
            &["kubectl uncordon n1", "what keeps the pod from n1", "!bring back", "!no node is for all"],
        ),
        (
            "a claim that waits for the scheduler, and a pod that goes round it",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "volumes": [{ "name": "a", "persistentVolumeClaim": { "claimName": "a" } }] }, "status": { "phase": "Pending" } })
                ),
                with(claim("a", ""), &json!({ "status": { "phase": "Pending" } })),
                made(
                    "StorageClass",
                    "hand",
                    json!({ "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer" })
                )
            ]),
            Stuck(Reason::WaitForFirstConsumer),
            &["pod/p has node n without the scheduler (spec.nodeName)", "take spec.nodeName away"],
        ),
    ]);
}

fn refused(name: &str, quota: Value) -> Value {
    json!([
        made(
            "ReplicaSet",
            "web",
            json!({ "metadata": { "namespace": "d" }, "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } } },
            "status": { "replicas": 0, "observedGeneration": 1, "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                "message": format!("pods \"web-x\" is forbidden: exceeded quota: {name}, requested: pods=1, used: pods=0, limited: pods=0"),
                "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
        ),
        with(
            made(
                "ResourceQuota",
                name,
                json!({ "metadata": { "namespace": "d" }, "spec": { "hard": { "pods": "0" } } })
            ),
            &quota
        )
    ])
}

#[test]
fn quotas_count_what_they_are_for() {
    let pods = ["!ask for less in resources"];
    let best = ["it counts only pods of the scope BestEffort", "name requests in resources of a container", pods[0]];
    let class =
        ["it counts only pods of the scope PriorityClass In high,higher", "use another priorityClassName", pods[0]];
    let scoped = json!({ "spec": { "scopeSelector": { "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"] }] } } });
    examine(&[
        ("a quota of pods", "replicaset/web", refused("q", json!({})), Stuck(Reason::QuotaUsedUp), &pods),
        (
            "a quota of pods without requests",
            "replicaset/web",
            refused("q", json!({ "spec": { "scopes": ["BestEffort"] } })),
            Stuck(Reason::QuotaUsedUp),
            &best,
        ),
        ("a quota of a class", "replicaset/web", refused("q", scoped), Stuck(Reason::QuotaUsedUp), &class),
    ]);
}

#[test]
fn who_ends_nobody_is_told_so() {
    let asks = json!({ "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "6" } } }] });
    let waits = |policy: &str| {
        let own = json!({ "spec": { "priority": 1000, "priorityClassName": "polite", "preemptionPolicy": policy } });
        with(unscheduled("0/1 nodes are available: 1 Insufficient cpu.", json!({ "spec": asks })), &own)
    };
    let other = serving(json!({ "metadata": { "name": "other", "uid": "other" }, "spec": asks }));
    let full = with(
        node("n", "True"),
        &json!({ "status": { "allocatable": { "cpu": "8", "pods": "110" }, "capacity": { "cpu": "8", "pods": "110" } } }),
    );
    examine(&[
        (
            "a polite class",
            "pod/p",
            json!([waits("Never"), other, full]),
            Stuck(Reason::NoNodeFits),
            &["such as other in d", "preemptionPolicy of its class polite is Never", "PreemptLowerPriority"],
        ),
        (
            "another class",
            "pod/p",
            json!([waits("PreemptLowerPriority"), other, full]),
            Stuck(Reason::NoNodeFits),
            &["!preemptionPolicy"],
        ),
        (
            "a RuntimeClass that chooses nodes",
            "pod/p",
            json!([unscheduled(
                "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
                json!({ "spec": { "runtimeClassName": "gv", "nodeSelector": { "sandbox": "gvisor" } } })
            ),]),
            Stuck(Reason::NoNodeFits),
            &["sandbox=gvisor", "kubectl get runtimeclass gv -o yaml"],
        ),
    ]);
}

//! Pods without a node: the nodes are looked at.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, merge, node, pod, world};
use crate::gather::ALL_PODS;
use crate::world::World;

const SELECTOR: &str =
    "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s).";

fn unscheduled(message: &str, spec: Value) -> Value {
    let condition =
        json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }]);
    let mut pod = pod(json!({ "spec": { "nodeName": "" }, "status": { "phase": "Pending", "conditions": condition } }));
    merge(&mut pod, &json!({ "spec": spec }));
    pod
}

fn with(mut node: Value, parts: Value) -> Value {
    merge(&mut node, &parts);
    node
}

fn labelled(name: &str, key: &str, value: &str) -> Value {
    with(node(name, "True"), json!({ "metadata": { "labels": { key: value } } }))
}

fn on(node: &str, name: &str, parts: Value) -> Value {
    let mut one = pod(json!({ "metadata": { "name": name, "uid": name }, "spec": { "nodeName": node } }));
    merge(&mut one, &parts);
    one
}

fn among(pod: Value, nodes: Value, pods: Value) -> World {
    world(pod, &[("nodes", nodes), (ALL_PODS, pods), ("persistentvolumeclaims", json!([]))])
}

#[test]
fn nodes_are_looked_at() {
    let one = "0/1 nodes are available: 1 reason.";
    let term = |key: &str| json!([{ "labelSelector": { "matchLabels": { "app": "db" } }, "topologyKey": key }]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let spread = |key: &str| json!({ "topologySpreadConstraints": [{ "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "web" } } }] });
    let zones = json!([
        labelled("a", "zone", "1"),
        with(labelled("b", "zone", "2"), json!({ "spec": { "unschedulable": true } }))
    ]);
    let claim = json!({ "metadata": { "name": "data", "namespace": "d" }, "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } });
    let affine = json!({ "metadata": { "name": "pv" }, "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["gone"] }] }] } } } });
    let uses = json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] });
    let mut local = among(unscheduled(one, uses.clone()), json!([node("a", "True")]), json!([]));
    local.put("persistentvolumeclaims", vec![claim.clone()]);
    local.put("persistentvolumes", vec![affine]);
    let mut alone = among(
        unscheduled(one, uses.clone()),
        json!([node("a", "True")]),
        json!([on("a", "first", json!({ "spec": uses }))]),
    );
    alone.put("persistentvolumeclaims", vec![with(claim, json!({ "spec": { "accessModes": ["ReadWriteOncePod"] } }))]);
    let ssd = json!({ "nodeSelector": { "disk": "ssd" } });
    let tainted = with(
        labelled("a", "disk", "ssd"),
        json!({ "spec": { "taints": [{ "key": "team", "value": "x", "effect": "NoSchedule" }] } }),
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "the label is there, and its node is tainted",
            among(unscheduled(SELECTOR, ssd.clone()), json!([tainted, node("b", "True")]), json!([])),
            Reason::NoNodeFits,
            &[
                "node a has the taint team=x:NoSchedule",
                "node b does not have the label disk=ssd",
                "kubectl taint nodes a team=x:NoSchedule-",
            ],
        ),
        (
            "no node has the label",
            among(unscheduled(one, ssd.clone()), json!([labelled("a", "disk", "hdd")]), json!([])),
            Reason::NoNodeFits,
            &[
                "does not have the label disk=ssd",
                "nodes have disk with the value hdd",
                "kubectl label node a disk=ssd",
            ],
        ),
        (
            "affinity",
            among(
                unscheduled(
                    one,
                    json!({ "affinity": { "nodeAffinity": { required: { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "gpu", "operator": "Exists" }] }] } } } }),
                ),
                json!([node("a", "True")]),
                json!([]),
            ),
            Reason::NoNodeFits,
            &["nodeAffinity asks for"],
        ),
        (
            "not ready",
            among(
                unscheduled(one, json!({})),
                json!([with(
                    node("a", "False"),
                    json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] } })
                )]),
                json!([]),
            ),
            Reason::NoNodeFits,
            &["node.kubernetes.io/not-ready:NoSchedule", "ferry why node/a"],
        ),
        (
            "cordoned",
            among(
                unscheduled(one, json!({})),
                json!([with(
                    node("a", "True"),
                    json!({ "spec": { "unschedulable": true, "taints": [{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }] } })
                )]),
                json!([]),
            ),
            Reason::NoNodeFits,
            &["node a is cordoned", "kubectl uncordon a"],
        ),
        (
            "taken by others",
            among(
                unscheduled(
                    one,
                    json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1500m" } } }] }),
                ),
                json!([node("a", "True")]),
                json!([on(
                    "a",
                    "big",
                    json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] } })
                )]),
            ),
            Reason::NoNodeFits,
            &["has 1 of 2 cpu left, and the pod asks for 1500m", "kubectl delete -n d pod/p"],
        ),
        (
            "a resource that no node has",
            among(
                unscheduled(
                    one,
                    json!({ "containers": [{ "name": "c", "resources": { "requests": { "example.com/gpu": "1" } } }] }),
                ),
                json!([node("a", "True")]),
                json!([]),
            ),
            Reason::NoNodeFits,
            &["has no example.com/gpu, and the pod asks for 1", "a device plug-in on a node brings example.com/gpu"],
        ),
        (
            "too many pods",
            among(
                unscheduled(one, json!({})),
                json!([with(node("a", "True"), json!({ "status": { "allocatable": { "pods": "1" } } }))]),
                json!([on("a", "x", json!({}))]),
            ),
            Reason::NoNodeFits,
            &["as many pods as it may (1)"],
        ),
        (
            "port",
            among(
                unscheduled(
                    one,
                    json!({ "containers": [{ "name": "c", "ports": [{ "hostPort": 8080, "containerPort": 80 }] }] }),
                ),
                json!([node("a", "True")]),
                json!([on(
                    "a",
                    "first",
                    json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "hostPort": 8080 }] }] } })
                )]),
            ),
            Reason::NoNodeFits,
            &["hostPort 8080/TCP taken by pod/first in d"],
        ),
        (
            "beside pods that are not there",
            among(
                unscheduled(one, json!({ "affinity": { "podAffinity": { required: term("zone") } } })),
                json!([labelled("a", "zone", "1")]),
                json!([]),
            ),
            Reason::NoNodeFits,
            &["has no pod with app=db in its zone", "kubectl get pods -n d -l 'app=db'"],
        ),
        (
            "beside pods that it must not",
            among(
                unscheduled(one, json!({ "affinity": { "podAntiAffinity": { required: term("zone") } } })),
                json!([labelled("a", "zone", "1")]),
                json!([on("a", "db-0", json!({ "metadata": { "labels": { "app": "db" } } }))]),
            ),
            Reason::NoNodeFits,
            &["has pod/db-0 in its zone", "away from app=db"],
        ),
        (
            "others keep it away",
            among(
                unscheduled(one, json!({})),
                json!([labelled("a", "zone", "1")]),
                json!([on(
                    "a",
                    "shy",
                    json!({ "spec": { "affinity": { "podAntiAffinity": { required: [{ "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "zone" }] } } } })
                )]),
            ),
            Reason::NoNodeFits,
            &["pod/shy in d, whose podAntiAffinity"],
        ),
        (
            "spread: no label",
            among(unscheduled(one, spread("zone")), json!([node("a", "True")]), json!([])),
            Reason::NoNodeFits,
            &["does not have the label zone, which topologySpreadConstraints needs"],
        ),
        (
            "spread: too uneven",
            among(unscheduled(one, spread("zone")), zones, json!([on("a", "w", json!({}))])),
            Reason::NoNodeFits,
            &["zone=1, which has 1 of these pods already while another has 0", "maxSkew=1", "node b is cordoned"],
        ),
        (
            "volume elsewhere",
            local,
            Reason::NoNodeFits,
            &["cannot have the volume pv of claim data", "bring back, or add, a node with kubernetes.io/hostname=gone"],
        ),
        ("one pod only", alone, Reason::NoNodeFits, &["the claim data, which only one pod may use: pod/first"]),
        (
            "no nodes",
            among(unscheduled("no nodes available", json!({})), json!([]), json!([])),
            Reason::NoNodes,
            &["no nodes"],
        ),
        (
            "making room",
            among(
                {
                    let mut pod = unscheduled(one, json!({}));
                    merge(&mut pod, &json!({ "status": { "nominatedNodeName": "a" } }));
                    pod
                },
                json!([node("a", "True")]),
                json!([]),
            ),
            Reason::Preempting,
            &["on its way", "ending on a"],
        ),
    ];
    check_all(&rows);
}

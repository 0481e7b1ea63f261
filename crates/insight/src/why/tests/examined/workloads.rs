//! Workloads: what makes pods.

use serde_json::json;

use super::*;

pub(super) fn set(kind: &str, parts: Value) -> Value {
    let status =
        json!({ "observedGeneration": 1, "replicas": 0, "currentNumberScheduled": 0, "desiredNumberScheduled": 1 });
    with(
        made(
            kind,
            "web",
            json!({ "spec": { "replicas": 1, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": status }),
        ),
        &parts,
    )
}

pub(super) fn of(kind: &str, name: &str, pod: Value) -> Value {
    let version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
    let name = json!({ "metadata": { "name": name, "uid": name } });
    with(with(pod, &owner(version, kind, "web")), &name)
}

#[test]
fn what_makes_pods() {
    let range = made(
        "LimitRange",
        "defaults",
        json!({ "spec": { "limits": [{ "type": "Container", "default": { "cpu": "500m" }, "maxLimitRequestRatio": { "cpu": "2" } }, { "type": "PersistentVolumeClaim", "max": { "storage": "1Gi" } }] } }),
    );
    let refused = |kind: &str, told: &str| {
        json!([set(kind, json!({})), warned(&format!("{kind}/web"), "FailedCreate", told), range])
    };
    let replica_failure = json!({ "status": { "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "pods \"web-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" }] } });
    let quota = made("ResourceQuota", "q", json!({ "status": { "hard": { "pods": "2" }, "used": { "pods": "2" } } }));
    let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:10:00Z", "deletionGracePeriodSeconds": 30 }, "spec": { "nodeName": "gone" } });
    let old = with(
        warned(
            "ReplicaSet/web",
            "FailedCreate",
            "Error creating: pods \"web-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
        ),
        &json!({ "lastTimestamp": "2026-01-01T11:10:00Z" }),
    );
    let daemon = set(
        "DaemonSet",
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] } } }, "status": { "currentNumberScheduled": 1 } }),
    );
    let port = json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 80, "hostPort": 80 }] }] } });
    let pinned = json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] }] } } } } });
    let scc = "Error creating: pods \"web-1\" is forbidden: unable to validate against any security context constraint: [provider \"anyuid\": Forbidden: not usable by user or serviceaccount]";
    let cases: Vec<Case<'_>> = vec![
        (
            "a limit that a LimitRange gave",
            "replicaset/web",
            refused(
                "ReplicaSet",
                "Error creating: Pod \"web-1\" is invalid: spec.containers[0].resources.requests: Invalid value: \"1\": must be less than or equal to cpu limit of 500m",
            ),
            Stuck(Reason::LimitRange),
            &["the LimitRange defaults", "cpu limit of 500m", "kubectl edit -n d replicaset/web"],
        ),
        (
            "a limit far above the request",
            "replicaset/web",
            refused(
                "ReplicaSet",
                "Error creating: pods \"web-1\" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
            ),
            Stuck(Reason::LimitRange),
            &["the LimitRange defaults", "max limit to request ratio"],
        ),
        (
            "a claim that is too large",
            "statefulset/web",
            refused(
                "StatefulSet",
                "create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: persistentvolumeclaims \"data-web-0\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 5Gi",
            ),
            Stuck(Reason::ClaimRefused),
            &["the LimitRange defaults", "kubectl edit -n d limitrange/defaults"],
        ),
        (
            "a constraint of others",
            "replicaset/web",
            json!([set("ReplicaSet", json!({})), warned("ReplicaSet/web", "FailedCreate", scc)]),
            Stuck(Reason::PodRefused),
            &["unable to validate against any security context constraint"],
        ),
        (
            "a controller of old, without room",
            "replicationcontroller/web",
            json!([set("ReplicationController", replica_failure), quota]),
            Stuck(Reason::QuotaUsedUp),
            &["pods: 2 of 2 are used", "kubectl edit -n d resourcequota/q"],
        ),
        (
            "what was refused was made later",
            "replicaset/web",
            json!([
                set("ReplicaSet", json!({ "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 } })),
                of("ReplicaSet", "web-1", serving(json!({}))),
                old
            ]),
            Well,
            &[],
        ),
        (
            "a pod on a node that is gone",
            "statefulset/web",
            json!([
                set("StatefulSet", json!({ "status": { "replicas": 1 } })),
                of("StatefulSet", "web-0", serving(going))
            ]),
            Stuck(Reason::NodeGoneForDeletion),
            &["its node gone is not there any more"],
        ),
        (
            "a port that another daemon has",
            "daemonset/web",
            json!([
                daemon,
                of(
                    "DaemonSet",
                    "web-1",
                    unscheduled(
                        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
                        with(port.clone(), &pinned)
                    )
                ),
                with(serving(port), &json!({ "metadata": { "name": "proxy", "uid": "proxy" } }))
            ]),
            Stuck(Reason::NoNodeFits),
            &["hostPort 80/TCP taken by pod/proxy in d", "kubectl edit -n d daemonset/web"],
        ),
        (
            "a Deployment that waits to be looked at",
            "deployment/web",
            json!([set(
                "Deployment",
                json!({ "metadata": { "generation": 3, "managedFields": [{ "manager": "kubectl", "operation": "Update", "time": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::ControllerBehind),
            &["generation 1", "generation 3"],
        ),
    ];
    examine(&cases);
}

//! What is well, as a cluster holds it, and is left alone.

use serde_json::json;

use super::*;

#[test]
fn what_is_well_is_left_alone() {
    let of = |version: &str, kind: &str, name: &str| owner(version, kind, name);
    let controlled = json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]);
    let set = |kind: &str, status: Value, spec: Value| {
        made(
            kind,
            "web",
            json!({ "spec": with(json!({ "replicas": 1, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }), &spec), "status": with(json!({ "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1 }), &status) }),
        )
    };
    let owned = |kind: &str, version: &str| with(serving(json!({})), &of(version, kind, "web"));
    let restarted = serving(
        json!({ "status": { "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 2, "state": { "running": { "startedAt": "2026-01-01T08:00:00Z" } }, "lastState": { "terminated": { "exitCode": 255, "reason": "Unknown", "startedAt": "2025-12-30T08:00:00Z", "finishedAt": "2026-01-01T07:59:00Z" } } }] } }),
    );
    let cases: Vec<Case<'_>> = vec![
        (
            "a Deployment",
            "deployment/web",
            json!([
                set(
                    "Deployment",
                    json!({ "conditions": [{ "type": "Available", "status": "True" }, { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" }] }),
                    json!({})
                ),
                made(
                    "ReplicaSet",
                    "web",
                    with(
                        of("apps/v1", "Deployment", "web"),
                        &json!({ "spec": { "replicas": 1 }, "status": { "replicas": 1 } })
                    )
                ),
                owned("ReplicaSet", "apps/v1")
            ]),
            Well,
            &[],
        ),
        (
            "a StatefulSet without a Service",
            "statefulset/web",
            json!([
                set("StatefulSet", json!({ "currentRevision": "a", "updateRevision": "a" }), json!({})),
                owned("StatefulSet", "apps/v1")
            ]),
            Well,
            &[],
        ),
        (
            "a DaemonSet that leaves out the servers",
            "daemonset/web",
            json!([
                set(
                    "DaemonSet",
                    json!({ "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1, "updatedNumberScheduled": 1 }),
                    json!({})
                ),
                owned("DaemonSet", "apps/v1"),
                node("n", "True"),
                with(node("server", "True"), &json!({ "spec": { "taints": controlled } }))
            ]),
            Note(Reason::NodesSkipped),
            &["leaves out 1 node (server)"],
        ),
        (
            "a controller of old",
            "replicationcontroller/web",
            json!([set("ReplicationController", json!({}), json!({})), owned("ReplicationController", "v1")]),
            Well,
            &[],
        ),
        ("a pod that was started again with its machine", "pod/p", json!([restarted]), Well, &[]),
        (
            "a pod on a cordoned node",
            "pod/p",
            json!([serving(json!({})), with(node("n", "True"), &json!({ "spec": { "unschedulable": true } }))]),
            Well,
            &[],
        ),
        (
            "a pod with old Warnings",
            "pod/p",
            json!([
                serving(json!({})),
                warned("Pod/p", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu."),
                warned("Pod/p", "FailedMount", "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found"),
                warned("Pod/p", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500")
            ]),
            Well,
            &[],
        ),
        (
            "a task that succeeded at the second attempt",
            "job/j",
            json!([made(
                "Job",
                "j",
                json!({ "status": { "succeeded": 1, "failed": 1, "conditions": [{ "type": "Complete", "status": "True" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a CronJob at its first hour",
            "cronjob/c",
            json!([made(
                "CronJob",
                "c",
                json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:00Z" }, "spec": { "schedule": "30 2 * * *", "timeZone": "Europe/Berlin" } })
            )]),
            Well,
            &[],
        ),
        (
            "a claim that is bound",
            "persistentvolumeclaim/data",
            json!([made(
                "PersistentVolumeClaim",
                "data",
                json!({ "spec": { "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Bound", "capacity": { "storage": "1Gi" }, "conditions": [{ "type": "Unused", "status": "True", "reason": "NoPodsUsingPVC" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a volume without a claim",
            "persistentvolume/pv",
            json!([made(
                "PersistentVolume",
                "pv",
                json!({ "spec": { "capacity": { "storage": "1Gi" } }, "status": { "phase": "Available" } })
            )]),
            Well,
            &[],
        ),
        (
            "a budget with room",
            "poddisruptionbudget/b",
            json!([
                made(
                    "PodDisruptionBudget",
                    "b",
                    json!({ "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } }, "status": { "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2 } })
                ),
                serving(json!({}))
            ]),
            Well,
            &[],
        ),
        (
            "a binding to a group",
            "clusterrolebinding/b",
            json!([
                made(
                    "ClusterRoleBinding",
                    "b",
                    json!({ "roleRef": { "kind": "ClusterRole", "name": "view" }, "subjects": [{ "kind": "Group", "name": "team" }] })
                ),
                made("ClusterRole", "view", json!({ "rules": [] }))
            ]),
            Well,
            &[],
        ),
        ("an account", "serviceaccount/default", json!([made("ServiceAccount", "default", json!({}))]), Well, &[]),
        (
            "a lease that is held",
            "lease/l",
            json!([made(
                "Lease",
                "l",
                json!({ "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T11:59:55.000000Z" } })
            )]),
            Well,
            &[],
        ),
        (
            "a priority",
            "priorityclass/high",
            json!([made("PriorityClass", "high", json!({ "value": 1000 }))]),
            Well,
            &[],
        ),
        ("limits", "limitrange/l", json!([made("LimitRange", "l", json!({ "spec": { "limits": [] } }))]), Well, &[]),
        ("a map", "configmap/c", json!([made("ConfigMap", "c", json!({ "immutable": true }))]), Well, &[]),
        (
            "a request that was signed",
            "certificatesigningrequest/r",
            json!([made(
                "CertificateSigningRequest",
                "r",
                json!({ "spec": { "signerName": "example.com/s" }, "status": { "certificate": "eA==", "conditions": [{ "type": "Approved", "status": "True" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a kind that is served",
            "customresourcedefinition/widgets.example.com",
            json!([made(
                "CustomResourceDefinition",
                "widgets.example.com",
                json!({ "spec": { "group": "example.com", "versions": [{ "name": "v1", "served": true, "storage": true }] }, "status": { "conditions": [{ "type": "NamesAccepted", "status": "True" }, { "type": "Established", "status": "True" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "devices that a pod has",
            "resourceclaim/gpu",
            json!([made(
                "ResourceClaim",
                "gpu",
                json!({ "status": { "allocation": { "devices": { "results": [] } }, "reservedFor": [{ "resource": "pods", "name": "p" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a volume at its node",
            "volumeattachment/a",
            json!([made(
                "VolumeAttachment",
                "a",
                json!({ "spec": { "attacher": "csi.example.com", "nodeName": "n", "source": { "persistentVolumeName": "pv" } }, "status": { "attached": true } })
            )]),
            Well,
            &[],
        ),
    ];
    examine(&cases);
}

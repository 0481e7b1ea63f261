//! Workloads: what makes pods, what scales it, what protects it.

use serde_json::json;

use super::*;

fn set(kind: &str, parts: Value) -> Value {
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

fn of(kind: &str, name: &str, pod: Value) -> Value {
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

fn job(parts: Value) -> Value {
    with(
        made(
            "Job",
            "j",
            json!({ "spec": { "parallelism": 2, "completions": 5, "backoffLimit": 6 }, "status": { "active": 1 } }),
        ),
        &parts,
    )
}

fn attempt(name: &str, phase: &str, code: i64) -> Value {
    let ended = json!({ "metadata": { "name": name, "uid": name }, "status": { "phase": phase, "containerStatuses": [{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": code, "reason": "Error" } } }] } });
    let running = json!({ "metadata": { "name": name, "uid": name } });
    let pod = if phase == "Running" { serving(running) } else { pod(ended) };
    with(pod, &with(owner("batch/v1", "Job", "j"), &json!({ "spec": { "restartPolicy": "Never" } })))
}

#[test]
fn what_ends() {
    let indexed =
        json!({ "spec": { "completionMode": "Indexed", "backoffLimitPerIndex": 1, "backoffLimit": 2147483647 } });
    let done = json!({ "status": { "conditions": [{ "type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "Matched rules at index 0" }, { "type": "Complete", "status": "True", "reason": "SuccessPolicy" }], "succeeded": 1 } });
    let cron = |parts: Value| {
        with(
            made(
                "CronJob",
                "c",
                json!({ "spec": { "schedule": "0 * * * *", "jobTemplate": {} }, "status": { "lastScheduleTime": "2026-01-01T11:00:00Z" } }),
            ),
            &parts,
        )
    };
    let completed = |told: &str| {
        with(
            warned("CronJob/c", "SawCompletedJob", told),
            &json!({ "type": "Normal", "lastTimestamp": "2026-01-01T11:02:00Z" }),
        )
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "an index that has failed for good",
            "job/j",
            json!([
                job(with(indexed.clone(), &json!({ "status": { "failedIndexes": "1,3", "completedIndexes": "0" } }))),
                attempt("j-1-aaaaa", "Failed", 3),
                attempt("j-2-bbbbb", "Running", 0)
            ]),
            Stuck(Reason::FailedIndexes),
            &["1,3", "backoffLimitPerIndex", "exit code 3"],
        ),
        (
            "an index that is tried again",
            "job/j",
            json!([job(indexed), attempt("j-1-aaaaa", "Failed", 3), attempt("j-2-bbbbb", "Running", 0)]),
            Way(Reason::JobRunning),
            &["backoffLimitPerIndex is 1", "!2147483647"],
        ),
        ("enough of it is done", "job/j", json!([job(done)]), Well, &[]),
        (
            "every attempt failed, and the next waits",
            "job/j",
            json!([
                job(json!({ "status": { "active": 0, "failed": 2 } })),
                attempt("j-aaaaa", "Failed", 3),
                attempt("j-bbbbb", "Failed", 3)
            ]),
            Stuck(Reason::JobRunning),
            &["each of its 2 pods so far has failed"],
        ),
        (
            "its failed Jobs are not kept",
            "cronjob/c",
            json!([
                cron(json!({ "spec": { "failedJobsHistoryLimit": 0 } })),
                completed("Saw completed job: c-29, condition: Failed")
            ]),
            Stuck(Reason::CronFailed),
            &["probably", "condition: Failed"],
        ),
        (
            "its Jobs are done and not kept",
            "cronjob/c",
            json!([
                cron(
                    json!({ "spec": { "successfulJobsHistoryLimit": 0 }, "status": { "lastSuccessfulTime": "2026-01-01T11:02:00Z" } })
                ),
                completed("Saw completed job: c-29, condition: Complete")
            ]),
            Well,
            &[],
        ),
        (
            "failed before, and done since",
            "cronjob/c",
            json!([
                cron(json!({ "status": { "lastSuccessfulTime": "2026-01-01T11:03:00Z" } })),
                completed("Saw completed job: c-29, condition: Failed")
            ]),
            Well,
            &[],
        ),
        (
            "kept by a queue",
            "job/j",
            json!([job(
                json!({ "spec": { "suspend": true }, "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "team-a" } }, "status": { "active": 0 } })
            )]),
            Note(Reason::JobSuspended),
            &["kueue.x-k8s.io/queue-name", "!kubectl patch job"],
        ),
        (
            "suspended by hand",
            "job/j",
            json!([job(json!({ "spec": { "suspend": true } }))]),
            Note(Reason::JobSuspended),
            &["kubectl patch job -n d j"],
        ),
        (
            "an exit code that ends it",
            "job/j",
            json!([
                job(
                    json!({ "spec": { "podFailurePolicy": { "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }] } }, "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "Container c for pod d/j-aaaaa failed with exit code 42 matching FailJob rule at index 0" }] } })
                ),
                attempt("j-aaaaa", "Failed", 42)
            ]),
            Stuck(Reason::PodFailurePolicy),
            &["exit code 42", "rule at index 0"],
        ),
    ];
    examine(&cases);
}

#[test]
fn what_scales() {
    let scaler = |parts: Value| {
        with(
            made(
                "HorizontalPodAutoscaler",
                "web",
                json!({ "spec": { "minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }] },
        "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }, { "type": "ScalingActive", "status": "True", "reason": "ValidMetricFound" }, { "type": "ScalingLimited", "status": "False" }] } }),
            ),
            &parts,
        )
    };
    let inactive = json!({ "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }, { "type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API" }] } });
    let replicas =
        made("ReplicaSet", "web", with(owner("apps/v1", "Deployment", "web"), &json!({ "spec": { "replicas": 1 } })));
    let asks = |parts: Value| {
        of(
            "ReplicaSet",
            "web-1",
            serving(json!({ "spec": { "containers": [{ "name": "c", "image": "img", "resources": parts }] } })),
        )
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "requests that a LimitRange gave",
            "horizontalpodautoscaler/web",
            json!([
                scaler(inactive.clone()),
                set("Deployment", json!({ "status": { "replicas": 1 } })),
                replicas,
                asks(json!({ "requests": { "cpu": "100m" } }))
            ]),
            Stuck(Reason::HpaMetrics),
            &["no metrics returned", "!names no request"],
        ),
        (
            "no requests",
            "horizontalpodautoscaler/web",
            json!([
                scaler(inactive),
                set("Deployment", json!({ "status": { "replicas": 1 } })),
                replicas,
                asks(json!({}))
            ]),
            Stuck(Reason::HpaRequests),
            &["container c of its target names no request for cpu"],
        ),
        (
            "at least so many",
            "horizontalpodautoscaler/web",
            json!([
                scaler(
                    json!({ "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }, { "type": "ScalingActive", "status": "True" }, { "type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": "the desired replica count is less than the minimum replica count" }] } })
                ),
                set("Deployment", json!({}))
            ]),
            Well,
            &[],
        ),
        (
            "it wants more than there can be",
            "horizontalpodautoscaler/web",
            json!([
                scaler(json!({ "status": { "currentReplicas": 1, "desiredReplicas": 3 } })),
                set("Deployment", json!({ "spec": { "replicas": 3 }, "status": { "replicas": 1 } })),
                with(
                    replicas.clone(),
                    &json!({ "spec": { "replicas": 3 }, "status": { "replicas": 1, "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "pods \"web-2\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" }] } })
                ),
                asks(json!({ "requests": { "cpu": "1" } }))
            ]),
            Note(Reason::HpaTarget),
            &["wants 3 replicas", "ferry why -n d deployment/web"],
        ),
    ];
    examine(&cases);
}

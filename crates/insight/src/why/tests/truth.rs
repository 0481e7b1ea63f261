//! What was once said and was not so: each of these was met in a cluster.

use serde_json::{Value, json};

use super::super::Reason;
use super::{FINE, Situation, check_all, event, merge, node, object, one, owned, pod, ready_pod, waiting, world};
use crate::gather::ALL_PODS;
use crate::world::{Content, Presence, World};

pub(super) fn with(mut item: Value, parts: Value) -> Value {
    merge(&mut item, &parts);
    item
}

fn on_node(pod: Value, events: Value) -> World {
    world(pod, &[("nodes", json!([node("n", "True")])), ("events", events)])
}

/// A container that runs and is not ready, for a long time or since a moment ago.
fn probed(kind: &str, probe: Value, message: &str, started: &str) -> World {
    let status = json!({ "name": "c", "ready": false, "started": kind != "startupProbe", "restartCount": 0, "state": { "running": { "startedAt": started } } });
    let pod = pod(
        json!({ "spec": { "containers": [{ "name": "c", kind: probe }] }, "status": { "containerStatuses": [status] } }),
    );
    let told = with(event(&pod, "Unhealthy", message), json!({ "lastTimestamp": "2026-01-01T11:59:55Z" }));
    on_node(pod, json!([told]))
}

#[test]
fn containers_and_images() {
    let long_ago = "2026-01-01T11:50:00Z";
    let from_volume = with(
        waiting("ImagePullBackOff", "Back-off pulling image \"data:1\": ErrImagePull: data:1: not found"),
        json!({ "spec": { "volumes": [{ "name": "v", "image": { "reference": "data:1" } }] } }),
    );
    let failed = |reason: &str, message: &str| {
        pod(json!({ "status": { "phase": "Failed", "reason": reason, "message": message } }))
    };
    let ended = json!({ "spec": { "restartPolicy": "Never" }, "status": { "containerStatuses": [
        { "name": "c", "ready": false, "restartCount": 0, "state": { "terminated": { "exitCode": 4, "reason": "Error" } } } ] } });
    let command = json!({ "spec": { "containers": [{ "name": "c", "command": ["$(APP)"] }] } });
    let refused = "Readiness probe failed: dial tcp 10.0.0.1:80: connect: connection refused";
    let host = json!({ "httpGet": { "path": "/", "port": 80, "host": "10.9.9.9" } });
    let slow = json!({ "exec": { "command": ["false"] }, "failureThreshold": 30, "periodSeconds": 10 });
    let denied = with(
        waiting("ErrImagePull", "pull access denied, repository does not exist or may require authorization"),
        json!({ "spec": { "imagePullSecrets": [{ "name": "opaque" }] } }),
    );
    let mut wrong_kind = on_node(denied.clone(), json!([]));
    let content = Content {
        keys: vec!["password".into()],
        kind: "Opaque".into(),
        registries: Vec::new(),
        certificate: crate::world::Serving::Unseen,
    };
    wrong_kind.note("secrets", "opaque", Presence::Present(content));
    let orderly = pod(
        json!({ "spec": { "containers": [{ "name": "c", "livenessProbe": { "exec": { "command": ["false"] } } }] }, "status": { "containerStatuses": [{
        "name": "c", "ready": false, "restartCount": 4, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T11:59:40Z", "finishedAt": "2026-01-01T11:59:45Z" } } }] } }),
    );
    let earlier = event(&orderly, "Unhealthy", "Liveness probe failed: ");
    let rows: Vec<Situation<'_>> = vec![
        (
            "restarted by a probe, ended in good order, and the last Events are missing",
            on_node(orderly, json!([earlier])),
            Reason::LivenessRestarts,
            &[
                "probably",
                "restarted by its kubelet because its livenessProbe fails",
                "no Event tells of the last restart",
            ],
        ),
        (
            "the image of a volume",
            on_node(from_volume, json!([])),
            Reason::ImageNotFound,
            &["the image data:1 of volume \"v\" cannot be pulled: the registry docker.io has no such image"],
        ),
        (
            "a probe of somebody else",
            probed("readinessProbe", host, "Readiness probe failed: HTTP probe failed with statuscode: 404", long_ago),
            Reason::ProbeFails,
            &[
                "GET / on port 80 of the host 10.9.9.9",
                "asks the host 10.9.9.9, not the pod",
                "take host out of the probe",
            ],
        ),
        (
            "a readiness probe",
            probed("readinessProbe", json!({ "tcpSocket": { "port": 80 } }), refused, long_ago),
            Reason::ProbeFails,
            &["it is stuck", "nothing listens on port 80 of the pod's address"],
        ),
        (
            "a startup probe that has time left",
            probed("startupProbe", slow, "Startup probe failed: ", long_ago),
            Reason::ProbeFails,
            &["it is on its way", "it may fail 30 times, one every 10 s"],
        ),
        (
            "a sysctl that the node forbids",
            on_node(failed("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"), json!([])),
            Reason::PodRejected,
            &["refused it: SysctlForbidden", "take it out of securityContext.sysctls"],
        ),
        (
            "too much written",
            on_node(
                with(
                    failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "),
                    json!({ "spec": { "containers": [{ "name": "c", "resources": { "limits": { "ephemeral-storage": "5Mi" } } }] } }),
                ),
                json!([]),
            ),
            Reason::Evicted,
            &["it wrote more to its own disk than its ephemeral-storage limit of 5Mi"],
        ),
        (
            "ended for good beside one that runs",
            on_node(pod(ended), json!([])),
            Reason::Crash,
            &["container c ended with exit code 4, and restartPolicy Never does not start it again"],
        ),
        (
            "a variable that is not there",
            on_node(
                with(waiting("RunContainerError", "exec: \"$(APP)\": executable file not found in $PATH"), command),
                json!([]),
            ),
            Reason::CommandMissing,
            &["$(APP) is left as it is: the container's env names no variable APP"],
        ),
        (
            "a Secret of another kind",
            wrong_kind,
            Reason::PullUnauthorized,
            &[
                "the Secret \"opaque\" of spec.imagePullSecrets has none for docker.io",
                "is of type \"Opaque\"",
                "kubectl create secret docker-registry -n d pull-secret",
            ],
        ),
        (
            "a Secret that may not be read",
            on_node(denied, json!([])),
            Reason::PullUnauthorized,
            &["the pull Secret \"opaque\" could not be looked at"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn nodes_for_pods() {
    let unscheduled = |spec: Value| {
        let told = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 reason." }]);
        with(
            pod(json!({ "spec": { "nodeName": "" }, "status": { "phase": "Pending", "conditions": told } })),
            json!({ "spec": spec }),
        )
    };
    let zoned = |name: &str| with(node(name, "True"), json!({ "metadata": { "labels": { "zone": "a" } } }));
    let among = |pod: Value, nodes: Value, pods: Value| world(pod, &[("nodes", nodes), (ALL_PODS, pods)]);
    let spread = json!({ "topologySpreadConstraints": [{ "topologyKey": "zone", "maxSkew": 1, "minDomains": 3, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "web" } } }] });
    let rack = json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "rack", "labelSelector": { "matchLabels": { "app": "web" } } }] } } });
    let tainted = |name: &str| {
        with(
            node(name, "True"),
            json!({ "spec": { "taints": [{ "key": "team", "value": "a", "effect": "NoSchedule" }] } }),
        )
    };
    let other = pod(json!({ "metadata": { "name": "other", "uid": "other" } }));
    let gpu = json!({ "resourceClaims": [{ "name": "g", "resourceClaimName": "gpu" }] });
    let claim = json!([{ "kind": "ResourceClaim", "metadata": { "name": "gpu", "namespace": "d" }, "spec": { "devices": { "requests": [] } } }]);
    let mut devices = among(unscheduled(gpu), json!([node("n", "True")]), json!([]));
    devices.put("resourceclaims", claim.as_array().cloned().unwrap_or_default());
    devices.put("resourceslices", Vec::new());
    let heavy = json!({ "runtimeClassName": "vm", "overhead": { "cpu": "8" } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "too few domains",
            among(unscheduled(spread), json!([zoned("n")]), json!([other.clone()])),
            Reason::NoNodeFits,
            &["minDomains=3 is not reached, since the nodes for it have 1 value of zone", "or lower minDomains"],
        ),
        (
            "no such key",
            among(unscheduled(rack), json!([zoned("n")]), json!([other])),
            Reason::NoNodeFits,
            &["does not have the label rack, which is the topologyKey of podAffinity"],
        ),
        (
            "a toleration of another value",
            among(
                unscheduled(
                    json!({ "tolerations": [{ "key": "team", "operator": "Equal", "value": "b", "effect": "NoSchedule" }] }),
                ),
                json!([tainted("n"), tainted("m")]),
                json!([]),
            ),
            Reason::NoNodeFits,
            &["team=a:NoSchedule, which the pod does not tolerate: its toleration is for the value \"b\""],
        ),
        ("no devices at all", devices, Reason::DeviceClaim, &["no node offers any: the cluster has no ResourceSlice"]),
        (
            "overhead",
            among(unscheduled(heavy), json!([node("n", "True")]), json!([])),
            Reason::NoNodeFits,
            &["the RuntimeClass \"vm\" adds cpu=8 to what its containers ask for"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn workloads() {
    let over = "pods \"x-1\" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=3, used: pods=0,requests.cpu=0, limited: pods=5,requests.cpu=1";
    let refused = |kind: &str| {
        let target = object(kind, json!({ "spec": { "replicas": 1 } }));
        let told = event(&target, "FailedCreate", over);
        world(target, &[("events", json!([told])), ("pods", json!([]))])
    };
    let well = ready_pod();
    let budget = |spec: Value, status: Value| {
        one("PodDisruptionBudget", json!({ "spec": spec, "status": status }), &[("pods", json!([well.clone()]))])
    };
    let web = json!({ "matchLabels": { "app": "web" } });
    let job = |name: &str, made: &str, kind: &str| json!({ "kind": "Job", "metadata": { "name": name, "namespace": "d", "uid": name, "creationTimestamp": made, "ownerReferences": [{ "uid": "x", "controller": true, "kind": "CronJob", "name": "x" }] }, "status": { "conditions": [{ "type": kind, "status": "True", "reason": "BackoffLimitExceeded" }] } });
    let begun = with(job("b", "2026-01-01T12:00:00Z", "Begun"), json!({ "status": { "active": 1 } }));
    let cron = one(
        "CronJob",
        json!({ "spec": { "schedule": "* * * * *" }, "status": { "lastScheduleTime": "2026-01-01T12:00:00Z" } }),
        &[("jobs", json!([job("a", "2026-01-01T11:59:00Z", "Failed"), begun])), ("pods", json!([]))],
    );
    let deadline = json!({ "spec": { "activeDeadlineSeconds": 8 }, "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "DeadlineExceeded" }] } });
    let gone = json!({ "kind": "Pod", "metadata": { "name": "x-abcde", "uid": "gone" } });
    let late = one(
        "Job",
        deadline,
        &[
            ("pods", json!([])),
            ("events", json!([event(&gone, "Failed", "Failed to pull image \"a:1\": a:1: not found in the registry")])),
        ],
    );
    let broken = pod(
        json!({ "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": 1 } } }] } }),
    );
    let helper = pod(
        json!({ "spec": { "restartPolicy": "Never" }, "status": { "conditions": [], "containerStatuses": [
        { "name": "c", "ready": false, "state": { "terminated": { "exitCode": 0 } } }, { "name": "proxy", "ready": true, "state": { "running": {} } } ] } }),
    );
    let scaler = |version: &str, status: Value| json!({ "spec": { "scaleTargetRef": { "apiVersion": version, "kind": "ReplicaSet", "name": "web" } }, "status": { "conditions": [status] } });
    let set = json!([{ "kind": "ReplicaSet", "metadata": { "name": "web", "uid": "web" }, "spec": { "replicas": 1 } }]);
    let crashing = with(
        waiting("CrashLoopBackOff", ""),
        json!({ "metadata": { "ownerReferences": [{ "uid": "web", "controller": true }] }, "status": { "containerStatuses": [{ "name": "c", "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "exitCode": 1 } } }] } }),
    );
    let stateful = |address: &str| {
        let service = json!([{ "kind": "Service", "metadata": { "name": "db" }, "spec": { "clusterIP": address, "selector": { "app": "web" } } }]);
        let spec =
            json!({ "spec": { "serviceName": "db", "template": { "metadata": { "labels": { "app": "web" } } } } });
        owned("StatefulSet", spec, &[ready_pod()], &[("services", service)])
    };
    let rows: Vec<Situation<'_>> = vec![
        (
            "more than the whole quota",
            refused("ReplicaSet"),
            Reason::QuotaUsedUp,
            &[
                "asks for more than the whole ResourceQuota \"q\" of namespace d allows: requests.cpu: 3 of 1",
                "kubectl edit -n d replicaset/x",
            ],
        ),
        (
            "a Job's template",
            refused("Job"),
            Reason::QuotaUsedUp,
            &["a Job's template cannot be changed", "kubectl delete -n d job/x"],
        ),
        (
            "a share of pods without a controller",
            budget(json!({ "minAvailable": "50%", "selector": web.clone() }), json!({ "currentHealthy": 1 })),
            Reason::BudgetSync,
            &["counted from the replicas of controllers, and its pods (p) have none", "minAvailable with a number"],
        ),
        (
            "more replicas do not help",
            budget(
                json!({ "maxUnavailable": 0, "selector": web }),
                json!({ "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 }),
            ),
            Reason::BudgetBlocks,
            &[FINE, "it leaves no room at all: raise maxUnavailable: kubectl edit -n d pdb/x"],
        ),
        ("a Job has just begun", cron, Reason::CronFailed, &["its last Job that ended, a, failed"]),
        (
            "pods that the controller deleted",
            late,
            Reason::JobDeadline,
            &["Events tell of its pod x-abcde, which is gone: Failed: Failed to pull image \"a:1\""],
        ),
        (
            "every attempt failed",
            owned("Job", json!({ "spec": { "backoffLimit": 9 } }), &[broken.clone(), broken], &[]),
            Reason::JobRunning,
            &["it is stuck", "each of its 2 pods so far has failed", "2 failed attempts so far; backoffLimit is 9"],
        ),
        (
            "a helper that runs on",
            owned("Job", json!({}), &[helper], &[]),
            Reason::JobRunning,
            &["it is on its way", "container c of pod/x-0 has done its work, and proxy still runs"],
        ),
        (
            "a version that is not theirs",
            one(
                "HorizontalPodAutoscaler",
                scaler(
                    "extensions/v1beta1",
                    json!({ "type": "AbleToScale", "status": "False", "reason": "FailedGetScale" }),
                ),
                &[],
            ),
            Reason::HpaTarget,
            &["a ReplicaSet of \"extensions/v1beta1\", and these are of apps/v1"],
        ),
        (
            "no pod of the target runs",
            one(
                "HorizontalPodAutoscaler",
                scaler(
                    "apps/v1",
                    json!({ "type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric" }),
                ),
                &[("replicasets", set), ("pods", json!([crashing])), ("nodes", json!([node("n", "True")]))],
            ),
            Reason::HpaMetrics,
            &["no pod of its target replicaset/web is ready", "container c ends again and again (3 restarts)"],
        ),
        (
            "a Service with an address",
            stateful("10.0.0.9"),
            Reason::ServiceMissing,
            &[FINE, "only a headless one gives each pod a name in DNS"],
        ),
    ];
    check_all(&rows);
    assert_eq!(super::findings(&stateful("None")), []);
}

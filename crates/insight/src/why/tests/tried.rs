//! What was found false, or too early an end, when users' situations were tried on a cluster.

use serde_json::{Value, json};

use super::super::Reason;
use super::{FINE, Situation, check_all, conditions, event, merge, node, one, owned, pod, ready_pod, waiting, world};
use crate::gather::ALL_PODS;
use crate::world::World;

fn with(mut pod: Value, parts: Value) -> Value {
    merge(&mut pod, &parts);
    pod
}

fn on_node(pod: Value) -> World {
    world(pod, &[("nodes", json!([node("n", "True")]))])
}

fn with_events(pod: &Value, events: Value) -> World {
    world(pod.clone(), &[("nodes", json!([node("n", "True")])), ("events", events)])
}

#[test]
fn containers() {
    let no_root = json!({ "spec": { "securityContext": { "runAsNonRoot": true } } });
    let sub_path =
        with(waiting("CreateContainerConfigError", "failed to prepare subPath for volumeMount \"v\""), no_root.clone());
    let root = with(
        waiting(
            "CreateContainerConfigError",
            "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
        ),
        no_root,
    );
    let mirror = with(
        waiting("CrashLoopBackOff", ""),
        json!({
            "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" }, "ownerReferences": [{ "kind": "Node", "name": "n", "controller": true }] },
            "status": { "containerStatuses": [{ "name": "c", "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "exitCode": 127 } } }] },
        }),
    );
    let mounted = with(
        waiting("ContainerCreating", ""),
        json!({ "spec": { "volumes": [{ "name": "v", "secret": { "secretName": "s" } }] }, "status": { "conditions": conditions(&[("PodReadyToStartContainers", "True")]) } }),
    );
    let late_secret =
        event(&mounted, "FailedMount", "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found");
    let devices = pod(json!({ "status": { "phase": "Pending" } }));
    let unprepared = event(
        &devices,
        "FailedPrepareDynamicResources",
        "Failed to prepare dynamic resources: no plugin gpu.example.com",
    );
    let once = with(
        waiting("CrashLoopBackOff", ""),
        json!({ "status": { "containerStatuses": [{ "name": "c", "restartCount": 1, "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "exitCode": 2 } } }] } }),
    );
    let mut unread = on_node(once.clone());
    unread.unread_logs.insert("p/c".into(), "its log could not be read: Connection refused".into());
    let mut forbidden = on_node(once);
    let line = r#"level=error msg="pods is forbidden: User \"system:serviceaccount:d:sa\" cannot list resource \"pods\" in API group \"\" in the namespace \"d\"""#;
    forbidden.last_lines.insert("p/c".into(), line.into());
    forbidden.read_logs.insert("p/c".into());
    let exec = pod(
        json!({ "spec": { "containers": [{ "name": "c", "readinessProbe": { "exec": { "command": ["test", "-e", "/tmp/a b"] } } }] }, "status": { "containerStatuses": [{ "name": "c", "ready": false, "started": true, "state": { "running": { "startedAt": "2026-01-01T11:58:00Z" } } }] } }),
    );
    let failing = event(&exec, "Unhealthy", "Readiness probe failed: ");
    let silent = pod(
        json!({ "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z" }] } }),
    );
    let pulling = event(&silent, "Pulling", "Pulling image \"img\"");
    let rows: Vec<Situation<'_>> = vec![
        (
            "another error of the configuration",
            on_node(sub_path),
            Reason::ContainerConfiguration,
            &["failed to prepare subPath"],
        ),
        ("a user that is no number", on_node(root), Reason::RunAsRoot, &["must not run as root", "non-numeric user"]),
        ("a pod of a file", on_node(mirror), Reason::Crash, &["change its file on node n", "static pods"]),
        (
            "a Secret that came later",
            with_events(&mounted, json!([late_secret])),
            Reason::Starting,
            &["it is on its way"],
        ),
        (
            "devices that are not prepared",
            with_events(&devices, json!([unprepared])),
            Reason::DeviceClaim,
            &["the kubelet of n cannot get its devices ready", "gpu.example.com"],
        ),
        (
            "once",
            unread,
            Reason::Crash,
            &[
                "container c ends (started again once so far), last with exit code 2",
                "its log could not be read: Connection refused",
            ],
        ),
        (
            "a right that is missing",
            forbidden,
            Reason::Crash,
            &[
                "kubectl create role -n d list-pods --verb=list --resource=pods && kubectl create rolebinding -n d list-pods --role=list-pods --serviceaccount=d:sa",
            ],
        ),
        (
            "a command as a probe",
            with_events(&exec, json!([failing])),
            Reason::ProbeFails,
            &["kubectl exec -n d p -c c -- test -e '/tmp/a b'"],
        ),
        (
            "a kubelet that says nothing",
            with_events(&silent, json!([])),
            Reason::Starting,
            &["probably", "has said nothing of it for 1 h 0 min", "ferry why node/n"],
        ),
        (
            "an image that takes long",
            with_events(&silent, json!([pulling])),
            Reason::Starting,
            &["it is on its way", "Pulling image"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn gates_have_a_moment() {
    let gated = |since: &str| {
        on_node(pod(
            json!({ "spec": { "readinessGates": [{ "conditionType": "a/b" }] }, "status": { "conditions": [{ "type": "ContainersReady", "status": "True", "lastTransitionTime": since }] } }),
        ))
    };
    let rows: Vec<Situation<'_>> = vec![
        ("young", gated("2026-01-01T11:59:50Z"), Reason::ReadinessGate, &["it is on its way"]),
        ("old", gated("2026-01-01T11:50:00Z"), Reason::ReadinessGate, &["it is stuck", "a/b"]),
    ];
    check_all(&rows);
}

#[test]
fn scheduling() {
    let pending = |spec: Value| {
        pod(
            json!({ "spec": spec, "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 node(s) did not match." }] } }),
        )
    };
    let placed = |pod: Value, others: Value| {
        let mut pod = pod;
        pod["spec"]["nodeName"] = "".into();
        let mut here = node("n", "True");
        merge(&mut here, &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "n", "zone": "a" } } }));
        let mut tainted = node("m", "True");
        merge(
            &mut tainted,
            &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "m", "zone": "b" } }, "spec": { "taints": [{ "key": "own", "effect": "NoSchedule" }] } }),
        );
        world(pod, &[("nodes", json!([here, tainted])), (ALL_PODS, others)])
    };
    let both = pending(
        json!({ "nodeSelector": { "disk": "ssd" }, "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "rack", "operator": "Exists" }] }] } } } }),
    );
    let anywhere = pending(
        json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": { "matchLabels": { "app": "db" } } }] } } }),
    );
    let spread = |policy: &str| {
        pending(
            json!({ "topologySpreadConstraints": [{ "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": policy, "labelSelector": { "matchLabels": { "app": "web" } } }] }),
        )
    };
    let other = with(ready_pod(), json!({ "metadata": { "name": "o", "uid": "o" } }));
    let claims = |of: &str| json!([{ "kind": "PersistentVolumeClaim", "metadata": { "name": "p-v", "namespace": "d", "ownerReferences": [{ "uid": of, "controller": true }] }, "status": { "phase": "Bound" } }]);
    let own = pod(
        json!({ "spec": { "nodeName": "", "volumes": [{ "name": "v", "ephemeral": {} }] }, "status": { "phase": "Pending" } }),
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "selector and affinity",
            placed(both, json!([])),
            Reason::NoNodeFits,
            &[
                "does not have the label disk=ssd of nodeSelector, and is not what nodeAffinity asks for: the label rack",
            ],
        ),
        (
            "beside pods of any namespace",
            placed(anywhere, json!([other.clone()])),
            Reason::NoNodeFits,
            &["has no pod with app=db", "kubectl get pods -A -l 'app=db'"],
        ),
        (
            "a tainted zone counts",
            placed(spread(""), json!([other.clone()])),
            Reason::NoNodeFits,
            &["is in zone=a", "another has 0"],
        ),
        (
            "a tainted zone does not count",
            placed(spread("Honor"), json!([other])),
            Reason::NoNodeFits,
            &["nothing was found against n"],
        ),
        (
            "a claim that is not its own",
            world(own.clone(), &[("persistentvolumeclaims", claims("somebody"))]),
            Reason::ClaimMissing,
            &[
                "its volume \"v\" is to be made as the claim p-v, and a claim of that name is there already",
                "kubectl delete pvc -n d p-v",
            ],
        ),
        (
            "a claim that nobody makes",
            world(own.clone(), &[("persistentvolumeclaims", json!([]))]),
            Reason::ClaimMissing,
            &["it is stuck", "waits for the claim p-v, which is made for it", "see that the controllers run"],
        ),
        (
            "its own claim",
            world(own, &[("persistentvolumeclaims", claims("p-uid"))]),
            Reason::NoSuchScheduler,
            &["has not looked at it"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn workloads() {
    let stamped =
        |since: &str| json!({ "spec": { "replicas": 3 }, "metadata": { "managedFields": [{ "time": since }] } });
    let ready = |since: &str| {
        pod(json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": since }] } }))
    };
    let long_ago = "2026-01-01T11:50:00Z";
    let slow = with(stamped(long_ago), json!({ "spec": { "minReadySeconds": 60 } }));
    let set = |name: &str| json!({ "kind": "ReplicaSet", "metadata": { "name": name, "uid": name, "annotations": { "deployment.kubernetes.io/revision": name }, "ownerReferences": [{ "uid": "x", "controller": true }] }, "spec": { "replicas": 1 } });
    let of_set = |set: &str, name: &str| {
        with(
            ready_pod(),
            json!({ "metadata": { "name": name, "uid": name, "ownerReferences": [{ "uid": set, "controller": true }] } }),
        )
    };
    let paused = one(
        "Deployment",
        json!({ "spec": { "replicas": 2, "paused": true }, "status": { "replicas": 2 } }),
        &[
            ("replicasets", json!([set("1"), set("2")])),
            ("pods", json!([of_set("1", "a"), of_set("2", "b")])),
            ("nodes", json!([node("n", "True")])),
        ],
    );
    let unlisted = |since: &str| {
        let service = json!({ "kind": "Service", "metadata": { "name": "s", "namespace": "d" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
        world(ready(since), &[("services", json!([service])), ("endpointslices", json!([]))])
    };
    let governed = owned(
        "StatefulSet",
        json!({ "spec": { "serviceName": "db", "template": { "metadata": { "labels": { "app": "web", "tier": "db" } } } } }),
        &[ready_pod()],
        &[("services", json!([]))],
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "nobody makes them",
            owned("ReplicaSet", stamped(long_ago), &[ready(long_ago)], &[]),
            Reason::PodsMissing,
            &["it is stuck", "1 of 3 pods are ready", "see that the controllers run"],
        ),
        (
            "just asked for",
            owned("ReplicaSet", stamped("2026-01-01T11:59:58Z"), &[ready(long_ago)], &[]),
            Reason::PodsMissing,
            &["it is on its way"],
        ),
        (
            "one after the other",
            owned("StatefulSet", slow, &[ready("2026-01-01T11:59:30Z")], &[]),
            Reason::MinReadySeconds,
            &["it is on its way", "60 s (minReadySeconds): 30 s to go"],
        ),
        ("paused halfway", paused, Reason::Paused, &[FINE, "kubectl rollout resume"]),
        (
            "not listed for long",
            unlisted(long_ago),
            Reason::EndpointsLate,
            &["it is stuck", "does not list its address"],
        ),
        ("not listed yet", unlisted("2026-01-01T11:59:58Z"), Reason::EndpointsLate, &["it is on its way"]),
        (
            "a Service with the right selector",
            governed,
            Reason::ServiceMissing,
            &[
                "kubectl create service clusterip -n d db --clusterip=None && kubectl set selector -n d service/db app=web,tier=db",
            ],
        ),
    ];
    check_all(&rows);
}

#[test]
fn what_is_new_has_a_moment() {
    let young = json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:50Z" } });
    let scaler = |parts: Value| {
        let target =
            json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web" } } });
        let set =
            json!([{ "kind": "ReplicaSet", "metadata": { "name": "web", "uid": "web" }, "spec": { "replicas": 1 } }]);
        let since = json!({ "metadata": { "ownerReferences": [{ "uid": "web", "controller": true }] }, "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:30Z" }] } });
        one("HorizontalPodAutoscaler", with(target, parts), &[("replicasets", set), ("pods", json!([pod(since)]))])
    };
    let no_metrics = json!({ "status": { "conditions": [{ "type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric" }] } });
    let silent = |parts: Value| {
        let mut target = json!({ "kind": "Node", "metadata": { "name": "x", "uid": "x", "creationTimestamp": "2026-01-01T11:00:00Z" }, "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "m" }] } });
        merge(&mut target, &parts);
        world(target, &[])
    };
    let api = json!({ "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "MissingEndpoints" }] } });
    let managed = json!({ "spec": { "managedBy": "acme.io/queue" } });
    let rows: Vec<Situation<'_>> = vec![
        ("figures that are not there yet", scaler(no_metrics), Reason::HpaMetrics, &["it is on its way"]),
        (
            "an autoscaler that nobody has looked at",
            scaler(json!({})),
            Reason::ControllerBehind,
            &["it is stuck", "see that the controllers run"],
        ),
        ("a new autoscaler", scaler(young.clone()), Reason::ControllerBehind, &["it is on its way"]),
        ("a node", silent(json!({})), Reason::NodeNotReady, &["it is stuck"]),
        ("a new node", silent(young.clone()), Reason::NodeNotReady, &["it is on its way"]),
        ("an API", one("APIService", api.clone(), &[]), Reason::ApiServiceUnavailable, &["it is stuck"]),
        (
            "a new API",
            one("APIService", with(api, young.clone()), &[]),
            Reason::ApiServiceUnavailable,
            &["it is on its way"],
        ),
        (
            "a new Job of another controller",
            one("Job", with(managed, young), &[]),
            Reason::JobManaged,
            &["it is on its way"],
        ),
        (
            "a volume just released",
            one(
                "PersistentVolume",
                json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" }, "status": { "phase": "Released", "lastPhaseTransitionTime": "2026-01-01T11:59:55Z" } }),
                &[],
            ),
            Reason::VolumeReleased,
            &["it is on its way"],
        ),
    ];
    check_all(&rows);
}

//! What was tried on a real cluster and was answered wrongly, one row for each.

use serde_json::{Value, json};

use super::{Reason, Situation, check_all, event, findings, merge, node, one, owned, pod, ready_pod, waiting, world};
use crate::gather::ALL_PODS;
use crate::world::{Presence, World};

fn pending(parts: Value, message: &str) -> Value {
    let mut pod = pod(
        json!({ "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }] } }),
    );
    merge(&mut pod, &parts);
    merge(&mut pod, &json!({ "spec": { "nodeName": "" } }));
    pod
}

fn around(target: Value, lists: &[(&str, Value)]) -> World {
    let mut world = world(target, lists);
    let nodes = vec![node("n", "True"), node("m", "True")];
    world.put("nodes", nodes);
    world.put(ALL_PODS, Vec::new());
    world
}

fn required(term: Value) -> Value {
    json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } } } })
}

#[test]
fn scheduling() {
    let asks = required(json!({ "matchExpressions": [{ "key": "cores", "operator": "Gt", "values": ["8"] }] }));
    let named = required(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["gone"] }] }));
    let mut made_for =
        required(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] }));
    merge(
        &mut made_for,
        &json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "64" } } }] } }),
    );
    let claims = json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] } });
    let going = json!([{ "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "d", "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"] } }]);
    let user = pod(
        json!({ "metadata": { "name": "user" }, "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }] } }),
    );
    let devices = json!({ "spec": { "resourceClaims": [{ "name": "g", "resourceClaimName": "gpu" }] } });
    let request = json!({ "kind": "ResourceClaim", "metadata": { "name": "gpu", "namespace": "d" }, "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gone" } }] } } });
    let beside = json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone", "namespaces": ["other"], "labelSelector": { "matchLabels": { "app": "cache" } } }] } } } });
    let mut in_zone = around(pending(beside, "0/2 nodes are available"), &[]);
    let mut zoned = node("n", "True");
    merge(&mut zoned, &json!({ "metadata": { "labels": { "zone": "a" } } }));
    in_zone.put("nodes", vec![zoned]);
    let rows: Vec<Situation<'_>> = vec![
        (
            "greater",
            around(pending(asks, "0/2 nodes are available"), &[]),
            Reason::NoNodeFits,
            &["nodeAffinity asks for: cores greater than 8"],
        ),
        (
            "a name",
            around(pending(named, "0/2 nodes are available"), &[]),
            Reason::NoNodeFits,
            &["nodeAffinity asks for: metadata.name=gone"],
        ),
        (
            "of a DaemonSet",
            around(pending(made_for, "0/2 nodes are available"), &[]),
            Reason::NoNodeFits,
            &["no node can take it: node n has 2 cpu in all, and the pod asks for 64: it will never fit\n"],
        ),
        (
            "a claim that goes",
            around(
                pending(claims, "0/2 nodes are available: persistentvolumeclaim \"c\" is being deleted."),
                &[("persistentvolumeclaims", going), ("pods", json!([user]))],
            ),
            Reason::ClaimMissing,
            &["its claim c is being deleted", "pod/user still uses it"],
        ),
        (
            "a device claim that is not there",
            around(pending(devices.clone(), ""), &[("resourceclaims", json!([])), ("deviceclasses", json!([]))]),
            Reason::DeviceClaim,
            &["needs the ResourceClaim \"gpu\", and there is none in namespace d"],
        ),
        (
            "a class of devices that is not there",
            around(
                pending(devices, "0/2 nodes are available: request r: device class gone does not exist."),
                &[("resourceclaims", json!([request])), ("deviceclasses", json!([]))],
            ),
            Reason::DeviceClaim,
            &["the DeviceClass \"gone\", which does not exist", "pod/p waits for the ResourceClaim gpu"],
        ),
        (
            "of the claim itself",
            one(
                "ResourceClaim",
                json!({ "apiVersion": "resource.k8s.io/v1", "spec": { "devices": { "requests": [{ "exactly": { "deviceClassName": "gone" } }] } } }),
                &[("deviceclasses", json!([]))],
            ),
            Reason::DeviceClaim,
            &["which does not exist", "no DeviceClass at all"],
        ),
        (
            "what only the scheduler knows",
            around(
                pending(json!({}), "0/2 nodes are available: something of an extender. preemption: not helpful."),
                &[],
            ),
            Reason::NoNodeFits,
            &["probably", "finds no node for it: something of an extender\n", "nothing was found against n, m"],
        ),
        (
            "beside pods of another namespace",
            in_zone,
            Reason::NoNodeFits,
            &["kubectl get pods -n other -l 'app=cache'"],
        ),
    ];
    check_all(&rows);
}

fn ended(spec: Value, code: i64) -> Value {
    let status = json!({ "name": "c", "restartCount": 5, "ready": false, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": code, "startedAt": "2026-01-01T11:59:30Z", "finishedAt": "2026-01-01T11:59:50Z" } } });
    pod(json!({ "spec": { "containers": [spec] }, "status": { "containerStatuses": [status] } }))
}

fn with_event(target: Value, reason: &str, message: &str) -> World {
    let mut told = event(&target, reason, message);
    told["lastTimestamp"] = "2026-01-01T11:52:00Z".into();
    let mut world = world(target, &[("nodes", json!([node("n", "True")]))]);
    world.put("events", vec![told]);
    world
}

#[test]
fn containers() {
    let probe = json!({ "httpGet": { "path": "/", "port": 8080 } });
    let unhealthy = |kind: &str| {
        format!("{kind} probe failed: Get \"http://10.0.0.1:8080/\": dial tcp: connect: connection refused")
    };
    let running = |probe: Value| {
        let status = json!({ "name": "c", "ready": false, "started": true, "state": { "running": { "startedAt": "2026-01-01T11:51:00Z" } } });
        pod(
            json!({ "spec": { "containers": [{ "name": "c", "readinessProbe": probe }] }, "status": { "containerStatuses": [status] } }),
        )
    };
    let evicted = pod(
        json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1Mi" } }] }, "status": { "phase": "Failed", "reason": "Evicted", "message": "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\"." } }),
    );
    let late = pod(
        json!({ "spec": { "activeDeadlineSeconds": 3 }, "status": { "phase": "Failed", "reason": "DeadlineExceeded" } }),
    );
    let mut private = world(waiting("ErrImagePull", "img: not found"), &[("nodes", json!([node("n", "True")]))]);
    merge(&mut private.target, &json!({ "spec": { "imagePullSecrets": [{ "name": "r" }] } }));
    private.note("secrets", "r", Presence::Absent);
    let mut waits = world(
        pod(
            json!({ "spec": { "initContainers": [{ "name": "i" }] }, "status": { "phase": "Pending", "initContainerStatuses": [{ "name": "i", "state": { "running": {} } }] } }),
        ),
        &[("nodes", json!([node("n", "True")]))],
    );
    waits.last_lines.insert("p/i".into(), "waiting for db".into());
    let of_job = |owners: Value| {
        let mut pod = waiting("ErrImagePull", "img: not found");
        merge(
            &mut pod,
            &json!({ "metadata": { "ownerReferences": [{ "kind": "Job", "name": "j", "uid": "j", "controller": true }] } }),
        );
        let job = json!({ "kind": "Job", "metadata": { "name": "j", "uid": "j", "ownerReferences": owners } });
        world(pod, &[("nodes", json!([node("n", "True")])), ("jobs", json!([job]))])
    };
    let rows: Vec<Situation<'_>> = vec![
        // The Events of the latest restarts were dropped: those before tell the same.
        (
            "liveness",
            with_event(ended(json!({ "name": "c", "livenessProbe": probe }), 137), "Unhealthy", &unhealthy("Liveness")),
            Reason::LivenessRestarts,
            &["its livenessProbe fails"],
        ),
        (
            "startup",
            with_event(ended(json!({ "name": "c", "startupProbe": probe }), 143), "Unhealthy", &unhealthy("Startup")),
            Reason::LivenessRestarts,
            &["its startupProbe fails"],
        ),
        (
            "by itself",
            with_event(ended(json!({ "name": "c", "livenessProbe": probe }), 1), "Unhealthy", &unhealthy("Liveness")),
            Reason::Crash,
            &["exit code 1"],
        ),
        (
            "hook",
            with_event(
                ended(
                    json!({ "name": "c", "lifecycle": { "postStart": { "exec": { "command": ["sh", "-c", "exit 3"] } } } }),
                    137,
                ),
                "FailedPostStartHook",
                "PostStartHook failed",
            ),
            Reason::HookFailed,
            &["the postStart hook of container c fails", "the hook is the command `sh -c exit 3`"],
        ),
        (
            "probe without its command",
            with_event(
                running(json!({ "exec": { "command": ["curl"] } })),
                "Unhealthy",
                "Readiness probe errored and resulted in unknown state: exec failed: exec: \"curl\": executable file not found in $PATH",
            ),
            Reason::ProbeFails,
            &["is not in the image", "use a command that the image has"],
        ),
        (
            "HTTPS",
            with_event(
                running(json!({ "httpGet": { "path": "/", "port": 80, "scheme": "HTTPS" } })),
                "Unhealthy",
                "Readiness probe failed: Get \"https://10.0.0.1:80/\": context deadline exceeded",
            ),
            Reason::ProbeFails,
            &["over HTTPS", "take scheme: HTTPS away"],
        ),
        (
            "too much in an emptyDir",
            world(evicted, &[]),
            Reason::Evicted,
            &["its emptyDir volume \"v\" has more in it than its sizeLimit of 1Mi"],
        ),
        ("deadline", world(late, &[]), Reason::PodDeadline, &["raise activeDeadlineSeconds"]),
        ("hidden image", private, Reason::ImageNotFound, &["the Secret \"r\" of spec.imagePullSecrets does not exist"]),
        ("init container", waits, Reason::InitRunning, &["its log says: waiting for db"]),
        ("of a Job", of_job(json!([])), Reason::ImageNotFound, &["kubectl delete -n d job/j"]),
        (
            "of a CronJob",
            of_job(json!([{ "kind": "CronJob", "name": "c", "uid": "c", "controller": true }])),
            Reason::ImageNotFound,
            &["kubectl edit -n d cronjob/c"],
        ),
    ];
    check_all(&rows);
    // A log that was not asked for is not said to be empty.
    let silent = with_event(ended(json!({ "name": "c" }), 1), "BackOff", "");
    assert!(!format!("{:?}", findings(&silent)).contains("it wrote nothing"));
}

#[test]
fn the_rest() {
    let set = json!({ "kind": "ReplicaSet", "metadata": { "name": "old", "uid": "rs", "ownerReferences": [{ "uid": "x", "controller": true }] } });
    let old = pod(
        json!({ "metadata": { "name": "old-1", "ownerReferences": [{ "uid": "rs", "controller": true }], "deletionTimestamp": "2026-01-01T12:05:00Z", "deletionGracePeriodSeconds": 600 } }),
    );
    let recreated = one(
        "Deployment",
        json!({ "apiVersion": "apps/v1", "spec": { "replicas": 1, "strategy": { "type": "Recreate" } } }),
        &[("replicasets", json!([set])), ("pods", json!([old]))],
    );
    let service = |protocol: &str, target: Value, pods: Value| {
        let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 53, "protocol": protocol, "targetPort": target }] });
        let target = json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": "s", "namespace": "d", "uid": "s" }, "spec": spec });
        world(target, &[("pods", pods), ("endpointslices", json!([])), ("nodes", json!([node("n", "True")]))])
    };
    let mut listening = ready_pod();
    merge(
        &mut listening,
        &json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "name": "dns", "containerPort": 53 }] }] } }),
    );
    let over = pod(json!({ "status": { "phase": "Succeeded" } }));
    let scaler = |kind: &str, condition: (&str, &str), more: &[(&str, Value)]| {
        let spec = json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": kind, "name": "w" } });
        one(
            "HorizontalPodAutoscaler",
            json!({ "apiVersion": "autoscaling/v2", "spec": spec, "status": { "conditions": [{ "type": condition.0, "status": "False", "reason": condition.1 }] } }),
            more,
        )
    };
    let other = json!([{ "metadata": { "name": "other" }, "spec": { "scaleTargetRef": { "name": "w" } } }]);
    let refusing = |message: &str| {
        let mut set = owned(
            "ReplicaSet",
            json!({ "apiVersion": "apps/v1", "status": { "replicas": 0, "currentNumberScheduled": 0, "observedGeneration": 1 } }),
            &[],
            &[],
        );
        set.put("events", vec![event(&set.target, "FailedCreate", message)]);
        set
    };
    let rows: Vec<Situation<'_>> = vec![
        ("recreate", recreated, Reason::PodsMissing, &["strategy Recreate): old-1 has not yet", "300 s of 600 s left"]),
        (
            "other protocol",
            service("UDP", json!("dns"), json!([listening])),
            Reason::PortName,
            &["its port 53/UDP leads to the container port \"dns\", which is TCP"],
        ),
        (
            "over",
            service("TCP", json!(80), json!([over])),
            Reason::PodsNotReady,
            &["app=web matches are over: p has succeeded"],
        ),
        (
            "no scale",
            scaler("DaemonSet", ("AbleToScale", "FailedGetScale"), &[]),
            Reason::HpaTarget,
            &["a DaemonSet has no number of replicas"],
        ),
        (
            "two scalers",
            scaler("Deployment", ("ScalingActive", "AmbiguousSelector"), &[("horizontalpodautoscalers", other)]),
            Reason::HpaTarget,
            &["another autoscaler has the same pods, other", "kubectl delete -n d hpa/other"],
        ),
        (
            "baseline",
            refusing(
                "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)",
            ),
            Reason::PodSecurity,
            &["pod-security.kubernetes.io/enforce=privileged"],
        ),
        (
            "restricted",
            refusing(
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must set it), runAsNonRoot != true (pod must set it)",
            ),
            Reason::PodSecurity,
            &["pod-security.kubernetes.io/enforce=baseline"],
        ),
    ];
    check_all(&rows);
}

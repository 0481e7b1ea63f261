//! Pods on their node.

use serde_json::json;

use super::*;

#[test]
fn what_becomes_of_pods() {
    let running = json!({ "name": "c", "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } });
    let over = |code: i64| json!({ "name": "once", "ready": false, "restartCount": 0, "state": { "terminated": { "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "finishedAt": "2026-01-01T11:00:09Z" } } });
    let unready = json!([{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }]);
    let beside = |code: i64| {
        pod(json!({
            "spec": { "containers": [{ "name": "once", "image": "img", "restartPolicy": "Never" }, { "name": "c", "image": "img" }] },
            "status": { "conditions": unready, "containerStatuses": [over(code), running] },
        }))
    };
    let failed = |reason: &str, message: &str, conditions: Value| {
        pod(json!({ "status": { "phase": "Failed", "reason": reason, "message": message, "conditions": conditions } }))
    };
    let target = |reason: &str, message: &str| json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message }]);
    let mounts =
        json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } });
    let creating = |parts: &Value| with(waiting("ContainerCreating", "", json!({})), parts);
    let claim = made(
        "PersistentVolumeClaim",
        "data",
        json!({ "spec": { "volumeName": "pv-nfs" }, "status": { "phase": "Bound" } }),
    );
    let volume = made(
        "PersistentVolume",
        "pv-nfs",
        json!({ "spec": { "nfs": { "server": "nfs.example", "path": "/x" }, "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" } }, "status": { "phase": "Bound" } }),
    );
    let pulling = |parts: &Value| with(waiting("ErrImagePull", "r.example/a:2: not found", json!({})), parts);
    let job = |parts: &Value| with(made("Job", "c-29", json!({ "spec": {} })), parts);
    let set = made("StatefulSet", "prometheus-k8s", owner("monitoring.coreos.com/v1", "Prometheus", "k8s"));
    let going =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "deletionGracePeriodSeconds": 30 } });
    let sidecar = json!({ "spec": { "initContainers": [{ "name": "proxy", "image": "img", "restartPolicy": "Always", "startupProbe": { "httpGet": { "path": "/ready", "port": 15021 }, "failureThreshold": 3 } }] } });
    let cases: Vec<Case<'_>> = vec![
        ("done for good beside one that runs", "pod/p", json!([beside(0)]), Well, &[]),
        (
            "failed for good beside one that runs",
            "pod/p",
            json!([beside(3)]),
            Stuck(Reason::Crash),
            &["container once", "exit code 3", "restartPolicy Never does not start it again"],
        ),
        (
            "its node was shut down",
            "pod/p",
            json!([failed(
                "Terminated",
                "Pod was terminated in response to imminent node shutdown.",
                target("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")
            )]),
            Stuck(Reason::PodDisrupted),
            &["node n was shut down"],
        ),
        (
            "refused by a node that shuts down",
            "pod/p",
            json!([failed("NodeShutdown", "Pod was rejected as the node is shutting down.", json!([]))]),
            Stuck(Reason::PodDisrupted),
            &["node n was shutting down"],
        ),
        (
            "its node was deleted",
            "pod/p",
            json!([failed("", "", target("DeletionByPodGC", "PodGC: node no longer exists"))]),
            Stuck(Reason::PodDisrupted),
            &["its node n was gone"],
        ),
        (
            "made way for a critical pod",
            "pod/p",
            json!([failed("Preempting", "Preempted in order to admit critical pod", json!([]))]),
            Stuck(Reason::PodDisrupted),
            &["critical pod", "delete it and create it again"],
        ),
        (
            "too little memory on the node",
            "pod/p",
            json!([failed(
                "Evicted",
                "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 3Gi, request is 0, has larger consumption of memory. ",
                target("TerminationByKubelet", "The node was low on resource: memory.")
            )]),
            Stuck(Reason::Evicted),
            &["memory", "Container c was using 3Gi"],
        ),
        (
            "a file system of the network",
            "pod/p",
            json!([
                creating(&mounts),
                claim,
                volume,
                warned(
                    "Pod/p",
                    "FailedMount",
                    "MountVolume.SetUp failed for volume \"pv-nfs\" : mount failed: exit status 32: mount.nfs: Connection timed out"
                )
            ]),
            Stuck(Reason::Volume),
            &["its volume \"data\"", "pv-nfs", "Connection timed out"],
        ),
        (
            "volumes that nobody mounts",
            "pod/p",
            json!([
                creating(&mounts),
                claim,
                volume,
                warned(
                    "Pod/p",
                    "FailedMount",
                    "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data kube-api-access-x]: timed out waiting for the condition"
                )
            ]),
            Stuck(Reason::Volume),
            &["its volume \"data\"", "claim data"],
        ),
        (
            "attached elsewhere",
            "pod/p",
            json!([
                creating(&mounts),
                claim,
                volume,
                with(
                    serving(mounts.clone()),
                    &json!({ "metadata": { "name": "old", "uid": "old" }, "spec": { "nodeName": "m" } })
                ),
                warned(
                    "Pod/p",
                    "FailedAttachVolume",
                    "Multi-Attach error for volume \"pv-nfs\" Volume is already used by pod(s) old"
                )
            ]),
            Stuck(Reason::Volume),
            &["pod/old on node m uses the same claim data"],
        ),
        (
            "the kubelet cannot go on",
            "pod/p",
            json!([
                creating(&json!({})),
                warned(
                    "Pod/p",
                    "FailedCreatePodContainer",
                    "unable to ensure pod container exists: failed to create container for [kubepods besteffort podx]: no space left on device"
                )
            ]),
            Stuck(Reason::Starting),
            &["probably", "no space left on device"],
        ),
        (
            "of a CronJob's Job",
            "pod/p",
            json!([
                pulling(&owner("batch/v1", "Job", "c-29")),
                job(&owner("batch/v1", "CronJob", "c")),
                made("CronJob", "c", json!({}))
            ]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d cronjob/c"],
        ),
        (
            "of an operator's StatefulSet",
            "pod/p",
            json!([pulling(&owner("apps/v1", "StatefulSet", "prometheus-k8s")), set]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d prometheus.monitoring.coreos.com/k8s"],
        ),
        (
            "of a Job of others",
            "pod/p",
            json!([pulling(&owner("batch.volcano.sh/v1alpha1", "Job", "train"))]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d job.batch.volcano.sh/train", "!cannot be changed"],
        ),
        (
            "of a Deployment",
            "pod/p",
            json!([
                pulling(&owner("apps/v1", "ReplicaSet", "web-1")),
                made("ReplicaSet", "web-1", owner("apps/v1", "Deployment", "web"))
            ]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d deployment/web"],
        ),
        (
            "an init container's image",
            "pod/p",
            json!([pod(
                json!({ "spec": { "initContainers": [{ "name": "setup", "image": "r.example/s:1" }] }, "status": { "phase": "Pending",
            "initContainerStatuses": [{ "name": "setup", "image": "r.example/s:1", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"r.example/s:1\": ErrImagePull: failed to pull and unpack image \"r.example/s:1\": unexpected status from HEAD request to https://r.example/v2/s/manifests/1: 403 Forbidden" } } }],
            "containerStatuses": [{ "name": "c", "image": "img", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "PodInitializing" } } }] } })
            )]),
            Stuck(Reason::PullUnauthorized),
            &["init container setup", "r.example"],
        ),
        (
            "an init container without its key",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "initContainers": [{ "name": "setup", "image": "img", "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "token" } } }] }] }, "status": { "phase": "Pending",
            "initContainerStatuses": [{ "name": "setup", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "CreateContainerConfigError", "message": "couldn't find key token in Secret d/s" } } }] } })
                ),
                made("Secret", "s", json!({ "type": "Opaque", "data": { "toke": "eA==" } }))
            ]),
            Stuck(Reason::KeyMissing),
            &["init container setup", "\"token\"", "it has toke"],
        ),
        (
            "an init container that needs more memory",
            "pod/p",
            json!([pod(
                json!({ "spec": { "initContainers": [{ "name": "migrate", "image": "img", "resources": { "limits": { "memory": "64Mi" } } }] }, "status": { "phase": "Pending",
            "initContainerStatuses": [{ "name": "migrate", "ready": false, "restartCount": 4, "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T11:57:00Z", "finishedAt": "2026-01-01T11:57:20Z" } } }] } })
            )]),
            Stuck(Reason::OutOfMemory),
            &["init container migrate", "its limit of 64Mi"],
        ),
        (
            "out of the pod's own memory",
            "pod/p",
            json!([crashing(
                json!({ "exitCode": 137, "reason": "OOMKilled" }),
                json!({ "spec": { "resources": { "limits": { "memory": "128Mi" } } } })
            )]),
            Stuck(Reason::OutOfMemory),
            &["the pod's limit of 128Mi", "spec.resources.limits.memory"],
        ),
        (
            "a task out of memory",
            "pod/p",
            json!([pod(
                json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "img", "resources": { "limits": { "memory": "1Gi" } } }] }, "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } }] } })
            )]),
            Stuck(Reason::OutOfMemory),
            &["it failed", "its limit of 1Gi"],
        ),
        (
            "a secret among several sources",
            "pod/p",
            json!([
                creating(
                    &json!({ "spec": { "volumes": [{ "name": "all", "projected": { "sources": [{ "configMap": { "name": "cfg" } }, { "secret": { "name": "tls" } }, { "downwardAPI": {} }] } }] } })
                ),
                made("ConfigMap", "cfg", json!({ "data": { "a": "1" } })),
                warned(
                    "Pod/p",
                    "FailedMount",
                    "MountVolume.SetUp failed for volume \"all\" : secret \"tls\" not found"
                )
            ]),
            Stuck(Reason::SecretMissing),
            &["its volume \"all\" needs the Secret \"tls\"", "kubectl create secret generic -n d tls"],
        ),
        (
            "the CA that a controller brings",
            "pod/p",
            json!([creating(
                &json!({ "spec": { "volumes": [{ "name": "kube-api-access-x", "projected": { "sources": [{ "serviceAccountToken": {} }, { "configMap": { "name": "kube-root-ca.crt" } }] } }] } })
            )]),
            Stuck(Reason::ConfigMapMissing),
            &["see that the controllers run", "!kubectl create configmap"],
        ),
        (
            "a folder that cannot be made",
            "pod/p",
            json!([
                waiting(
                    "CreateContainerConfigError",
                    "failed to prepare subPath for volumeMount \"data\" of container \"c\"",
                    mounts.clone()
                ),
                claim,
                volume
            ]),
            Stuck(Reason::ContainerConfiguration),
            &["failed to prepare subPath"],
        ),
        (
            "a sidecar that does not start",
            "pod/p",
            json!([
                with(
                    pod(sidecar.clone()),
                    &json!({ "status": { "phase": "Pending", "initContainerStatuses": [{ "name": "proxy", "ready": false, "started": false, "restartCount": 2, "state": { "running": { "startedAt": "2026-01-01T11:58:00Z" } } }],
            "containerStatuses": [{ "name": "c", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "PodInitializing" } } }] } })
                ),
                with(
                    warned("Pod/p", "Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 503"),
                    &json!({ "involvedObject": { "fieldPath": "spec.initContainers{proxy}" } })
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["sidecar proxy", "startupProbe fails", "the containers after it wait"],
        ),
        (
            "a sidecar that is not ready",
            "pod/p",
            json!([
                with(
                    pod(
                        json!({ "spec": { "initContainers": [{ "name": "proxy", "image": "img", "restartPolicy": "Always", "readinessProbe": { "tcpSocket": { "port": 9000 } } }] } })
                    ),
                    &json!({ "status": { "conditions": unready, "initContainerStatuses": [{ "name": "proxy", "ready": false, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:02Z" } } }], "containerStatuses": [running] } })
                ),
                with(
                    warned(
                        "Pod/p",
                        "Unhealthy",
                        "Readiness probe failed: dial tcp 10.0.0.1:9000: connect: connection refused"
                    ),
                    &json!({ "involvedObject": { "fieldPath": "spec.initContainers{proxy}" } })
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["sidecar proxy", "nothing listens on port 9000"],
        ),
        (
            "health by gRPC",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "readinessProbe": { "grpc": { "port": 50051, "service": "api" } } }] }, "status": { "conditions": unready, "containerStatuses": [{ "name": "c", "ready": false, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:02Z" } } }] } })
                ),
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")"
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["gRPC health on port 50051", "NOT_SERVING"],
        ),
        (
            "a pod that cannot be killed",
            "pod/p",
            json!([
                with(serving(going.clone()), &json!({})),
                warned(
                    "Pod/p",
                    "FailedKillPod",
                    "error killing pod: failed to stop container c: context deadline exceeded"
                )
            ]),
            Stuck(Reason::KubeletEndsNot),
            &["failed to stop container c"],
        ),
        (
            "a debugger that has ended",
            "pod/p",
            json!([serving(
                json!({ "status": { "ephemeralContainerStatuses": [{ "name": "debugger", "state": { "terminated": { "exitCode": 137, "reason": "Error" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a pod of a file",
            "pod/p",
            json!([
                with(
                    crashing(
                        json!({}),
                        json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file" } } })
                    ),
                    &owner("v1", "Node", "n")
                ),
                log("p/c", "Error: bind: address already in use\n")
            ]),
            Stuck(Reason::Crash),
            &["address already in use"],
        ),
        (
            "a user namespace that the node does not have",
            "pod/p",
            json!([
                with(creating(&json!({})), &json!({ "spec": { "hostUsers": false } })),
                warned(
                    "Pod/p",
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: the handler \"\" does not support user namespaces"
                )
            ]),
            Stuck(Reason::Sandbox),
            &["does not support user namespaces", "hostUsers"],
        ),
        (
            "no addresses left",
            "pod/p",
            json!([
                creating(&json!({})),
                warned(
                    "Pod/p",
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox: plugin type=\"host-local\" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.254"
                )
            ]),
            Stuck(Reason::Sandbox),
            &["no IP addresses available"],
        ),
        (
            "a handler that the node does not have",
            "pod/p",
            json!([
                with(creating(&json!({})), &json!({ "spec": { "runtimeClassName": "gvisor" } })),
                warned(
                    "Pod/p",
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for \"runsc\" is configured"
                )
            ]),
            Stuck(Reason::Sandbox),
            &["RuntimeClass \"gvisor\"", "kubectl get runtimeclass gvisor -o yaml"],
        ),
        (
            "an ended pod in the way of nothing",
            "pod/p",
            json!([pod(json!({ "status": { "phase": "Succeeded", "containerStatuses": [over(0)] } }))]),
            Well,
            &[],
        ),
        (
            "done, with a sidecar that was ended",
            "pod/p",
            json!([with(
                pod(sidecar),
                &json!({ "spec": { "restartPolicy": "Never" }, "status": { "phase": "Succeeded", "initContainerStatuses": [{ "name": "proxy", "state": { "terminated": { "exitCode": 137, "reason": "Error" } } }], "containerStatuses": [over(0)] } })
            )]),
            Well,
            &[],
        ),
    ];
    examine(&cases);
}

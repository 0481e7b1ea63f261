//! Pods that were tried when the rules for those of `told_pods` were there.

use serde_json::json;

use super::*;

#[test]
fn pods_that_came_later() {
    let cases: Vec<Case<'_>> = vec![
        (
            "two labels wanted, each on another node",
            "pod/p",
            json!([
                unscheduled(
                    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
                    json!({ "spec": { "nodeSelector": { "disk": "ssd", "zone": "b" } } })
                ),
                with(node("a", "True"), &json!({ "metadata": { "labels": { "disk": "ssd", "zone": "a" } } })),
                with(node("b", "True"), &json!({ "metadata": { "labels": { "disk": "hdd", "zone": "b" } } }))
            ]),
            Stuck(Reason::NoNodeFits),
            &["node a", "zone=b", "node b", "disk=ssd"],
        ),
        (
            "Windows wanted, Linux there",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
                    json!({ "spec": { "os": { "name": "windows" }, "nodeSelector": { "kubernetes.io/os": "windows" } } })
                ),
                with(node("n", "True"), &json!({ "metadata": { "labels": { "kubernetes.io/os": "linux" } } }))
            ]),
            Stuck(Reason::NoNodeFits),
            &["kubernetes.io/os=windows", "!kubectl label node"],
        ),
        (
            "huge pages beyond what is set aside",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 Insufficient hugepages-2Mi.",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "hugepages-2Mi": "512Mi", "memory": "1Gi" }, "requests": { "hugepages-2Mi": "512Mi", "memory": "1Gi" } } }] } })
                ),
                with(
                    node("n", "True"),
                    &json!({ "status": { "allocatable": { "hugepages-2Mi": "128Mi" }, "capacity": { "hugepages-2Mi": "128Mi" } } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["hugepages-2Mi", "128Mi", "512Mi"],
        ),
        (
            "beside pods whose namespaces nobody labelled",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
                    json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "labelSelector": { "matchLabels": { "app": "db" } }, "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "data" } }, "topologyKey": "kubernetes.io/hostname" }] } } } })
                ),
                with(node("n", "True"), &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "n" } } })),
                made(
                    "Namespace",
                    "data",
                    json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "data" } } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["app=db", "kubectl get pods -n data"],
        ),
        (
            "a device that one other has, and one that is sick",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 cannot allocate all claims.",
                    json!({ "spec": { "resourceClaims": [{ "name": "gpu", "resourceClaimName": "g" }], "containers": [{ "name": "c", "image": "img" }] } })
                ),
                made(
                    "ResourceClaim",
                    "g",
                    json!({ "spec": { "devices": { "requests": [{ "name": "g", "exactly": { "deviceClassName": "gpu" } }] } } })
                ),
                made(
                    "ResourceClaim",
                    "o",
                    json!({ "spec": { "devices": { "requests": [{ "name": "g", "exactly": { "deviceClassName": "gpu" } }] } }, "status": { "allocation": { "devices": { "results": [{ "driver": "gpu.example.com", "pool": "n", "device": "gpu1" }] } }, "reservedFor": [{ "resource": "pods", "name": "train" }] } })
                ),
                made("DeviceClass", "gpu", json!({})),
                made(
                    "ResourceSlice",
                    "n-1",
                    json!({ "spec": { "driver": "gpu.example.com", "nodeName": "n", "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 }, "devices": [{ "name": "gpu0", "taints": [{ "key": "gpu.example.com/unhealthy", "value": "ecc", "effect": "NoExecute" }] }, { "name": "gpu1" }] } })
                )
            ]),
            Stuck(Reason::DeviceClaim),
            &["gpu0", "gpu.example.com/unhealthy=ecc:NoExecute"],
        ),
        (
            "room enough, but of smaller pieces",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) did not have enough free storage.",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "storageClassName": "lvm", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "100Gi" } } }, "status": { "phase": "Pending" } })
                ),
                made(
                    "StorageClass",
                    "lvm",
                    json!({ "provisioner": "topolvm.io", "volumeBindingMode": "WaitForFirstConsumer" })
                ),
                made("CSIDriver", "topolvm.io", json!({ "spec": { "storageCapacity": true } })),
                made(
                    "CSIStorageCapacity",
                    "lvm-n",
                    json!({ "storageClassName": "lvm", "capacity": "200Gi", "maximumVolumeSize": "50Gi", "nodeTopology": {} })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["50Gi", "100Gi", "data"],
        ),
        (
            "a sidecar asks for the most",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 Insufficient cpu.",
                    json!({ "spec": { "initContainers": [{ "name": "mesh", "image": "i", "restartPolicy": "Always", "resources": { "requests": { "cpu": "1500m" } } }], "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "1" } } }] } })
                ),
                node("n", "True")
            ]),
            Stuck(Reason::NoNodeFits),
            &["2500m", "never fit", "!init container mesh asks"],
        ),
        (
            "all well, but Kueue has let go a moment ago",
            "pod/p",
            json!([unscheduled(
                "",
                json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:58Z" }, "status": { "conditions": [] } })
            )]),
            Way(Reason::NoSuchScheduler),
            &[],
        ),
        (
            "an image whose registry has another name in its certificate",
            "pod/p",
            json!([waiting(
                "ErrImagePull",
                "failed to do request: Head \"https://10.1.1.5:5000/v2/a/manifests/1\": tls: failed to verify certificate: x509: certificate is valid for registry.local, not 10.1.1.5",
                json!({ "spec": { "containers": [{ "name": "c", "image": "10.1.1.5:5000/a:1" }] } })
            )]),
            Stuck(Reason::RegistryCertificate),
            &["other names"],
        ),
        (
            "a proxy that wants a password",
            "pod/p",
            json!([waiting(
                "ErrImagePull",
                "failed to do request: Head \"https://r.example/v2/a/manifests/1\": Proxy Authentication Required",
                json!({ "spec": { "containers": [{ "name": "c", "image": "r.example/a:1" }] } })
            )]),
            Stuck(Reason::RegistryUnreachable),
            &["roxy"],
        ),
        (
            "a volume of an image that is not there",
            "pod/p",
            json!([waiting(
                "ErrImagePull",
                "failed to pull and unpack image \"r.example/model:1\": r.example/model:1: not found",
                json!({ "spec": { "volumes": [{ "name": "model", "image": { "reference": "r.example/model:1" } }] } })
            )]),
            Stuck(Reason::ImageNotFound),
            &["volume \"model\""],
        ),
        (
            "variables from a Secret whose key has a typo",
            "pod/p",
            json!([
                waiting(
                    "CreateContainerConfigError",
                    "couldn't find key passwrod in Secret d/db",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "env": [{ "name": "P", "valueFrom": { "secretKeyRef": { "name": "db", "key": "passwrod" } } }] }] } })
                ),
                made("Secret", "db", json!({ "data": { "password": "eA==", "user": "eA==" } }))
            ]),
            Stuck(Reason::KeyMissing),
            &["passwrod", "it has password"],
        ),
        (
            "a map that came a moment ago",
            "pod/p",
            json!([
                waiting(
                    "ContainerCreating",
                    "",
                    json!({ "spec": { "volumes": [{ "name": "cfg", "configMap": { "name": "cfg" } }] } })
                ),
                with(
                    warned(
                        "Pod/p",
                        "FailedMount",
                        "MountVolume.SetUp failed for volume \"cfg\" : configmap \"cfg\" not found"
                    ),
                    &json!({ "lastTimestamp": "2026-01-01T11:59:10Z" })
                ),
                made("ConfigMap", "cfg", json!({ "data": { "a": "1" } }))
            ]),
            Way(Reason::Volume),
            &["is there now"],
        ),
        (
            "a share that another user owns",
            "pod/p",
            json!([
                crashing(
                    json!({ "exitCode": 1 }),
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }], "containers": [{ "name": "c", "image": "img", "securityContext": { "runAsUser": 999 }, "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] } })
                ),
                log("p/c", "mkdir: cannot create directory '/data/db': Permission denied\n"),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" }, "nfs": { "server": "s", "path": "/x" } }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Crash),
            &["runs as user 999"],
        ),
        (
            "two containers want one port",
            "pod/p",
            json!([
                crashing(
                    json!({}),
                    json!({ "spec": { "containers": [{ "name": "web", "image": "i", "ports": [{ "containerPort": 8080 }] }, { "name": "c", "image": "img" }] } })
                ),
                log("p/c", "Error: listen EADDRINUSE: address already in use :::8080\n")
            ]),
            Stuck(Reason::Crash),
            &["container web", "8080"],
        ),
        (
            "it restarts without end after a check of life",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 8080 }], "livenessProbe": { "httpGet": { "path": "/live", "port": 8080 } } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }], "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 21, "state": { "running": { "startedAt": "2026-01-01T11:59:20Z" } }, "lastState": { "terminated": { "exitCode": 137, "reason": "Error", "startedAt": "2026-01-01T11:57:50Z", "finishedAt": "2026-01-01T11:59:00Z" } } }] } })
                ),
                warned("Pod/p", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
                with(
                    warned("Pod/p", "Killing", "Container c failed liveness probe, will be restarted"),
                    &json!({ "type": "Normal" })
                )
            ]),
            Stuck(Reason::LivenessRestarts),
            &["/live", "500"],
        ),
        (
            "a check that wants HTTPS",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 8080 }], "readinessProbe": { "httpGet": { "path": "/", "port": 8080 } } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }], "containerStatuses": [{ "name": "c", "ready": false, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }] } })
                ),
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Readiness probe failed: Get \"http://10.0.0.1:8080/\": net/http: HTTP/1.x transport connection broken: malformed HTTP response \"\\x15\\x03\\x01\\x00\\x02\\x02\""
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["scheme: HTTPS"],
        ),
        (
            "evicted: too many processes",
            "pod/p",
            json!([pod(
                json!({ "status": { "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: pids. Threshold quantity: 100, available: 12. " } })
            )]),
            Stuck(Reason::Evicted),
            &["pids"],
        ),
        (
            "resized, and the runtime refused",
            "pod/p",
            json!([serving(
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "failed to shrink memory limit below current usage" }] } })
            )]),
            Stuck(Reason::PodResize),
            &["below current usage"],
        ),
        (
            "it waits beside a volume that goes",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: persistentvolumeclaim \"data\" is being deleted.",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv" }, "status": { "phase": "Bound" }, "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "finalizers": ["kubernetes.io/pvc-protection"] } })
                ),
                serving(
                    json!({ "metadata": { "name": "old", "uid": "old" }, "spec": { "nodeName": "n", "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                )
            ]),
            Stuck(Reason::ClaimMissing),
            &["data", "pod/old"],
        ),
        (
            "a helper of debugging that cannot be pulled",
            "pod/p",
            json!([serving(
                json!({ "status": { "ephemeralContainerStatuses": [{ "name": "dbg", "image": "nope", "state": { "waiting": { "reason": "ErrImagePull", "message": "not found" } } }] } })
            )]),
            Note(Reason::EphemeralContainer),
            &["dbg"],
        ),
        (
            "well in spite of a neighbour's Events",
            "pod/p",
            json!([serving(json!({})), warned("Pod/q", "BackOff", "Back-off restarting failed container")]),
            Well,
            &[],
        ),
        (
            "ready, on a node that was away for a minute",
            "pod/p",
            json!([
                serving(json!({})),
                with(
                    node("n", "True"),
                    &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T11:59:20Z" }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a Deployment that grew by itself",
            "deployment/web",
            json!([
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2, "conditions": [{ "type": "Available", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "ReplicaSet",
                    "web-1",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "2" } }, "spec": { "replicas": 2 }, "status": { "replicas": 1, "observedGeneration": 1 } })
                ),
                with(
                    serving(json!({ "metadata": { "name": "x", "uid": "x" }, "spec": { "nodeName": "n" } })),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    serving(json!({ "metadata": { "name": "y", "uid": "y" }, "spec": { "nodeName": "n" } })),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                made(
                    "HorizontalPodAutoscaler",
                    "web",
                    json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 1, "maxReplicas": 5, "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } } }] }, "status": { "currentReplicas": 2, "desiredReplicas": 2 } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a set of three",
            "statefulset/db",
            json!([
                made(
                    "StatefulSet",
                    "db",
                    json!({ "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "db" } }, "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentRevision": "a", "updateRevision": "a" } })
                ),
                with(
                    with(
                        serving(json!({})),
                        &json!({ "metadata": { "name": "db-0", "uid": "db-0", "labels": { "app": "db" } } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "statefulset-db", "controller": true }] } })
                ),
                with(
                    with(
                        serving(json!({})),
                        &json!({ "metadata": { "name": "db-1", "uid": "db-1", "labels": { "app": "db" } } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "statefulset-db", "controller": true }] } })
                ),
                with(
                    with(
                        serving(json!({})),
                        &json!({ "metadata": { "name": "db-2", "uid": "db-2", "labels": { "app": "db" } } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "statefulset-db", "controller": true }] } })
                )
            ]),
            Well,
            &[],
        ),
    ];
    examine(&cases);
}

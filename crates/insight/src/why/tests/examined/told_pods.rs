//! Pods of which something false was said once, or too little.

use serde_json::json;

use super::*;

#[test]
fn what_keeps_pods_from_their_nodes() {
    let cases: Vec<Case<'_>> = vec![
        (
            "an affinity that wants a label away",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
                    json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "spot", "operator": "DoesNotExist" }] }] } } } } })
                ),
                with(node("n", "True"), &json!({ "metadata": { "labels": { "spot": "true" } } }))
            ]),
            Stuck(Reason::NoNodeFits),
            &["spot", "kubectl label node n spot-"],
        ),
        (
            "beside pods of namespaces with a label",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
                    json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "labelSelector": { "matchLabels": { "app": "db" } }, "namespaceSelector": { "matchLabels": { "team": "x" } }, "topologyKey": "kubernetes.io/hostname" }] } } } })
                ),
                with(node("n", "True"), &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "n" } } })),
                with(
                    serving(
                        json!({ "metadata": { "name": "db", "uid": "db", "labels": { "app": "db" } }, "spec": { "nodeName": "n" } })
                    ),
                    &json!({ "metadata": { "namespace": "other" } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["namespaces with labels that no namespace has", "kubectl get namespaces --show-labels"],
        ),
        (
            "a GPU whose plug-in says it is sick",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "resources": { "limits": { "nvidia.com/gpu": "1" }, "requests": { "nvidia.com/gpu": "1" } } }] } })
                ),
                with(
                    node("n", "True"),
                    &json!({ "status": { "allocatable": { "nvidia.com/gpu": "0" }, "capacity": { "nvidia.com/gpu": "1" } } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["nvidia.com/gpu", "!has 0 nvidia.com/gpu in all"],
        ),
        (
            "its driver has no room left",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) did not have enough free storage.",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "storageClassName": "lvm", "resources": { "requests": { "storage": "100Gi" } } }, "status": { "phase": "Pending" } })
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
                    json!({ "storageClassName": "lvm", "capacity": "10Gi", "nodeTopology": { "matchLabels": {} } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["enough free storage"],
        ),
        (
            "the init container wants more than the rest",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 Insufficient memory.",
                    json!({ "spec": { "initContainers": [{ "name": "load", "image": "i", "resources": { "requests": { "memory": "8Gi" } } }], "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "memory": "1Gi" } } }] } })
                ),
                node("n", "True")
            ]),
            Stuck(Reason::NoNodeFits),
            &["memory", "8Gi", "init container load"],
        ),
        (
            "a fresh cluster without a network plug-in",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.",
                    json!({})
                ),
                with(
                    node("n", "False"),
                    &json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] }, "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized", "lastTransitionTime": "2026-01-01T11:00:00Z" }] } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["not-ready", "ferry why node/n", "!kubectl taint nodes"],
        ),
        (
            "no cloud has taken the node up",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 node(s) had untolerated taint {node.cloudprovider.kubernetes.io/uninitialized: true}.",
                    json!({})
                ),
                with(
                    node("n", "True"),
                    &json!({ "spec": { "taints": [{ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" }] } })
                )
            ]),
            Stuck(Reason::NoNodeFits),
            &["uninitialized", "cloud"],
        ),
        (
            "a node came, and it fits now",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 Insufficient cpu.",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "1" } } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu.", "lastTransitionTime": "2026-01-01T11:59:55Z" }] } })
                ),
                node("n", "True")
            ]),
            Way(Reason::NoNodeFits),
            &[],
        ),
        (
            "a device with a taint",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: 1 cannot allocate all claims.",
                    json!({ "spec": { "resourceClaims": [{ "name": "gpu", "resourceClaimName": "g" }], "containers": [{ "name": "c", "image": "img", "resources": { "claims": [{ "name": "gpu" }] } }] } })
                ),
                made(
                    "ResourceClaim",
                    "g",
                    json!({ "spec": { "devices": { "requests": [{ "name": "g", "exactly": { "deviceClassName": "gpu" } }] } } })
                ),
                made(
                    "DeviceClass",
                    "gpu",
                    json!({ "spec": { "selectors": [{ "cel": { "expression": "device.driver == 'gpu.example.com'" } }] } })
                ),
                made(
                    "ResourceSlice",
                    "n-1",
                    json!({ "spec": { "driver": "gpu.example.com", "nodeName": "n", "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 }, "devices": [{ "name": "gpu0", "taints": [{ "key": "gpu.example.com/unhealthy", "effect": "NoSchedule" }] }] } })
                )
            ]),
            Stuck(Reason::DeviceClaim),
            &["gpu.example.com/unhealthy"],
        ),
    ];
    examine(&cases);
}

#[test]
fn what_keeps_pods_from_starting() {
    let cases: Vec<Case<'_>> = vec![
        (
            "a signature that is not right",
            "pod/p",
            json!([waiting(
                "SignatureValidationFailed",
                "SignatureValidationFailed: image pull failed for r.example/a:1 because the signature validation failed: Source image rejected: A signature was required, but no signature exists",
                json!({})
            )]),
            Stuck(Reason::ImagePull),
            &["signature"],
        ),
        (
            "an image for other machines",
            "pod/p",
            json!([
                waiting(
                    "ErrImagePull",
                    "failed to pull and unpack image \"docker.io/a/b:1\": no match for platform in manifest: not found",
                    json!({ "spec": { "containers": [{ "name": "c", "image": "a/b:1" }] } })
                ),
                with(
                    node("n", "True"),
                    &json!({ "status": { "nodeInfo": { "architecture": "arm64", "operatingSystem": "linux" } } })
                )
            ]),
            Stuck(Reason::ImagePlatform),
            &["arm64", "!no such image"],
        ),
        (
            "the registry's certificate has expired",
            "pod/p",
            json!([waiting(
                "ErrImagePull",
                "failed to do request: Head \"https://r.example/v2/a/manifests/1\": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-01-01T12:00:00Z is after 2025-12-01T00:00:00Z",
                json!({ "spec": { "containers": [{ "name": "c", "image": "r.example/a:1" }] } })
            )]),
            Stuck(Reason::RegistryCertificate),
            &["expired"],
        ),
        (
            "a private image, and a Secret of the wrong namespace",
            "pod/p",
            json!([
                waiting(
                    "ErrImagePull",
                    "failed to pull image \"r.example/a:1\": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://r.example/token: 401 Unauthorized",
                    json!({ "spec": { "imagePullSecrets": [{ "name": "reg" }], "containers": [{ "name": "c", "image": "r.example/a:1" }] } })
                ),
                made(
                    "Secret",
                    "reg",
                    json!({ "metadata": { "namespace": "prod" }, "type": "kubernetes.io/dockerconfigjson" })
                )
            ]),
            Stuck(Reason::PullSecretMissing),
            &["reg", "prod"],
        ),
        (
            "a proxy in between",
            "pod/p",
            json!([waiting(
                "ErrImagePull",
                "failed to do request: Head \"https://r.example/v2/a/manifests/1\": proxyconnect tcp: dial tcp 10.1.1.1:3128: connect: connection refused",
                json!({ "spec": { "containers": [{ "name": "c", "image": "r.example/a:1" }] } })
            )]),
            Stuck(Reason::RegistryUnreachable),
            &["10.1.1.1:3128"],
        ),
        (
            "an access to memory that is not its own",
            "pod/p",
            json!([crashing(json!({ "exitCode": 139 }), json!({})), log("p/c", "Segmentation fault\n")]),
            Stuck(Reason::Crash),
            &["139", "segmentation fault"],
        ),
        (
            "a port that the node has given away",
            "pod/p",
            json!([
                crashing(json!({ "exitCode": 1 }), json!({ "spec": { "hostNetwork": true } })),
                log("p/c", "listen tcp 0.0.0.0:9100: bind: address already in use\n"),
                serving(
                    json!({ "metadata": { "name": "exporter", "uid": "exporter" }, "spec": { "nodeName": "n", "hostNetwork": true, "containers": [{ "name": "c", "image": "i", "ports": [{ "containerPort": 9100, "hostPort": 9100 }] }] } })
                )
            ]),
            Stuck(Reason::Crash),
            &["address already in use"],
        ),
        (
            "a processor that is too old",
            "pod/p",
            json!([
                crashing(json!({ "exitCode": 132 }), json!({})),
                log("p/c", "Fatal glibc error: CPU does not support x86-64-v2\n")
            ]),
            Stuck(Reason::Crash),
            &["x86-64-v2", "illegal instruction"],
        ),
        (
            "it asks without TLS",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 8080 }], "readinessProbe": { "httpGet": { "path": "/", "port": 8080 } } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }], "containerStatuses": [{ "name": "c", "ready": false, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }] } })
                ),
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Readiness probe failed: Get \"http://10.0.0.1:8080/\": net/http: HTTP/1.x transport connection broken: malformed HTTP response \"\\x15\\x03\""
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["8080"],
        ),
        (
            "a command that takes too long",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 8080 }], "readinessProbe": { "exec": { "command": ["pg_isready"] }, "timeoutSeconds": 1 } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }], "containerStatuses": [{ "name": "c", "ready": false, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }] } })
                ),
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Readiness probe errored and resulted in unknown state: command \"pg_isready\" timed out after 1s"
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["pg_isready", "timed out"],
        ),
        (
            "it is still starting",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 8080 }], "startupProbe": { "tcpSocket": { "port": 8080 }, "failureThreshold": 30, "periodSeconds": 10 } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }], "containerStatuses": [{ "name": "c", "ready": false, "started": false, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:59:00Z" } } }] } })
                ),
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Startup probe failed: dial tcp 10.0.0.1:8080: connect: connection refused"
                )
            ]),
            Way(Reason::ProbeFails),
            &[],
        ),
        (
            "a disk with another file system",
            "pod/p",
            json!([
                waiting(
                    "ContainerCreating",
                    "",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                warned(
                    "Pod/p",
                    "FailedMount",
                    "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Internal desc = mount failed: exit status 32: mount: /x: wrong fs type, bad option, bad superblock on /dev/sdb"
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" }, "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "xfs" } }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Volume),
            &["wrong fs type", "data"],
        ),
        (
            "a volume for which the cloud has no slot",
            "pod/p",
            json!([
                waiting(
                    "ContainerCreating",
                    "",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                warned(
                    "Pod/p",
                    "FailedAttachVolume",
                    "AttachVolume.Attach failed for volume \"pv\" : rpc error: code = ResourceExhausted desc = attachment limit exceeded on node n"
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" }, "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1" } }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Volume),
            &["attachment limit exceeded"],
        ),
        (
            "a Secret that has come since",
            "pod/p",
            json!([
                waiting(
                    "ContainerCreating",
                    "",
                    json!({ "spec": { "volumes": [{ "name": "s", "secret": { "secretName": "tls" } }] }, "metadata": { "creationTimestamp": "2026-01-01T11:58:30Z" } })
                ),
                with(
                    warned(
                        "Pod/p",
                        "FailedMount",
                        "MountVolume.SetUp failed for volume \"s\" : secret \"tls\" not found"
                    ),
                    &json!({ "lastTimestamp": "2026-01-01T11:59:30Z" })
                ),
                made(
                    "Secret",
                    "tls",
                    json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:40Z" }, "data": { "tls.crt": "eA==" } })
                )
            ]),
            Way(Reason::Volume),
            &[],
        ),
        (
            "a file system where a raw device is wanted",
            "pod/p",
            json!([
                waiting(
                    "ContainerCreating",
                    "",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }], "containers": [{ "name": "c", "image": "img", "volumeDevices": [{ "name": "data", "devicePath": "/dev/x" }] }] } })
                ),
                warned(
                    "Pod/p",
                    "FailedMapVolume",
                    "MapVolume.MapPodDevice failed for volume \"pv\" : rpc error: code = InvalidArgument desc = volume is not a block device"
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" }, "csi": { "driver": "x.example.com", "volumeHandle": "1" }, "volumeMode": "Block" }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Volume),
            &["not a block device"],
        ),
        (
            "the kubelet's last word of it is old",
            "pod/p",
            json!([
                serving(json!({ "status": { "phase": "Unknown", "reason": "NodeLost" } })),
                with(node("n", "Unknown"), &json!({}))
            ]),
            Stuck(Reason::PodNodeNotReady),
            &["node n"],
        ),
    ];
    examine(&cases);
}

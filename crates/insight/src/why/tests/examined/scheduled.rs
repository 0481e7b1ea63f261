//! Pods that wait for a node.

use serde_json::json;

use super::*;

const NONE: &str = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";

#[test]
fn pods_without_a_node() {
    let zone = |name: &str, zone: &str| {
        with(
            node(name, "True"),
            &json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name } } }),
        )
    };
    let uses = |parts: Value| {
        with(
            json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] } }),
            &parts,
        )
    };
    let claim = |class: &str| {
        made(
            "PersistentVolumeClaim",
            "data",
            json!({ "spec": { "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Pending" } }),
        )
    };
    let class = |name: &str, parts: Value| {
        with(
            made(
                "StorageClass",
                name,
                json!({ "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" }),
            ),
            &parts,
        )
    };
    let local = |name: &str, host: &str| {
        made(
            "PersistentVolume",
            name,
            json!({ "spec": { "storageClassName": "local", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "local": { "path": "/mnt" }, "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [host] }] }] } } }, "status": { "phase": "Available" } }),
        )
    };
    let csi = json!({ "provisioner": "csi.example.com", "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "topology.kubernetes.io/zone", "values": ["z9"] }] }] });
    let driver = made("CSIDriver", "csi.example.com", json!({}));
    let asks = |resource: &str, amount: &str| json!({ "spec": { "containers": [{ "name": "c", "image": "img", "resources": { "requests": { resource: amount, "cpu": "1" } } }] } });
    let victim = |parts: Value| with(serving(json!({ "metadata": { "name": "victim", "uid": "victim" } })), &parts);
    let held = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:10:00Z", "deletionGracePeriodSeconds": 30, "finalizers": ["example.com/drain"] } });
    let nominated = json!({ "status": { "nominatedNodeName": "n" } });
    let devices =
        |claim: &str| json!({ "spec": { "resourceClaims": [{ "name": "gpu", "resourceClaimName": claim }] } });
    let gpu_claim = |name: &str, parts: Value| {
        with(
            made(
                "ResourceClaim",
                name,
                json!({ "spec": { "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } } }),
            ),
            &parts,
        )
    };
    let gpu_class = made("DeviceClass", "gpu", json!({ "spec": { "extendedResourceName": "example.com/gpu" } }));
    let slice = made(
        "ResourceSlice",
        "n-gpu",
        json!({ "spec": { "driver": "gpu.example.com", "nodeName": "n", "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 }, "devices": [{ "name": "gpu-0" }] } }),
    );
    let allocated = json!({ "status": { "allocation": { "devices": { "results": [{ "request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0" }] } }, "reservedFor": [{ "resource": "pods", "name": "trainer", "uid": "t" }] } });
    let ephemeral = json!({ "spec": { "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }] } });
    let cases: Vec<Case<'_>> = vec![
        ("a local volume on the other node", "pod/p", json!([unscheduled(NONE, uses(json!({ "spec": { "nodeSelector": { "kubernetes.io/hostname": "a" } } }))), zone("a", "z1"), zone("b", "z2"), claim("local"), class("local", json!({})), local("pv-b", "b")]),
            Stuck(Reason::NoNodeFits), &["node a has no free PersistentVolume for the claim data", "pv-b", "!nothing was found against"]),
        ("a class for another zone", "pod/p", json!([unscheduled(NONE, uses(json!({}))), zone("a", "z1"), zone("b", "z2"), claim("zonal"), class("zonal", csi), driver]),
            Stuck(Reason::NoNodeFits), &["allowedTopologies", "topology.kubernetes.io/zone=z9"]),
        ("two claims and one free volume", "pod/p", json!([unscheduled(NONE, uses(json!({}))), zone("a", "z1"), claim("local"), class("local", json!({})), local("pv-a", "a"), made("PersistentVolumeClaim", "other", json!({ "spec": {}, "status": { "phase": "Bound" } }))]),
            Stuck(Reason::NoNodeFits), &["probably"]),
        ("huge pages that no node has", "pod/p", json!([unscheduled("0/1 nodes are available: 1 Insufficient hugepages-2Mi.", asks("hugepages-2Mi", "64Mi"))]),
            Stuck(Reason::NoNodeFits), &["has no hugepages-2Mi", "vm.nr_hugepages"]),
        ("a resource that stands for devices", "pod/p", json!([unscheduled("0/1 nodes are available: 1 cannot allocate all claims. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.", asks("example.com/gpu", "1")), gpu_class.clone(), slice.clone()]),
            Stuck(Reason::NoNodeFits), &["cannot allocate all claims", "!a device plug-in on a node brings"]),
        ("devices that others have", "pod/p", json!([unscheduled("0/1 nodes are available: 1 cannot allocate all claims.", devices("mine")), gpu_claim("mine", json!({})), gpu_claim("theirs", allocated), gpu_class.clone(), slice.clone()]),
            Stuck(Reason::DeviceClaim), &["the claim theirs", "pod/trainer"]),
        ("devices that are free, and not what is wanted", "pod/p", json!([unscheduled("0/1 nodes are available: 1 cannot allocate all claims.", devices("mine")), gpu_claim("mine", json!({})), gpu_class, slice]),
            Stuck(Reason::DeviceClaim), &["probably", "cannot allocate all claims"]),
        ("room that is being made", "pod/p", json!([unscheduled("0/1 nodes are available: 1 Insufficient cpu.", with(asks("memory", "1Gi"), &nominated)), victim(json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] }, "metadata": { "deletionTimestamp": "2026-01-01T12:00:20Z", "deletionGracePeriodSeconds": 30 } }))]),
            Way(Reason::Preempting), &["to make room for it"]),
        ("room that nobody leaves", "pod/p", json!([unscheduled("0/1 nodes are available: 1 Insufficient cpu.", with(asks("memory", "1Gi"), &nominated)), victim(json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] } })).as_object().map(|_| with(victim(json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] } })), &held)).unwrap()]),
            Stuck(Reason::Preempting), &["pod/victim", "example.com/drain"]),
        ("a claim of its own that is refused", "pod/p", json!([unscheduled("0/1 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-scratch\".", ephemeral), warned("Pod/p", "EphemeralVolumeProvisioningFailed", "ephemeral volume scratch: create PVC p-scratch: persistentvolumeclaims \"p-scratch\" is forbidden: exceeded quota: storage, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1")]),
            Stuck(Reason::ClaimMissing), &["exceeded quota: storage"]),
        ("beside a pod of which there is none", "pod/p", json!([unscheduled("0/1 nodes are available: 1 node(s) didn't match pod affinity rules.", json!({ "spec": { "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "cache" } } }] } } } })), zone("n", "z1")]),
            Stuck(Reason::NoNodeFits), &["app=cache", "kubectl get pods -n d -l 'app=cache'"]),
        ("a mistyped operator of tolerations", "pod/p", json!([unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s) {dedicated: gpu}.", json!({ "spec": { "tolerations": [{ "key": "dedicated", "operator": "Equal", "value": "cpu", "effect": "NoSchedule" }] } })), with(node("n", "True"), &json!({ "spec": { "taints": [{ "key": "dedicated", "value": "gpu", "effect": "NoSchedule" }] } }))]),
            Stuck(Reason::NoNodeFits), &["its toleration is for the value \"cpu\""]),
        ("a node that is drained", "pod/p", json!([unscheduled("0/1 nodes are available: 1 node(s) were unschedulable.", json!({})), with(node("n", "True"), &json!({ "spec": { "unschedulable": true, "taints": [{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }] } }))]),
            Stuck(Reason::NoNodeFits), &["kubectl uncordon n"]),
        ("a disk under pressure", "pod/p", json!([unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint(s) {node.kubernetes.io/disk-pressure: }.", json!({})), with(node("n", "True"), &json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule" }] } }))]),
            Stuck(Reason::NoNodeFits), &["ferry why node/n"]),
        ("another scheduler", "pod/p", json!([with(unscheduled("", json!({ "spec": { "schedulerName": "volcano" } })), &json!({ "status": { "conditions": [] } }))]),
            Stuck(Reason::NoSuchScheduler), &["\"volcano\""]),
        ("more volumes than the node takes", "pod/p", json!([unscheduled("0/1 nodes are available: 1 node(s) exceed max volume count.", json!({}))]),
            Stuck(Reason::NoNodeFits), &["probably", "exceed max volume count"]),
    ];
    examine(&cases);
}

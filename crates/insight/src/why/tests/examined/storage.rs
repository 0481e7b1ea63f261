//! Claims, volumes, classes, snapshots.

use serde_json::json;

use super::*;

#[test]
fn what_holds_data() {
    let bound = |parts: Value| {
        with(
            made(
                "PersistentVolumeClaim",
                "data",
                json!({ "spec": { "storageClassName": "fast", "volumeName": "pv", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "2Gi" } } }, "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }),
            ),
            &parts,
        )
    };
    let pending = |parts: Value| {
        with(
            made(
                "PersistentVolumeClaim",
                "data",
                json!({ "spec": { "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "2Gi" } } }, "status": { "phase": "Pending" } }),
            ),
            &parts,
        )
    };
    let class = |provisioner: &str| {
        made(
            "StorageClass",
            "fast",
            json!({ "provisioner": provisioner, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete" }),
        )
    };
    let driver = |name: &str| made("CSIDriver", name, json!({}));
    let by = |provisioner: &str| {
        made(
            "PersistentVolume",
            "pvc-1",
            json!({ "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": provisioner } }, "spec": { "storageClassName": "fast", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "claimRef": { "name": "o", "namespace": "o", "uid": "o" } }, "status": { "phase": "Bound" } }),
        )
    };
    let snapshot = |parts: Value| {
        with(
            made(
                "VolumeSnapshot",
                "s",
                json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "spec": { "volumeSnapshotClassName": "snap", "source": { "persistentVolumeClaimName": "data" } }, "status": { "readyToUse": false } }),
            ),
            &parts,
        )
    };
    let deleted =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "deletionGracePeriodSeconds": 0 } });
    let held = |finalizer: &str| with(json!({ "metadata": { "finalizers": [finalizer] } }), &deleted);
    let mounts =
        json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } });
    let modify = |status: &str| json!({ "spec": { "volumeAttributesClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } }, "status": { "currentVolumeAttributesClassName": "silver", "modifyVolumeStatus": { "status": status, "targetVolumeAttributesClassName": "gold" } } });
    let gold = made("VolumeAttributesClass", "gold", json!({ "driverName": "csi.example.com" }));
    let beta = json!({ "metadata": { "annotations": { "volume.beta.kubernetes.io/storage-class": "fast" } }, "spec": { "storageClassName": null } });
    let cases: Vec<Case<'_>> = vec![
        (
            "it can never grow so much",
            "persistentvolumeclaim/data",
            json!([
                bound(
                    json!({ "status": { "allocatedResources": { "storage": "2Gi" }, "allocatedResourceStatuses": { "storage": "ControllerResizeInfeasible" } } })
                ),
                class("csi.example.com"),
                driver("csi.example.com")
            ]),
            Stuck(Reason::ClaimResizing),
            &["cannot grow to 2Gi", "!nobody has begun", "more than 1Gi"],
        ),
        (
            "the node grows its file system",
            "persistentvolumeclaim/data",
            json!([
                bound(json!({ "status": { "allocatedResourceStatuses": { "storage": "NodeResizePending" } } })),
                class("csi.example.com")
            ]),
            Way(Reason::ClaimResizing),
            &["when a pod uses the claim"],
        ),
        (
            "a class of attributes that is not there",
            "persistentvolumeclaim/data",
            json!([bound(modify("Pending")), class("csi.example.com"), driver("csi.example.com")]),
            Stuck(Reason::ClaimModifying),
            &["the VolumeAttributesClass \"gold\" does not exist"],
        ),
        (
            "attributes that its driver refuses",
            "persistentvolumeclaim/data",
            json!([
                bound(modify("Infeasible")),
                gold.clone(),
                class("csi.example.com"),
                warned(
                    "PersistentVolumeClaim/data",
                    "VolumeModifyFailed",
                    "rpc error: code = InvalidArgument desc = iops too high"
                )
            ]),
            Stuck(Reason::ClaimModifying),
            &["iops too high", "silver"],
        ),
        (
            "attributes that are being given",
            "persistentvolumeclaim/data",
            json!([bound(modify("InProgress")), gold, class("csi.example.com")]),
            Way(Reason::ClaimModifying),
            &["gold"],
        ),
        (
            "a snapshot of a claim that is not there",
            "volumesnapshot/s",
            json!([snapshot(json!({}))]),
            Stuck(Reason::Snapshot),
            &["the PersistentVolumeClaim \"data\"", "none in namespace d"],
        ),
        (
            "a snapshot that failed",
            "volumesnapshot/s",
            json!([
                snapshot(
                    json!({ "status": { "error": { "message": "Failed to create snapshot: rpc error: code = ResourceExhausted", "time": "2026-01-01T11:30:00Z" } } })
                ),
                bound(json!({}))
            ]),
            Stuck(Reason::Snapshot),
            &["ResourceExhausted"],
        ),
        (
            "a snapshot that nobody makes",
            "volumesnapshot/s",
            json!([
                snapshot(json!({ "status": null })),
                bound(json!({})),
                made("VolumeSnapshotClass", "snap", json!({}))
            ]),
            Stuck(Reason::Snapshot),
            &["snapshot controller"],
        ),
        (
            "a snapshot of a claim without a volume",
            "volumesnapshot/s",
            json!([snapshot(json!({ "status": null })), pending(json!({}))]),
            Stuck(Reason::Snapshot),
            &["ferry why -n d persistentvolumeclaim/data"],
        ),
        (
            "a snapshot that is ready",
            "volumesnapshot/s",
            json!([
                snapshot(json!({ "status": { "readyToUse": true, "boundVolumeSnapshotContentName": "c" } })),
                bound(json!({}))
            ]),
            Well,
            &[],
        ),
        (
            "a provisioner that is no driver, and works",
            "storageclass/fast",
            json!([class("rancher.io/local-path"), by("rancher.io/local-path")]),
            Well,
            &[],
        ),
        (
            "a provisioner that nobody has seen",
            "storageclass/fast",
            json!([class("rancher.io/local-path"), by("csi.example.com")]),
            Stuck(Reason::ProvisionerMissing),
            &["probably"],
        ),
        (
            "a provisioner of old whose driver is there",
            "storageclass/fast",
            json!([class("kubernetes.io/aws-ebs"), driver("ebs.csi.aws.com")]),
            Well,
            &[],
        ),
        (
            "a provisioner of old without its driver",
            "storageclass/fast",
            json!([class("kubernetes.io/aws-ebs")]),
            Stuck(Reason::ProvisionerMissing),
            &["ebs.csi.aws.com"],
        ),
        (
            "a provisioner that has made others",
            "persistentvolumeclaim/data",
            json!([
                pending(json!({})),
                class("rancher.io/local-path"),
                by("rancher.io/local-path"),
                warned(
                    "PersistentVolumeClaim/data",
                    "ExternalProvisioning",
                    "Waiting for a volume to be created either by the external provisioner 'rancher.io/local-path' or manually by the system administrator."
                )
            ]),
            Stuck(Reason::Provisioning),
            &["rancher.io/local-path has not made its volume yet", "!not there as a CSI driver"],
        ),
        (
            "a class in an annotation of old",
            "persistentvolumeclaim/data",
            json!([
                pending(beta),
                class("csi.example.com"),
                driver("csi.example.com"),
                warned(
                    "PersistentVolumeClaim/data",
                    "ProvisioningFailed",
                    "rpc error: code = Internal desc = no space"
                )
            ]),
            Stuck(Reason::ProvisioningFailed),
            &["class fast", "no space"],
        ),
        (
            "a volume whose driver deletes it",
            "persistentvolume/pv",
            json!([
                made(
                    "PersistentVolume",
                    "pv",
                    with(
                        held("external-provisioner.volume.kubernetes.io/finalizer"),
                        &json!({ "spec": { "csi": { "driver": "csi.example.com" }, "persistentVolumeReclaimPolicy": "Delete" }, "status": { "phase": "Released" } })
                    )
                ),
                with(
                    warned(
                        "PersistentVolume/pv",
                        "VolumeFailedDelete",
                        "rpc error: code = FailedPrecondition desc = volume in use"
                    ),
                    &json!({ "metadata": { "namespace": "default" } })
                )
            ]),
            Stuck(Reason::Finalizer),
            &["csi.example.com", "volume in use", "!looks like a controller"],
        ),
        (
            "a volume that is attached",
            "persistentvolume/pv",
            json!([
                made(
                    "PersistentVolume",
                    "pv",
                    with(
                        held("external-attacher/csi-example-com"),
                        &json!({ "spec": { "csi": { "driver": "csi.example.com" } }, "status": { "phase": "Bound" } })
                    )
                ),
                made(
                    "VolumeAttachment",
                    "csi-1",
                    json!({ "spec": { "attacher": "csi.example.com", "nodeName": "n", "source": { "persistentVolumeName": "pv" } }, "status": { "attached": true } })
                )
            ]),
            Stuck(Reason::Finalizer),
            &["attacher", "!looks like a controller"],
        ),
        (
            "used by a pod that has ended",
            "persistentvolumeclaim/data",
            json!([
                bound(held("kubernetes.io/pvc-protection")),
                with(
                    pod(mounts.clone()),
                    &json!({ "metadata": { "name": "done" }, "status": { "phase": "Succeeded" } })
                )
            ]),
            Stuck(Reason::FinalizerClaimInUse),
            &["pod/done still uses it", "has ended"],
        ),
        (
            "named by a pod without a node",
            "persistentvolumeclaim/data",
            json!([
                bound(held("kubernetes.io/pvc-protection")),
                unscheduled("0/1 nodes are available: persistentvolumeclaim \"data\" is being deleted.", mounts)
            ]),
            Stuck(Reason::FinalizerClaimInUse),
            &["!still uses it", "see that the controllers run"],
        ),
        (
            "devices that a pod has",
            "resourceclaim/gpu",
            json!([made(
                "ResourceClaim",
                "gpu",
                with(
                    held("resource.kubernetes.io/delete-protection"),
                    &json!({ "status": { "allocation": {}, "reservedFor": [{ "resource": "pods", "name": "trainer", "uid": "t" }] } })
                )
            )]),
            Stuck(Reason::Finalizer),
            &["pod/trainer", "kubectl delete -n d pod/trainer", "!looks like a controller"],
        ),
        (
            "a claim that is filled from, and goes",
            "persistentvolumeclaim/data",
            json!([bound(held("snapshot.storage.kubernetes.io/pvc-as-source-protection")), snapshot(json!({}))]),
            Stuck(Reason::Finalizer),
            &["snapshot", "kubectl get volumesnapshots -n d", "!looks like a controller"],
        ),
        (
            "a template of devices that nobody brings",
            "resourceclaimtemplate/t",
            json!([made(
                "ResourceClaimTemplate",
                "t",
                json!({ "spec": { "spec": { "devices": { "requests": [{ "name": "g", "exactly": { "deviceClassName": "nope" } }] } } } })
            )]),
            Stuck(Reason::DeviceClaim),
            &["\"nope\""],
        ),
        (
            "attributes of a driver that is not there",
            "volumeattributesclass/gold",
            json!([made("VolumeAttributesClass", "gold", json!({ "driverName": "csi.nobody.example" }))]),
            Stuck(Reason::ProvisionerMissing),
            &["probably", "csi.nobody.example"],
        ),
    ];
    examine(&cases);
}

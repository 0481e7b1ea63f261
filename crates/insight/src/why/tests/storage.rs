//! Claims and volumes.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, event, merge, one, pod};

#[test]
fn storage() {
    let claim = |spec: Value, lists: &[(&str, Value)]| {
        let mut all = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } });
        merge(&mut all, &spec);
        one("PersistentVolumeClaim", json!({ "spec": all, "status": { "phase": "Pending" } }), lists)
    };
    let volume = |parts: Value| {
        let mut volume = json!({ "kind": "PersistentVolume", "metadata": { "name": "pv" }, "spec": { "storageClassName": "manual", "capacity": { "storage": "20Gi" }, "accessModes": ["ReadWriteOnce"] }, "status": { "phase": "Available" } });
        merge(&mut volume, &parts);
        ("persistentvolumes", json!([volume]))
    };
    let manual = json!({ "storageClassName": "manual" });
    let none = ("storageclasses", json!([]));
    let class = |mode: &str, provisioner: &str| {
        (
            "storageclasses",
            json!([{ "metadata": { "name": "fast" }, "volumeBindingMode": mode, "provisioner": provisioner }]),
        )
    };
    let fast = json!({ "storageClassName": "fast" });
    let drivers = |names: &[&str]| {
        ("csidrivers", names.iter().map(|name| json!({ "metadata": { "name": name } })).collect::<Value>())
    };
    let uses = json!({ "spec": { "nodeName": "", "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x" } }] } });
    let failed = {
        let world = claim(fast.clone(), &[]);
        event(&world.target, "ProvisioningFailed", "no more room")
    };
    let asked = {
        let world = claim(fast.clone(), &[]);
        event(&world.target, "Provisioning", "External provisioner is provisioning volume for claim \"d/x\"")
    };
    let rows: Vec<Situation<'_>> = vec![
        (
            "too small",
            claim(manual.clone(), &[none.clone(), volume(json!({ "spec": { "capacity": { "storage": "5Gi" } } }))]),
            Reason::VolumeTooSmall,
            &["the nearest, pv, is too small: it has 5Gi, and the claim asks for 10Gi", "no StorageClass \"manual\""],
        ),
        (
            "released",
            claim(
                manual.clone(),
                &[
                    none.clone(),
                    volume(
                        json!({ "spec": { "claimRef": { "name": "old", "namespace": "d", "uid": "o" } }, "status": { "phase": "Released" } }),
                    ),
                ],
            ),
            Reason::VolumeReleased,
            &["is Released", "kubectl patch pv pv --type=merge"],
        ),
        (
            "access mode",
            claim(manual.clone(), &[none.clone(), volume(json!({ "spec": { "accessModes": ["ReadOnlyMany"] } }))]),
            Reason::VolumeAccessMode,
            &["access mode ReadOnlyMany, and the claim asks for ReadWriteOnce"],
        ),
        (
            "other class",
            claim(json!({ "storageClassName": "" }), &[none.clone(), volume(json!({}))]),
            Reason::NoVolume,
            &["the PersistentVolume pv would fit, but is of class \"manual\""],
        ),
        (
            "mode",
            claim(json!({ "storageClassName": "manual", "volumeMode": "Block" }), &[none.clone(), volume(json!({}))]),
            Reason::VolumeMode,
            &["volumeMode Filesystem"],
        ),
        (
            "selector",
            claim(
                json!({ "storageClassName": "manual", "selector": { "matchLabels": { "a": "b" } } }),
                &[none.clone(), volume(json!({}))],
            ),
            Reason::VolumeSelector,
            &["labels of the claim's selector"],
        ),
        (
            "named and missing",
            claim(json!({ "volumeName": "gone" }), &[none.clone(), volume(json!({}))]),
            Reason::VolumeMissing,
            &["\"gone\", which does not exist"],
        ),
        (
            "named and taken",
            claim(
                json!({ "storageClassName": "manual", "volumeName": "pv" }),
                &[
                    none.clone(),
                    volume(
                        json!({ "spec": { "claimRef": { "name": "other", "namespace": "e", "uid": "o" } }, "status": { "phase": "Bound" } }),
                    ),
                ],
            ),
            Reason::VolumeTaken,
            &["belongs to the claim e/other"],
        ),
        (
            "nothing",
            claim(json!({ "storageClassName": "" }), &[none.clone(), ("persistentvolumes", json!([]))]),
            Reason::NoVolume,
            &["no free PersistentVolume of 10Gi"],
        ),
        (
            "no class of that name",
            claim(fast.clone(), &[none.clone(), volume(json!({ "spec": { "capacity": { "storage": "1Gi" } } }))]),
            Reason::ClassMissing,
            &["StorageClass \"fast\" does not exist"],
        ),
        (
            "no default",
            claim(json!({}), &[none.clone(), ("persistentvolumes", json!([]))]),
            Reason::NoDefaultClass,
            &["no default class"],
        ),
        (
            "a class, none the default",
            claim(json!({}), &[class("Immediate", "p"), ("persistentvolumes", json!([]))]),
            Reason::NoDefaultClass,
            &["kubectl annotate storageclass fast storageclass.kubernetes.io/is-default-class=true"],
        ),
        (
            "first consumer",
            claim(fast.clone(), &[class("WaitForFirstConsumer", "p"), ("pods", json!([]))]),
            Reason::WaitForFirstConsumer,
            &["nothing holds it up", "no pod uses it"],
        ),
        (
            "consumer waits",
            claim(fast.clone(), &[class("WaitForFirstConsumer", "p"), ("pods", json!([pod(uses)]))]),
            Reason::WaitForFirstConsumer,
            &["pod/p uses it", "ferry why -n d pod/p"],
        ),
        (
            "no provisioner",
            claim(fast.clone(), &[class("Immediate", "csi.x.io"), drivers(&[]), ("csinodes", json!([]))]),
            Reason::ProvisionerMissing,
            &["probably", "csi.x.io of class fast is not there"],
        ),
        (
            "provisioner at work",
            claim(fast.clone(), &[class("Immediate", "csi.x.io"), drivers(&["csi.x.io"])]),
            Reason::Provisioning,
            &["csi.x.io has not made its volume yet"],
        ),
        (
            "provisioner failed",
            claim(fast.clone(), &[class("Immediate", "csi.x.io"), drivers(&["csi.x.io"]), ("events", json!([failed]))]),
            Reason::ProvisioningFailed,
            &["no more room"],
        ),
        (
            "the local-path provisioner is no driver",
            claim(
                fast.clone(),
                &[
                    class("WaitForFirstConsumer", "ferry.dev/local-path"),
                    drivers(&[]),
                    ("csinodes", json!([])),
                    ("events", json!([asked])),
                ],
            ),
            Reason::Provisioning,
            &["ferry.dev/local-path has not made its volume yet", "what ferry up logs"],
        ),
        (
            "the local-path provisioner refuses",
            claim(
                fast.clone(),
                &[class("WaitForFirstConsumer", "ferry.dev/local-path"), drivers(&[]), ("events", json!([failed]))],
            ),
            Reason::ProvisioningFailed,
            &["no more room", "change what the message names"],
        ),
        (
            "by hand",
            claim(fast, &[class("Immediate", "kubernetes.io/no-provisioner"), ("persistentvolumes", json!([]))]),
            Reason::NoVolume,
            &["nobody makes them"],
        ),
        (
            "lost",
            one("PersistentVolumeClaim", json!({ "spec": { "volumeName": "v" }, "status": { "phase": "Lost" } }), &[]),
            Reason::ClaimLost,
            &["its volume v is gone", "create the PersistentVolume v again", "if it is not, delete the claim"],
        ),
        (
            "another has its volume",
            one(
                "PersistentVolumeClaim",
                json!({ "spec": { "volumeName": "v" }, "status": { "phase": "Lost" } }),
                &[(
                    "persistentvolumes",
                    json!([{ "metadata": { "name": "v" },
                    "spec": { "claimRef": { "namespace": "d", "name": "first" } } }]),
                )],
            ),
            Reason::ClaimLost,
            &["its volume v is bound to another claim, d/first", "delete the claim and create it anew"],
        ),
        (
            "volume released",
            one(
                "PersistentVolume",
                json!({ "spec": { "claimRef": { "name": "c", "namespace": "d" }, "persistentVolumeReclaimPolicy": "Retain" }, "status": { "phase": "Released" } }),
                &[],
            ),
            Reason::VolumeReleased,
            &["nothing holds it up", "its claim d/c is gone"],
        ),
    ];
    check_all(&rows);
}

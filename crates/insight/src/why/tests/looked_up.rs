//! What a claim or a Service names is looked up before anything is said of it.

use serde_json::{Value, json};

use super::super::Reason;
use super::truth::with;
use super::{Situation, check_all, merge, one, pod};
use crate::gather::{BEHIND, BEHIND_SLICES};

#[test]
fn storage_and_network() {
    let claim = |spec: Value, lists: &[(&str, Value)]| {
        let mut all = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        merge(&mut all, &spec);
        one("PersistentVolumeClaim", json!({ "spec": all, "status": { "phase": "Pending" } }), lists)
    };
    let volume = |class: &str, parts: Value| {
        let plain = json!({ "kind": "PersistentVolume", "metadata": { "name": "pv" }, "spec": { "storageClassName": class, "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"] }, "status": { "phase": "Available" } });
        ("persistentvolumes", json!([with(plain, parts)]))
    };
    let none = ("storageclasses", json!([]));
    let default = json!([{ "metadata": { "name": "std", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "p" }]);
    let local = json!([{ "metadata": { "name": "local" }, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" }]);
    let user = pod(
        json!({ "spec": { "nodeName": "", "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x" } }] } }),
    );
    let kept = json!({ "spec": { "claimRef": { "namespace": "e", "name": "theirs" } } });
    let external = |name: &str, lists: &[(&str, Value)]| {
        one("Service", json!({ "spec": { "type": "ExternalName", "externalName": name } }), lists)
    };
    let absent = json!([{ "absent": true, "metadata": { "name": "db", "namespace": "prod" } }]);
    let there = json!([{ "metadata": { "name": "db", "namespace": "prod" } }]);
    let names = json!({ "status": { "conditions": [
        { "type": "NamesAccepted", "status": "False", "reason": "SingularConflict", "message": "\"widget\" is already in use" },
        { "type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted" } ] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "a volume of a class that has nothing to do with it",
            claim(json!({ "storageClassName": "fast" }), &[none.clone(), volume("slow", json!({}))]),
            Reason::ClassMissing,
            &[
                "its StorageClass \"fast\" does not exist",
                "the PersistentVolume pv would fit, but is of class \"slow\"",
            ],
        ),
        (
            "kept for another claim",
            claim(json!({ "storageClassName": "slow" }), &[none.clone(), volume("slow", kept)]),
            Reason::VolumeTaken,
            &["pv, is kept for the claim e/theirs (spec.claimRef)", "kubectl patch pv pv"],
        ),
        (
            "a pod waits for a volume that nobody makes",
            claim(
                json!({ "storageClassName": "local" }),
                &[("storageclasses", local), ("persistentvolumes", json!([])), ("pods", json!([user]))],
            ),
            Reason::NoVolume,
            &[
                "it is stuck",
                "no free PersistentVolume of class local and 1Gi fits, and nobody makes them for this class",
            ],
        ),
        (
            "labels are named",
            claim(
                json!({ "storageClassName": "slow", "selector": { "matchLabels": { "tier": "fast" } } }),
                &[none, volume("slow", json!({}))],
            ),
            Reason::VolumeSelector,
            &["does not have the labels of the claim's selector, tier=fast"],
        ),
        (
            "the default came later",
            claim(json!({}), &[("storageclasses", default), ("persistentvolumes", json!([]))]),
            Reason::NoDefaultClass,
            &["has not been given the default one yet, std", "see that the controllers run"],
        ),
        (
            "a name of the cluster that is not there",
            external("db.prod.svc.cluster.local", &[(BEHIND, absent), (BEHIND_SLICES, json!([]))]),
            Reason::ExternalNameMissing,
            &["means the Service \"db\" of namespace prod, which does not exist", "kubectl get services -n prod"],
        ),
        (
            "a name of the cluster that leads nowhere",
            external("db.prod.svc.cluster.local", &[(BEHIND, there), (BEHIND_SLICES, json!([]))]),
            Reason::ExternalNameMissing,
            &["which has no ready endpoint", "ferry why -n prod service/db"],
        ),
        (
            "names before what follows from them",
            one("CustomResourceDefinition", names, &[]),
            Reason::NamesTaken,
            &["its names are not accepted: SingularConflict: \"widget\" is already in use"],
        ),
    ];
    check_all(&rows);
    // Who may not read it does not know.
    assert_eq!(super::findings(&external("db.prod.svc.cluster.local", &[])), []);
}

//! Snapshots of volumes that are not made.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, is_young, named, near, said, warning};
use crate::world::World;

pub(super) fn finding(world: &World, snapshot: &Value) -> Option<Finding> {
    if snapshot.pointer("/status/readyToUse").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let namespace = object::namespace(snapshot);
    let finding = |cause: String| Finding::new(Reason::Snapshot, snapshot, cause);
    let source = object::text(snapshot, "/spec/source/persistentVolumeClaimName");
    let claims = world.seen("persistentvolumeclaims").filter(|_| !source.is_empty());
    if let Some(claims) = claims {
        let Some(claim) = claims.iter().find(|claim| object::name(claim) == source) else {
            let names = near::sorted(source, claims.iter().map(object::name).collect());
            let there = match names.is_empty() {
                true => "the namespace has no claims".to_owned(),
                false => format!("the namespace has {}", named(&names)),
            };
            let cause = format!(
                "it is to be made of the PersistentVolumeClaim {source:?}, and there is none in namespace {namespace}"
            );
            return Some(finding(cause).detail(there).advise(format!(
                "its source cannot be changed: delete it, and create it with a claim that exists: kubectl delete {}volumesnapshot.snapshot.storage.k8s.io/{}",
                in_namespace(snapshot),
                object::name(snapshot)
            )));
        };
        let phase = object::text(claim, "/status/phase");
        if phase != "Bound" {
            let cause = format!("it is to be made of the claim {source}, which has no volume (phase {phase})");
            return Some(finding(cause).advise(format!("ferry why -n {namespace} persistentvolumeclaim/{source}")));
        }
    }
    let error = object::text(snapshot, "/status/error/message");
    if !error.is_empty() {
        return Some(finding("it could not be made, and is tried again".to_owned()).detail(error).advise(
            "see that its driver can make snapshots, and what the driver's snapshotter logs (csi-snapshotter)",
        ));
    }
    let told = warning(world, snapshot).map(said).unwrap_or_default();
    let content = object::text(snapshot, "/status/boundVolumeSnapshotContentName");
    let young = is_young(world, snapshot);
    Some(match content {
        "" => finding("nobody has begun to make it".to_owned())
            .underway_if(young)
            .detail(told)
            .advise("see that the snapshot controller runs (it is no part of Kubernetes), and that the class is of the claim's driver: kubectl get volumesnapshotclasses"),
        content => finding(format!("it is being made as the VolumeSnapshotContent {content}, and is not ready"))
            .underway_if(young)
            .detail(told)
            .advise(format!("kubectl describe volumesnapshotcontent {content}"))
            .advise("see what the driver's snapshotter logs (csi-snapshotter)"),
    })
}

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
    if let Some(missing) = missing_class(world, snapshot) {
        return Some(missing.detail(error));
    }
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
            .detail(of_content(world, content))
            .detail(told)
            .advise(format!("kubectl describe volumesnapshotcontent {content}"))
            .advise("see what the driver's snapshotter logs (csi-snapshotter)"),
    })
}

/// What the driver's snapshotter says of what it makes.
fn of_content(world: &World, name: &str) -> String {
    let content = world.find(CONTENTS, name);
    let error = content.map(|content| object::text(content, "/status/error/message")).unwrap_or_default();
    if error.is_empty() { String::new() } else { format!("its driver says: {error}") }
}

pub(crate) const CLASSES: &str = "volumesnapshotclasses";
pub(crate) const CONTENTS: &str = "volumesnapshotcontents";

/// The class that it names is not there, or it names none and none is the default.
fn missing_class(world: &World, snapshot: &Value) -> Option<Finding> {
    let classes = world.seen(CLASSES)?;
    let has_content = !object::text(snapshot, "/status/boundVolumeSnapshotContentName").is_empty();
    if has_content || object::text(snapshot, "/spec/source/persistentVolumeClaimName").is_empty() {
        return None;
    }
    let names: Vec<&str> = classes.iter().map(object::name).collect();
    let there = match names.is_empty() {
        true => "the cluster has no VolumeSnapshotClass at all: the driver's installation brings it".to_owned(),
        false => format!("there are {}", named(&names)),
    };
    let wanted = object::text(snapshot, "/spec/volumeSnapshotClassName");
    let marked = |class: &&Value| {
        let mark = object::annotations(class).get("snapshot.storage.kubernetes.io/is-default-class");
        mark.and_then(Value::as_str) == Some("true")
    };
    let finding = |cause: String| Finding::new(Reason::Snapshot, snapshot, cause).detail(there.clone());
    let delete = format!(
        "kubectl delete {}volumesnapshot.snapshot.storage.k8s.io/{}",
        in_namespace(snapshot),
        object::name(snapshot)
    );
    if !wanted.is_empty() {
        return (!names.contains(&wanted)).then(|| {
            finding(format!("its VolumeSnapshotClass {wanted:?} does not exist"))
                .advise(format!("create that class, or delete it and create it with a class that exists: {delete}"))
        });
    }
    if classes.iter().any(|class| marked(&class)) {
        return None;
    }
    let found = finding("it names no volumeSnapshotClassName, and no class is the default one".to_owned());
    Some(match names.first() {
        Some(first) => found.advise(format!(
            "make one the default: kubectl annotate volumesnapshotclass {first} snapshot.storage.kubernetes.io/is-default-class=true"
        )).advise(format!("or delete it and create it with a class: {delete}")),
        None => found.advise("create a VolumeSnapshotClass of the claim's driver"),
    })
}

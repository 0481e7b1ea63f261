//! VolumeAttachments: whether the volume is at its node.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, is_young};
use crate::world::World;

pub(super) fn finding(world: &World, target: &Value) -> Option<Finding> {
    let (node, attacher) = (object::text(target, "/spec/nodeName"), object::text(target, "/spec/attacher"));
    let volume = object::text(target, "/spec/source/persistentVolumeName");
    let finding = |cause: String| Finding::new(Reason::NotAttached, target, cause);
    let is_attached = target.pointer("/status/attached").and_then(Value::as_bool) == Some(true);
    let failed = |field: &str| target.pointer(field).map(|error| object::text(error, "/message"));
    if let Some(error) = failed("/status/detachError").filter(|_| object::is_being_deleted(target)) {
        let cause = format!("the volume cannot be detached from node {node}");
        return Some(finding(cause).detail(error).advise(format!("see what the attacher of {attacher} logs")));
    }
    if is_attached {
        return None;
    }
    if world.seen("nodes").is_some_and(|all| !all.iter().any(|one| object::name(one) == node)) {
        let cause = format!("the volume cannot be attached: node {node} does not exist");
        return Some(finding(cause).advise(format!("kubectl delete volumeattachment {}", object::name(target))));
    }
    if !volume.is_empty()
        && world.seen("persistentvolumes").is_some()
        && world.find("persistentvolumes", volume).is_none()
    {
        let cause = format!("there is nothing to attach: the PersistentVolume {volume:?} does not exist");
        return Some(finding(cause).advise(format!("kubectl delete volumeattachment {}", object::name(target))));
    }
    if let Some(error) = failed("/status/attachError") {
        let cause = format!("the volume cannot be attached to node {node}");
        return Some(finding(cause).detail(error).advise(format!("see what the attacher of {attacher} logs")));
    }
    let known = |list: &str| Some(world.seen(list)?.iter().any(|one| has_driver(one, attacher)));
    let found = finding(format!("the volume is not attached to node {node} yet"))
        .underway_if(is_young(world, target))
        .advise(format!("see that the attacher of {attacher} runs, and what it logs"));
    Some(match (known("csidrivers"), known("csinodes")) {
        (Some(false), Some(false)) => found.probably().detail(format!(
            "nobody in the cluster calls itself {attacher}: there is no CSIDriver of that name, and no node has registered it"
        )),
        _ => found,
    })
}

/// Whether a CSIDriver has this name, or a CSINode has registered it.
fn has_driver(item: &Value, name: &str) -> bool {
    let of_node = object::items(item, "/spec/drivers").iter().any(|driver| object::text(driver, "/name") == name);
    object::name(item) == name || of_node
}

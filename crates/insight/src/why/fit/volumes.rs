//! Volumes that a node cannot have.

use ferry_meta::object;
use ferry_semantics::node_selector;
use k8s_openapi::api::core::v1::{Node, NodeSelector};
use serde_json::Value;

use super::super::misfit::misfits;
use super::super::provisioner::{NO_PROVISIONER, class_of};
use super::Obstacle;
use crate::world::World;

pub(super) fn obstacles(world: &World, pod: &Value, node: &Value) -> Vec<Obstacle> {
    let typed: Option<Node> = serde_json::from_value(node.clone()).ok();
    let mut found = Vec::new();
    for name in claims(pod) {
        let Some(claim) = world.find("persistentvolumeclaims", &name) else { continue };
        let volume = object::text(claim, "/spec/volumeName");
        if volume.is_empty()
            && let Some(typed) = &typed
        {
            found.extend(unbound(world, claim, typed));
        }
        let affinity =
            world.find("persistentvolumes", volume).and_then(|volume| volume.pointer("/spec/nodeAffinity/required"));
        let affinity = affinity.and_then(|affinity| serde_json::from_value::<NodeSelector>(affinity.clone()).ok());
        if let (Some(affinity), Some(typed)) = (affinity, &typed)
            && !node_selector::selects(&affinity, typed)
        {
            found.push(Obstacle::VolumeAffinity { volume: volume.to_owned(), claim: name.clone() });
        }
        let alone = object::items(claim, "/spec/accessModes").iter().any(|mode| mode == "ReadWriteOncePod");
        let user = world.all(crate::gather::ALL_PODS).iter().find(|other| {
            object::namespace(other) == object::namespace(pod)
                && object::uid(other) != object::uid(pod)
                && !object::text(other, "/spec/nodeName").is_empty()
                && !matches!(object::text(other, "/status/phase"), "Succeeded" | "Failed")
                && claims(other).contains(&name)
        });
        if let Some(user) = user.filter(|_| alone) {
            found.push(Obstacle::VolumeInUse { claim: name, by: format!("pod/{}", object::name(user)) });
        }
    }
    found
}

/// A claim whose volume is chosen, or made, together with the node.
fn unbound(world: &World, claim: &Value, node: &Node) -> Option<Obstacle> {
    let name = class_of(claim)?;
    let class = world.find("storageclasses", name)?;
    if object::text(class, "/volumeBindingMode") != "WaitForFirstConsumer" {
        return None;
    }
    let of = |volume: &Value| -> Option<NodeSelector> {
        serde_json::from_value(volume.pointer("/spec/nodeAffinity/required")?.clone()).ok()
    };
    let free = world.seen("persistentvolumes")?.iter().filter(|volume| misfits(claim, volume).is_empty());
    let free: Vec<&Value> = free.collect();
    if free.iter().any(|volume| of(volume).is_none_or(|affinity| node_selector::selects(&affinity, node))) {
        return None;
    }
    let (claim, class_name) = (object::name(claim).to_owned(), name.to_owned());
    if object::text(class, "/provisioner") == NO_PROVISIONER {
        let volumes = free.iter().map(|volume| object::name(volume).to_owned()).collect();
        return Some(Obstacle::VolumeElsewhere { claim, class: class_name, volumes });
    }
    let topologies = object::items(class, "/allowedTopologies");
    let has = |one: &Value| {
        let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(object::text(one, "/key")));
        label.is_some_and(|label| object::items(one, "/values").iter().any(|value| value == label.as_str()))
    };
    let is_for = |term: &Value| object::items(term, "/matchLabelExpressions").iter().all(has);
    if topologies.is_empty() || topologies.iter().any(is_for) {
        return None;
    }
    let text = |one: &Value| {
        let values = object::items(one, "/values").iter().filter_map(Value::as_str).collect::<Vec<_>>();
        format!("{}={}", object::text(one, "/key"), values.join(" or "))
    };
    let terms = topologies
        .iter()
        .map(|term| object::items(term, "/matchLabelExpressions").iter().map(text).collect::<Vec<_>>().join(" and "));
    Some(Obstacle::ClassTopology { claim, class: class_name, asks: terms.collect::<Vec<_>>().join(", or ") })
}

/// The volume of the pod that the claim of this name is made for.
pub(in super::super) fn made_for<'a>(pod: &'a Value, claim: &str) -> Option<&'a Value> {
    let is_it = |volume: &&Value| {
        volume.get("ephemeral").is_some() && claim == format!("{}-{}", object::name(pod), object::text(volume, "/name"))
    };
    object::items(pod, "/spec/volumes").iter().find(is_it)
}

/// The claims that a pod names.
pub(crate) fn claims(pod: &Value) -> Vec<String> {
    let of = |volume: &Value| match object::text(volume, "/persistentVolumeClaim/claimName") {
        // Made for the pod, and named after it.
        "" if volume.get("ephemeral").is_some() => {
            Some(format!("{}-{}", object::name(pod), object::text(volume, "/name")))
        }
        "" => None,
        name => Some(name.to_owned()),
    };
    object::items(pod, "/spec/volumes").iter().filter_map(of).collect()
}

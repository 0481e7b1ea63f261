//! Volumes that a node cannot have.

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use ferry_meta::selector::LabelSelector;
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
        let asks = affinity.map(super::node_terms).unwrap_or_default();
        let affinity = affinity.and_then(|affinity| serde_json::from_value::<NodeSelector>(affinity.clone()).ok());
        if let (Some(affinity), Some(typed)) = (affinity, &typed)
            && !node_selector::selects(&affinity, typed)
        {
            found.push(Obstacle::VolumeAffinity { volume: volume.to_owned(), claim: name.clone(), asks });
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

/// The nodes that a volume is for.
pub(super) fn nodes_of<'a>(world: &'a World, volume: &str) -> Vec<&'a str> {
    let required = world.find("persistentvolumes", volume).and_then(|one| one.pointer("/spec/nodeAffinity/required"));
    let required = required.and_then(|required| serde_json::from_value::<NodeSelector>(required.clone()).ok());
    let Some(required) = required else { return Vec::new() };
    let is_for = |node: &&Value| {
        serde_json::from_value::<Node>((*node).clone()).is_ok_and(|node| node_selector::selects(&required, &node))
    };
    world.all("nodes").iter().filter(is_for).map(object::name).collect()
}

/// What drivers that tell of their room have for a claim on a node.
pub(crate) const CAPACITIES: &str = "csistoragecapacities";

fn capacity(world: &World, claim: &Value, class: &Value, node: &Node) -> Option<Obstacle> {
    let driver = world.find("csidrivers", object::text(class, "/provisioner"))?;
    if driver.pointer("/spec/storageCapacity").and_then(Value::as_bool) != Some(true) {
        return None;
    }
    let wanted = Quantity::parse(object::text(claim, "/spec/resources/requests/storage")).ok()?;
    let labels = serde_json::to_value(&node.metadata.labels).ok()?;
    let labels = labels.as_object().cloned().unwrap_or_default();
    let of_class =
        world.seen(CAPACITIES)?.iter().filter(|one| object::text(one, "/storageClassName") == object::name(class));
    let reaches = |one: &&Value| {
        let topology = one.get("nodeTopology").and_then(|topology| LabelSelector::from_object(topology).ok());
        topology.is_some_and(|topology| topology.matches(&labels))
    };
    // The largest volume that may be made counts, where the driver tells it.
    let size = |one: &Value| {
        let largest = Quantity::parse(object::text(one, "/maximumVolumeSize"));
        largest.or_else(|_| Quantity::parse(object::text(one, "/capacity"))).ok()
    };
    let most = of_class.filter(reaches).filter_map(size).max_by(|one, other| one.as_f64().total_cmp(&other.as_f64()));
    if most.as_ref().is_some_and(|most| most.as_f64() >= wanted.as_f64()) {
        return None;
    }
    Some(Obstacle::Capacity {
        claim: object::name(claim).to_owned(),
        class: object::name(class).to_owned(),
        wanted: wanted.to_string(),
        most: most.map(|most| most.to_string()),
    })
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
    if object::text(class, "/provisioner") == NO_PROVISIONER {
        let (claim, class) = (object::name(claim).to_owned(), name.to_owned());
        let volumes = free.iter().map(|volume| object::name(volume).to_owned()).collect();
        return Some(Obstacle::VolumeElsewhere { claim, class, volumes });
    }
    if let Some(found) = capacity(world, claim, class, node) {
        return Some(found);
    }
    let (claim, class_name) = (object::name(claim).to_owned(), name.to_owned());
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

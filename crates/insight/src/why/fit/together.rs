//! What keeps a pod from all nodes together, where no single node tells it.

use std::collections::BTreeMap;

use ferry_meta::object;
use serde_json::Value;

use super::{Checked, Obstacle, node_terms};
use crate::gather::ALL_PODS;
use crate::world::World;

/// What is so, and what can be done about it.
pub(in super::super) fn told(world: &World, pod: &Value, checked: &[Checked<'_>]) -> Vec<(String, String)> {
    [volumes_apart(world, checked), polite(world, pod, checked), class_selects(pod, checked)]
        .into_iter()
        .flatten()
        .collect()
}

/// For each of its volumes there are nodes, and for all of them there is none.
pub(super) fn volumes_apart(world: &World, checked: &[Checked<'_>]) -> Option<(String, String)> {
    let mut of_nodes: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for one in checked {
        let mut any = false;
        for obstacle in &one.obstacles {
            if let Obstacle::VolumeAffinity { volume, claim, .. } = obstacle {
                of_nodes.entry(volume).or_insert((claim, 0)).1 += 1;
                any = true;
            }
        }
        if !any {
            return None;
        }
    }
    let has_node = |(_, (_, kept_off)): &(&&str, &(&str, usize))| *kept_off < checked.len();
    if of_nodes.len() < 2 || !of_nodes.iter().all(|one| has_node(&one)) {
        return None;
    }
    let told = of_nodes.iter().map(|(volume, (claim, _))| {
        let required =
            world.find("persistentvolumes", volume).and_then(|one| one.pointer("/spec/nodeAffinity/required"));
        format!("{volume} (claim {claim}) is for {}", required.map(node_terms).unwrap_or_default())
    });
    let claims: Vec<&str> = of_nodes.values().map(|(claim, _)| *claim).collect();
    Some((
        format!("no node is for all of its volumes: {}", told.collect::<Vec<_>>().join("; ")),
        format!(
            "volumes stay where they are: make one of the claims {} anew where the other volume is, or give each its own pod",
            claims.join(", ")
        ),
    ))
}

/// Pods of lower priority have the room that it needs, and it may not end them.
fn polite(world: &World, pod: &Value, checked: &[Checked<'_>]) -> Option<(String, String)> {
    if object::text(pod, "/spec/preemptionPolicy") != "Never" {
        return None;
    }
    let priority = |pod: &Value| pod.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0);
    let lacks_room = |one: &&Checked<'_>| {
        let room = |obstacle: &Obstacle| {
            matches!(obstacle, Obstacle::Room { ever: true, .. } | Obstacle::PodCount { .. } | Obstacle::Ports { .. })
        };
        !one.obstacles.is_empty() && one.obstacles.iter().all(room)
    };
    let full: Vec<&str> = checked.iter().filter(lacks_room).map(|one| one.node).collect();
    let lower = world.all(ALL_PODS).iter().find(|other| {
        full.contains(&object::text(other, "/spec/nodeName"))
            && priority(other) < priority(pod)
            && !matches!(object::text(other, "/status/phase"), "Succeeded" | "Failed")
    })?;
    let class = object::text(pod, "/spec/priorityClassName");
    Some((
        format!(
            "pods of lower priority are there, such as {} in {}, and it ends none of them: preemptionPolicy of its class {class} is Never",
            object::name(lower),
            object::namespace(lower)
        ),
        "if it may end them, use a PriorityClass with preemptionPolicy: PreemptLowerPriority".to_owned(),
    ))
}

/// Not all of nodeSelector need stand in the manifest.
fn class_selects(pod: &Value, checked: &[Checked<'_>]) -> Option<(String, String)> {
    let class = object::text(pod, "/spec/runtimeClassName");
    let selects = |one: &Checked<'_>| one.obstacles.iter().any(|one| matches!(one, Obstacle::Selector { .. }));
    (!class.is_empty() && checked.iter().any(selects)).then(|| {
        (
            String::new(),
            format!("what the manifest does not have of nodeSelector is of its RuntimeClass: kubectl get runtimeclass {class} -o yaml"),
        )
    })
}

//! Bindings: a pod is given its node.

use ferry_meta::{FieldErrors, names};
use serde_json::{Value, json};

use crate::cursor::{Cursor, Report, object_at};

pub fn validate(binding: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let target = Cursor::root(binding).get("target");
    let kind = target.text("kind");
    if !kind.is_empty() && kind != "Node" {
        errors.unsupported(target.at("kind"), kind, &["Node", "<empty>"]);
    }
    let name = target.text("name");
    if name.is_empty() {
        errors.required(target.at("name"), "");
    } else if ["", "Node"].contains(&kind) {
        errors.reasons(target.at("name"), name, names::dns1123_subdomain(name));
    }
    errors
}

/// Why a pod cannot be bound; None when it can.
pub fn refusal(pod: &Value) -> Option<String> {
    let at = Cursor::root(pod);
    let name = ferry_meta::object::name(pod);
    if ferry_meta::object::is_being_deleted(pod) {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = at.get("spec").text("nodeName");
    if !node.is_empty() {
        return Some(format!("pod {name} is already assigned to node {node:?}"));
    }
    (!at.get("spec").array("schedulingGates").is_empty())
        .then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

/// Puts the node, the binding's annotations and labels and the PodScheduled condition into the pod.
pub fn bind(pod: &mut Value, binding: &Value, now: &str) {
    let at = Cursor::root(binding);
    let node = at.get("target").text("name").to_owned();
    object_at(pod, &["spec"]).insert("nodeName".into(), node.into());
    for key in ["annotations", "labels"] {
        let given = at.get("metadata").map(key).clone();
        if !given.is_empty() {
            object_at(pod, &["metadata", key]).extend(given);
        }
    }
    let generation = crate::strategy::common::generation(pod);
    crate::strategy::common::set_generation(pod, generation + 1);
    let status = object_at(pod, &["status"]);
    status.remove("nominatedNodeName");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|c| c["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        }));
    }
}

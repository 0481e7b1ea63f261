//! A node's own object: no taints, owners, configuration or labels that would draw others' pods to it.

use ferry_meta::object::{items, labels, name};
use serde_json::{Map, Value};

use super::{Answer, refuse};
use crate::pod::is_set;
use crate::{Operation, Request};

/// Labels of the Kubernetes namespaces that a kubelet sets itself.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

pub(super) fn own(node: &str, request: &Request<'_>) -> Answer {
    let object = request.object.as_deref();
    // A name that is still to be generated is never the node's own.
    let requested = if request.name.is_empty() { object.map_or("", name) } else { request.name };
    if requested != node {
        return refuse(format!("node {node:?} is not allowed to modify node {requested:?}"));
    }
    match (request.operation, object, request.old) {
        (Operation::Create, Some(object), _) => {
            if is_set(object, "/spec/configSource") {
                return refuse(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
            }
            let forbidden = forbidden_labels(labels(object), &Map::new());
            if !forbidden.is_empty() {
                let list = forbidden.join(", ");
                return refuse(format!("node {node:?} is not allowed to set the following labels: {list}"));
            }
            Ok(())
        }
        (Operation::Update, Some(object), Some(old)) => update(node, object, old),
        _ => Ok(()),
    }
}

fn update(node: &str, object: &Value, old: &Value) -> Answer {
    let source = |node: &Value| node.pointer("/spec/configSource").filter(|source| !source.is_null()).cloned();
    if source(object).is_some() && source(object) != source(old) {
        return refuse(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource"));
    }
    let changed = |pointer: &str| items(object, pointer) != items(old, pointer);
    if changed("/spec/taints") {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if changed("/metadata/ownerReferences") {
        return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    let forbidden = forbidden_labels(labels(object), labels(old));
    if !forbidden.is_empty() {
        return refuse(format!("is not allowed to modify labels: {}", forbidden.join(", ")));
    }
    Ok(())
}

/// The labels that differ and that a node may not decide on, sorted.
fn forbidden_labels(new: &Map<String, Value>, old: &Map<String, Value>) -> Vec<String> {
    let mut forbidden: Vec<String> = new
        .keys()
        .chain(old.keys())
        .filter(|key| new.get(*key) != old.get(*key) && is_restricted(key))
        .cloned()
        .collect();
    forbidden.sort();
    forbidden.dedup();
    forbidden
}

fn is_restricted(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return false };
    let within = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    let kubelets = KUBELET_LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    within("node-restriction.kubernetes.io") || ((within("kubernetes.io") || within("k8s.io")) && !kubelets)
}

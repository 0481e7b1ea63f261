//! Pods of this node: mirror pods are made and deleted, statuses written, evictions asked for.

use ferry_meta::object::{items, labels, name, text, uid};
use serde_json::Value;

use super::{Answer, NodeRestriction, Refusal, references, refuse};
use crate::pod::{MIRROR, is_mirror};
use crate::{Operation, Request};

impl NodeRestriction {
    pub(super) fn pod(&self, node: &str, request: &Request<'_>) -> Answer {
        match request.operation {
            Operation::Create => self.mirror_pod(node, request),
            Operation::Delete => {
                let pod = self.existing_pod(request.namespace, request.name).map_err(Refusal::Other)?;
                if text(&pod, "/spec/nodeName") == node {
                    Ok(())
                } else {
                    refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
                }
            }
            other => refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                other.as_str()
            )),
        }
    }

    fn mirror_pod(&self, node: &str, request: &Request<'_>) -> Answer {
        let Some(pod) = request.object.as_deref() else { return refuse("unexpected type <nil>") };
        if !is_mirror(pod) {
            return refuse(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if text(pod, "/spec/nodeName") != node {
            return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        self.owned_by_node(node, pod)?;
        // Whatever a pod of the node refers to, the node may read: it must not choose that itself.
        match references::of(pod) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => refuse(format!("node {node:?} can not create pods that reference {what}")),
            Err(why) => refuse(format!("error checking mirror pod for API references: {why}")),
        }
    }

    fn owned_by_node(&self, node: &str, pod: &Value) -> Answer {
        let owner = match items(pod, "/metadata/ownerReferences") {
            [owner] => owner,
            [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
            _ => {
                return refuse(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let flag = |field: &str| owner.get(field).and_then(Value::as_bool).unwrap_or_default();
        if (text(owner, "/apiVersion"), text(owner, "/kind"), text(owner, "/name")) != ("v1", "Node", node) {
            return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        if !flag("controller") {
            return refuse(format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if flag("blockOwnerDeletion") {
            return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let object = self.existing_node(node).map_err(Refusal::Other)?;
        let (given, real) = (text(owner, "/uid"), uid(&object));
        if given == real { Ok(()) } else { refuse(format!("node {node} UID mismatch: expected {given} got {real}")) }
    }

    pub(super) fn eviction(&self, node: &str, request: &Request<'_>) -> Answer {
        if request.operation != Operation::Create {
            return refuse(format!("unexpected operation {}", request.operation.as_str()));
        }
        let pod_name = if request.name.is_empty() { request.object.as_deref().map_or("", name) } else { request.name };
        if pod_name.is_empty() {
            return refuse("could not determine pod from request data");
        }
        let pod = self.existing_pod(request.namespace, pod_name).map_err(Refusal::Other)?;
        if text(&pod, "/spec/nodeName") == node {
            Ok(())
        } else {
            refuse(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
    }
}

pub(super) fn status(node: &str, request: &Request<'_>) -> Answer {
    let (Some(pod), Some(old), Operation::Update) = (request.object.as_deref(), request.old, request.operation) else {
        return refuse(format!("unexpected operation {:?}", request.operation.as_str()));
    };
    if text(old, "/spec/nodeName") != node {
        return refuse(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if labels(old) != labels(pod) {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    // Claims that a pod has open them to its node: the scheduler and the controllers choose them.
    if items(old, "/status/resourceClaimStatuses") != items(pod, "/status/resourceClaimStatuses") {
        return refuse(format!("node {node:?} cannot update resource claim statues"));
    }
    let extended = |pod: &Value| pod.pointer("/status/extendedResourceClaimStatus").filter(|s| !s.is_null()).cloned();
    if extended(old) != extended(pod) {
        return refuse(format!("node {node:?} cannot update extended resource claim status"));
    }
    const ALLOCATABLE: &str = "/status/nodeAllocatableResourceClaimStatuses";
    if items(old, ALLOCATABLE) != items(pod, ALLOCATABLE) {
        return refuse(format!("node {node:?} cannot update node allocatable resource claim statuses"));
    }
    Ok(())
}

//! A kubelet writes its own node, the status of its own pods and mirror pods, and nothing that would draw work to it.

use std::sync::Arc;

use ferry_auth::node_name;
use ferry_meta::object::{items, labels, name, text, uid};
use ferry_meta::{ApiError, ObjectReader, UserInfo};
use serde_json::{Map, Value};

use crate::pod::{MIRROR, is_mirror, is_set, refers_to_config_maps, refers_to_secrets};
use crate::resources::{NODES, PODS};
use crate::{Operation, Plugin, Request};

pub(crate) struct NodeRestriction {
    reader: Arc<dyn ObjectReader>,
}

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Labels of the Kubernetes namespaces that a kubelet sets itself.
const KUBELET_LABELS: [&str; 12] = [
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
    "node.kubernetes.io/windows-build",
];

/// Allowed, refused with a reason, or failed in another way.
enum Refusal {
    Forbidden(String),
    Other(ApiError),
}

type Answer = Result<(), Refusal>;

fn refuse(why: impl Into<String>) -> Answer {
    Err(Refusal::Forbidden(why.into()))
}

impl NodeRestriction {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }

    fn admit(&self, node: &str, request: &Request<'_>) -> Answer {
        match (request.resource.group.as_str(), request.resource.resource.as_str(), request.subresource) {
            ("", "pods", "") => self.pod(node, request),
            ("", "pods", "status") => pod_status(node, request),
            ("", "pods", "eviction") => self.eviction(node, request),
            ("", "pods", other) => {
                refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
            }
            ("", "nodes", _) => own_node(node, request),
            ("", "persistentvolumeclaims", "status") => claim_status(node, request),
            ("", "persistentvolumeclaims", _) => refuse("may only update PVC status"),
            ("", "serviceaccounts", "token") => self.token(node, request),
            ("coordination.k8s.io", "leases", _) if request.namespace != LEASES => {
                refuse("can only access leases in the \"kube-node-lease\" system namespace")
            }
            ("coordination.k8s.io", "leases", _) => {
                own(node, request, "can only access node lease with the same name as the requesting node")
            }
            ("storage.k8s.io", "csinodes", _) => {
                own(node, request, "can only access CSINode with the same name as the requesting node")
            }
            ("resource.k8s.io", "resourceslices", _) => resource_slice(node, request),
            _ => Ok(()),
        }
    }

    fn existing_pod(&self, request: &Request<'_>, name: &str) -> Result<Arc<Value>, Refusal> {
        let found = self.reader.get(&PODS, request.namespace, name);
        found.ok_or_else(|| Refusal::Other(ApiError::not_found(&PODS, name)))
    }

    fn pod(&self, node: &str, request: &Request<'_>) -> Answer {
        match request.operation {
            Operation::Create => self.mirror_pod(node, request),
            Operation::Delete => {
                let pod = self.existing_pod(request, request.name)?;
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
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        if !is_mirror(pod) {
            return refuse(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if text(pod, "/spec/nodeName") != node {
            return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let flag = |owner: &Value, field: &str| owner.get(field).and_then(Value::as_bool).unwrap_or_default();
        match items(pod, "/metadata/ownerReferences") {
            [owner]
                if text(owner, "/apiVersion") == "v1"
                    && text(owner, "/kind") == "Node"
                    && text(owner, "/name") == node =>
            {
                if !flag(owner, "controller") {
                    return refuse(format!(
                        "node {node:?} can only create pods with a controller owner reference set to itself"
                    ));
                }
                if flag(owner, "blockOwnerDeletion") {
                    return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
                }
                let Some(object) = self.reader.get(&NODES, "", node) else {
                    return Err(Refusal::Other(ApiError::not_found(&NODES, node)));
                };
                if text(owner, "/uid") != uid(&object) {
                    let (expected, got) = (text(owner, "/uid"), uid(&object));
                    return refuse(format!("node {node} UID mismatch: expected {expected} got {got}"));
                }
            }
            [_, _, ..] => {
                return refuse(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
            _ => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
        }
        let projects = |what: &str| {
            items(pod, "/spec/volumes")
                .iter()
                .any(|volume| items(volume, "/projected/sources").iter().any(|source| is_set(source, what)))
        };
        let claims = items(pod, "/spec/volumes").iter().any(|volume| is_set(volume, "/persistentVolumeClaim"));
        for (found, what) in [
            (!text(pod, "/spec/serviceAccountName").is_empty(), "a service account"),
            (refers_to_secrets(pod), "secrets"),
            (refers_to_config_maps(pod), "configmaps"),
            (projects("/clusterTrustBundle"), "clustertrustbundles"),
            (claims, "persistentvolumeclaims"),
            (!items(pod, "/spec/resourceClaims").is_empty(), "resourceclaims"),
        ] {
            if found {
                return refuse(format!("node {node:?} can not create pods that reference {what}"));
            }
        }
        Ok(())
    }

    fn eviction(&self, node: &str, request: &Request<'_>) -> Answer {
        if request.operation != Operation::Create {
            return refuse(format!("unexpected operation {}", request.operation.as_str()));
        }
        let pod_name = if request.name.is_empty() { request.object.as_deref().map_or("", name) } else { request.name };
        if pod_name.is_empty() {
            return refuse("could not determine pod from request data");
        }
        let pod = self.existing_pod(request, pod_name)?;
        if text(&pod, "/spec/nodeName") == node {
            Ok(())
        } else {
            refuse(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
    }

    fn token(&self, node: &str, request: &Request<'_>) -> Answer {
        if request.operation != Operation::Create {
            return Ok(());
        }
        let reference = request.object.as_deref().and_then(|object| object.pointer("/spec/boundObjectRef"));
        let Some(reference) = reference
            .filter(|r| text(r, "/apiVersion") == "v1" && text(r, "/kind") == "Pod" && !text(r, "/name").is_empty())
        else {
            return refuse("node requested token not bound to a pod");
        };
        let wanted = text(reference, "/uid");
        if wanted.is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.existing_pod(request, text(reference, "/name"))?;
        if wanted != uid(&pod) {
            return refuse(format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if text(&pod, "/spec/nodeName") != node {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        Ok(())
    }
}

fn own(node: &str, request: &Request<'_>, why: &str) -> Answer {
    let object = request.object.as_deref().filter(|_| request.operation == Operation::Create);
    let target = object.map_or(request.name, name);
    if target == node { Ok(()) } else { refuse(why) }
}

fn pod_status(node: &str, request: &Request<'_>) -> Answer {
    let (Some(pod), Some(old), Operation::Update) = (request.object.as_deref(), request.old, request.operation) else {
        return refuse(format!("unexpected operation {:?}", request.operation.as_str()));
    };
    if text(old, "/spec/nodeName") != node {
        return refuse(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if labels(old) != labels(pod) {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    if items(old, "/status/resourceClaimStatuses") != items(pod, "/status/resourceClaimStatuses") {
        return refuse(format!("node {node:?} cannot update resource claim statues"));
    }
    Ok(())
}

fn own_node(node: &str, request: &Request<'_>) -> Answer {
    let requested = request.shown_name();
    if requested != node {
        return refuse(format!("node {node:?} is not allowed to modify node {requested:?}"));
    }
    let Some(object) = request.object.as_deref() else { return Ok(()) };
    match (request.operation, request.old) {
        (Operation::Create, _) => {
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
        (Operation::Update, Some(old)) => {
            let source = |node: &Value| node.pointer("/spec/configSource").filter(|source| !source.is_null()).cloned();
            if source(object).is_some() && source(object) != source(old) {
                return refuse(format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if items(object, "/spec/taints") != items(old, "/spec/taints") {
                return refuse(format!("node {node:?} is not allowed to modify taints"));
            }
            let forbidden = forbidden_labels(labels(object), labels(old));
            if !forbidden.is_empty() {
                return refuse(format!("is not allowed to modify labels: {}", forbidden.join(", ")));
            }
            Ok(())
        }
        _ => Ok(()),
    }
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

fn claim_status(node: &str, request: &Request<'_>) -> Answer {
    let (Some(claim), Some(old), Operation::Update) = (request.object.as_deref(), request.old, request.operation)
    else {
        return refuse(format!("unexpected operation {:?}", request.operation.as_str()));
    };
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        let mut drop = |parent: &str, fields: &[&str]| {
            if let Some(map) = claim.get_mut(parent).and_then(Value::as_object_mut) {
                map.retain(|key, _| !fields.contains(&key.as_str()));
            }
        };
        drop("metadata", &["resourceVersion", "managedFields"]);
        drop("status", &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"]);
        claim
    };
    if rest(claim) == rest(old) {
        Ok(())
    } else {
        refuse(format!(
            "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
        ))
    }
}

fn resource_slice(node: &str, request: &Request<'_>) -> Answer {
    let of_node = |slice: Option<&Value>| slice.is_some_and(|slice| text(slice, "/spec/nodeName") == node);
    match request.operation {
        Operation::Create if !of_node(request.object.as_deref()) => {
            refuse("can only create ResourceSlice with the same NodeName as the requesting node")
        }
        Operation::Delete if !of_node(request.old) => {
            refuse("can only delete ResourceSlice with the same NodeName as the requesting node")
        }
        _ => Ok(()),
    }
}

#[async_trait::async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn minds_renewal(&self, user: &UserInfo, namespace: &str, name: &str) -> bool {
        node_name(user).is_some_and(|node| namespace != LEASES || node != name)
    }

    fn handles(&self, operation: Operation) -> bool {
        operation != Operation::Connect
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let Some(node) = node_name(request.user) else { return Ok(()) };
        if node.is_empty() {
            let user = &request.user.name;
            return Err(request.forbidden(format_args!("could not determine node from user {user:?}")));
        }
        self.admit(node, request).map_err(|refusal| match refusal {
            Refusal::Forbidden(why) => request.forbidden(why),
            Refusal::Other(error) => error,
        })
    }
}

#[cfg(test)]
mod tests;

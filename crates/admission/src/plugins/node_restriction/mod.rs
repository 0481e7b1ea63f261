//! A kubelet writes its own node, the status of its own pods and mirror pods, and nothing that would draw work to it.
//!
//! The Node authorizer decides by names and verbs; what only the object tells is decided here, one file per resource.

mod certificates;
mod claims;
mod nodes;
mod pods;
mod references;
mod tokens;

use std::sync::Arc;

use ferry_auth::{Attributes, Authorizer, node_name};
use ferry_meta::object::{name, text};
use ferry_meta::{ApiError, GroupResource, ObjectReader, Reason, UserInfo};
use serde_json::Value;

use crate::resources::{NODES, PODS};
use crate::{Operation, Plugin, Request};

pub(crate) struct NodeRestriction {
    reader: Arc<dyn ObjectReader>,
    /// Whom a node asks for tokens and certificates that its pods do not mount.
    authorizer: Arc<dyn Authorizer>,
}

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Allowed, refused with a reason, or failed in another way.
#[derive(Debug)]
enum Refusal {
    Forbidden(String),
    Other(ApiError),
}

type Answer = Result<(), Refusal>;

fn refuse(why: impl Into<String>) -> Answer {
    Err(Refusal::Forbidden(why.into()))
}

/// What may be true a moment later, once the caches have caught up: no 403, so that the kubelet tries again.
fn not_yet(why: String) -> Refusal {
    Refusal::Other(ApiError::new(500, Reason::Unknown, why))
}

impl NodeRestriction {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { reader, authorizer }
    }

    async fn admit(&self, node: &str, request: &Request<'_>) -> Answer {
        match (request.resource.group.as_str(), request.resource.resource.as_str(), request.subresource) {
            ("", "pods", "") => self.pod(node, request),
            ("", "pods", "status") => pods::status(node, request),
            ("", "pods", "eviction") => self.eviction(node, request),
            ("", "pods", other) => {
                refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
            }
            ("", "nodes", _) => nodes::own(node, request),
            ("", "persistentvolumeclaims", "status") => claims::status(node, request),
            ("", "persistentvolumeclaims", _) => refuse("may only update PVC status"),
            ("", "serviceaccounts", "token") if request.operation == Operation::Create => {
                self.token(node, request).await
            }
            ("certificates.k8s.io", "podcertificaterequests", _) => self.pod_certificate(node, request).await,
            ("certificates.k8s.io", "certificatesigningrequests", _) => certificates::signing(node, request),
            ("coordination.k8s.io", "leases", _) if request.namespace != LEASES => {
                refuse("can only access leases in the \"kube-node-lease\" system namespace")
            }
            ("coordination.k8s.io", "leases", _) => {
                own(node, request, "can only access node lease with the same name as the requesting node")
            }
            ("storage.k8s.io", "csinodes", subresource) => {
                own(node, request, "can only access CSINode with the same name as the requesting node")?;
                // The gate is off, as it is upstream: nothing reports the health of volumes.
                if subresource == "status" { refuse("CSIVolumeHealth feature gate is disabled") } else { Ok(()) }
            }
            ("resource.k8s.io", "resourceslices", _) => resource_slice(node, request),
            _ => Ok(()),
        }
    }

    fn existing_pod(&self, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        self.reader.get(&PODS, namespace, name).ok_or_else(|| missing("", "pod", name))
    }

    fn existing_node(&self, name: &str) -> Result<Arc<Value>, ApiError> {
        self.reader.get(&NODES, "", name).ok_or_else(|| missing("", "node", name))
    }

    /// Whether the node itself was given the right to ask for `resource` in the name of a service account.
    async fn is_granted(&self, request: &Request<'_>, verb: &str, resource: &str, account: &str) -> GrantAnswer {
        let attributes = Attributes {
            version: &request.resource.version,
            namespace: request.namespace,
            name: account,
            ..Attributes::resource(request.user, verb, &request.resource.group, resource)
        };
        let decision = self.authorizer.authorize(&attributes).await;
        match decision.error() {
            _ if decision.is_allowed() => GrantAnswer::Granted,
            Some(error) => GrantAnswer::Unknown(error.to_owned()),
            None => GrantAnswer::Refused,
        }
    }
}

enum GrantAnswer {
    Granted,
    Refused,
    Unknown(String),
}

/// The 404 of an object that a plug-in looks for: it names the kind in the singular, as upstream's listers do.
fn missing(group: &str, singular: &str, name: &str) -> ApiError {
    ApiError::not_found(&GroupResource::new(group, singular), name)
}

fn own(node: &str, request: &Request<'_>, why: &str) -> Answer {
    let object = request.object.as_deref().filter(|_| request.operation == Operation::Create);
    let target = object.map_or(request.name, name);
    if target == node { Ok(()) } else { refuse(why) }
}

/// The Node authorizer looks at slices that exist; it does not see what is created, nor each of a collection.
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
        self.admit(node, request).await.map_err(|refusal| match refusal {
            Refusal::Forbidden(why) => request.forbidden(why),
            Refusal::Other(error) => error,
        })
    }
}

#[cfg(test)]
mod tests;

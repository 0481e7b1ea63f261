//! The Node authorizer: a kubelet reaches its own node's objects and those its pods refer to, and nothing else.

mod references;

use std::sync::Arc;

use ferry_meta::object::text;
use ferry_meta::{ObjectReader, UserInfo};

use crate::authorize::{Attributes, Authorizer, Decision};
use crate::bootstrap;
use crate::rbac::{PolicyRule, rules_of};
use crate::resources::{CERTIFICATE_REQUESTS, PODS, RESOURCE_SLICES, VOLUME_ATTACHMENTS};
use references::Related;

pub struct NodeAuthorizer {
    reader: Arc<dyn ObjectReader>,
    /// What every node may do alike: the rules of the `system:node` role.
    rules: Vec<PolicyRule>,
}

/// The name of the node that the user is, `Some("")` for a member of `system:nodes` without a proper name.
pub fn node_name(user: &UserInfo) -> Option<&str> {
    if !user.in_group("system:nodes") {
        return None;
    }
    Some(user.name.strip_prefix("system:node:").unwrap_or_default())
}

impl NodeAuthorizer {
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        let role = bootstrap::objects()
            .into_iter()
            .find(|object| text(object, "/kind") == "ClusterRole" && ferry_meta::object::name(object) == "system:node");
        Self { reader, rules: role.as_ref().map(rules_of).unwrap_or_default() }
    }

    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = node_name(attributes.user) else { return Decision::no_opinion("") };
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {:?}", attributes.user.name));
        }
        let request = Request { reader: &*self.reader, node, attributes };
        let answer = match (attributes.group, attributes.resource) {
            ("", "secrets") => request.read(Related::Secret),
            ("", "configmaps") => request.read(Related::ConfigMap),
            ("", "persistentvolumeclaims") if attributes.subresource == "status" => request.claim_status(),
            ("", "persistentvolumeclaims") => request.get(Related::Claim),
            ("", "persistentvolumes") => request.get(Related::Volume),
            ("resource.k8s.io", "resourceclaims") => request.get(Related::ResourceClaim),
            ("storage.k8s.io", "volumeattachments") => request.get(Related::Attachment),
            ("", "serviceaccounts") if attributes.subresource.is_empty() && attributes.verb == "get" => {
                request.read(Related::ServiceAccount)
            }
            ("", "serviceaccounts") => request.token(),
            ("certificates.k8s.io", "podcertificaterequests") => request.certificate_request(),
            ("coordination.k8s.io", "leases") => request.lease(),
            ("storage.k8s.io", "csinodes") => request.csi_node(),
            ("resource.k8s.io", "resourceslices") => request.resource_slice(),
            ("", "nodes") => request.own_node(),
            ("", "pods") => request.pod(),
            _ if self.rules.iter().any(|rule| rule.allows(attributes)) => Ok(()),
            _ => Err(String::new()),
        };
        match answer {
            Ok(()) => Decision::allow(),
            Err(reason) => Decision::no_opinion(reason),
        }
    }
}

#[async_trait::async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.decide(attributes)
    }
}

/// Allowed, or the reason why not (which may be empty).
type Answer = Result<(), String>;

struct Request<'a> {
    reader: &'a dyn ObjectReader,
    node: &'a str,
    attributes: &'a Attributes<'a>,
}

impl Request<'_> {
    fn related(&self, kind: Related) -> Answer {
        let (namespace, name) = (self.attributes.namespace, self.attributes.name);
        if name.is_empty() {
            return Err("No Object name found".into());
        }
        let found = match kind {
            Related::Pod => {
                self.reader.get(&PODS, namespace, name).is_some_and(|pod| text(&pod, "/spec/nodeName") == self.node)
            }
            Related::CertificateRequest => self
                .reader
                .get(&CERTIFICATE_REQUESTS, namespace, name)
                .is_some_and(|request| text(&request, "/spec/nodeName") == self.node),
            Related::Slice => self
                .reader
                .get(&RESOURCE_SLICES, "", name)
                .is_some_and(|slice| text(&slice, "/spec/nodeName") == self.node),
            Related::Attachment => self
                .reader
                .get(&VOLUME_ATTACHMENTS, "", name)
                .is_some_and(|attachment| text(&attachment, "/spec/nodeName") == self.node),
            _ => references::pod_of_node_refers(self.reader, self.node, kind, namespace, name),
        };
        if found { Ok(()) } else { Err(self.unrelated()) }
    }

    fn unrelated(&self) -> String {
        format!("no relationship found between node '{}' and this object", self.node)
    }

    fn get(&self, kind: Related) -> Answer {
        if self.attributes.verb != "get" {
            return Err("can only get individual resources of this type".into());
        }
        if !self.attributes.subresource.is_empty() {
            return Err("cannot get subresource".into());
        }
        self.related(kind)
    }

    fn read(&self, kind: Related) -> Answer {
        if !matches!(self.attributes.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !self.attributes.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if self.attributes.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.related(kind)
    }

    fn claim_status(&self) -> Answer {
        if !matches!(self.attributes.verb, "update" | "patch") {
            return Err("can only get/update/patch this type".into());
        }
        self.related(Related::Claim)
    }

    fn token(&self) -> Answer {
        if self.attributes.verb != "create" || self.attributes.name.is_empty() {
            return Err("can only create tokens for individual service accounts".into());
        }
        if self.attributes.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.related(Related::ServiceAccount)
    }

    /// NodeRestriction looks at what is created.
    fn certificate_request(&self) -> Answer {
        if !self.attributes.subresource.is_empty() {
            return Err("nodes may not access the status subresource of PodCertificateRequests".into());
        }
        match self.attributes.verb {
            "create" => Ok(()),
            "get" => self.related(Related::CertificateRequest),
            "list" | "watch" if self.selects("spec.nodeName") => Ok(()),
            "list" | "watch" => Err("can only list/watch podcertificaterequests with nodeName field selector".into()),
            verb => Err(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn lease(&self) -> Answer {
        if !matches!(self.attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Err("can only get, create, update, patch, or delete a node lease".into());
        }
        if self.attributes.namespace != "kube-node-lease" {
            return Err("can only access leases in the \"kube-node-lease\" system namespace".into());
        }
        self.own("can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> Answer {
        match (self.attributes.subresource, self.attributes.verb) {
            ("", "get" | "create" | "update" | "patch" | "delete") => {}
            ("", _) => return Err("can only get, create, update, patch, or delete a CSINode".into()),
            ("status", _) => return Err("CSINode status access requires CSIVolumeHealth feature".into()),
            _ => return Err("cannot authorize CSINode subresources".into()),
        }
        self.own("can only access CSINode with the same name as the requesting node")
    }

    /// The name of what is created is not known here; NodeRestriction looks at it.
    fn own(&self, why: &str) -> Answer {
        let own = self.attributes.verb == "create" || self.attributes.name == self.node;
        if own { Ok(()) } else { Err(why.into()) }
    }

    fn selects(&self, field: &str) -> bool {
        self.attributes.fields.iter().any(|(name, value)| name == field && value == self.node)
    }

    fn resource_slice(&self) -> Answer {
        if !self.attributes.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".into());
        }
        match self.attributes.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(Related::Slice),
            "watch" | "list" | "deletecollection" if self.selects("spec.nodeName") => Ok(()),
            "watch" | "list" | "deletecollection" => {
                Err("can only list/watch/deletecollection resourceslices with nodeName field selector".into())
            }
            _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection".into()),
        }
    }

    /// NodeRestriction limits writes to the node's own object.
    fn own_node(&self) -> Answer {
        match (self.attributes.subresource, self.attributes.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match self.attributes.name {
                name if name == self.node => Ok(()),
                "" => Err(format!("node '{}' cannot read all nodes, only its own Node object", self.node)),
                name => Err(format!("node '{}' cannot read '{name}', only its own Node object", self.node)),
            },
            _ => Err(String::new()),
        }
    }

    /// NodeRestriction limits writes to pods of this node, and creations to mirror pods.
    fn pod(&self) -> Answer {
        match (self.attributes.subresource, self.attributes.verb) {
            ("", "get") => self.related(Related::Pod),
            ("", "list" | "watch") if self.selects("spec.nodeName") => Ok(()),
            ("", "list" | "watch") if !self.attributes.name.is_empty() => self.related(Related::Pod),
            ("", "list" | "watch") => Err("can only list/watch pods with spec.nodeName field selector".into()),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }
}

#[cfg(test)]
mod tests;

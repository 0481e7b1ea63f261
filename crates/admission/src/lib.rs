//! Admission: plug-ins that change or refuse a write after authorization and before the store.
//!
//! Reads cluster state only through `meta::ObjectReader`; must not depend on the store, the registry or the API server.
//!
//! `Chain::new(Dependencies { reader, authorizer, quotas, node_labels })` has the built-in plug-ins in upstream's order, and
//! `.with_policies(PolicyOptions { defaulter, kinds })` and `.with_webhooks(WebhookOptions { tasks, defaulter })` add the cluster's own
//! policies and webhooks at their place. The API server
//! calls `chain.mutate(&mut request)` before it validates the object and `chain.validate(&mut request)` afterwards, for
//! creations, updates, deletions and connections alike; subresources that take an object of their own (`token`,
//! `eviction`, `binding`) pass that object. An error is the answer to the client.
//!
//! Adding a plug-in: one file in `plugins/` that implements [`Plugin`]; what may change the object goes into `mutate`,
//! everything else into `validate`; it is named in `plugins/mod.rs` and takes its place in `Chain::new`; its texts are
//! upstream's, and its tests are cases of `testing::Case`.

mod chain;
mod equivalents;
mod error;
mod plugins;
mod pod;
mod policy;
mod quota_store;
mod resources;
#[cfg(test)]
mod testing;
mod webhook;

use ferry_meta::{ApiError, GroupVersionKind, GroupVersionResource, UserInfo};
use serde_json::{Value, json};

pub use chain::{Chain, Dependencies, NodeLabels};
pub use equivalents::{Equivalent, Equivalents};
pub use error::{CallError, PluginsError, ServiceError};
pub use policy::{Kinds, PolicyOptions};
pub use quota_store::QuotaStore;
pub use webhook::{Defaulter, WebhookOptions, Webhooks};
pub use webhook::{authorities, resolve_service};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// As it stands in rules of webhooks and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One write on its way to the store. `object` is None for deletions, `old` None for creations.
pub struct Request<'a> {
    pub operation: Operation,
    pub kind: &'a GroupVersionKind,
    pub resource: &'a GroupVersionResource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    pub object: Option<&'a mut Value>,
    pub old: Option<&'a Value>,
    /// The options of the request (CreateOptions, …) as JSON.
    pub options: &'a Value,
    /// `Warning` headers for the answer.
    pub warnings: Vec<String>,
    /// Notes for the audit log, by their full keys.
    pub annotations: Vec<(String, String)>,
    /// Whether plug-ins see the object again because a later one changed it.
    pub reinvoked: bool,
    /// The webhooks that were asked, and how long each took.
    pub calls: Vec<(String, std::time::Duration)>,
    /// The other versions of the resource; rules for those may mean this request too.
    pub equivalents: Option<&'a dyn Equivalents>,
    /// What the client asked for, where the objects are in another version.
    pub requested: Option<(&'a GroupVersionKind, &'a GroupVersionResource)>,
}

impl Request<'_> {
    /// Whether it is for this resource, whatever the subresource.
    pub fn concerns(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }

    /// Whether it is for this resource itself, not for a subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.concerns(group, resource)
    }

    /// A name to show before one has been generated.
    pub fn shown_name(&self) -> &str {
        use ferry_meta::object::text;
        let object = self.object.as_deref();
        let of = |pointer: &str| object.map(|object| text(object, pointer)).unwrap_or_default();
        [self.name, of("/metadata/name"), of("/metadata/generateName")]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default()
    }

    /// What webhooks and expressions are told of it alike.
    fn describe(&self) -> Value {
        let of = |kind: &GroupVersionKind, resource: &GroupVersionResource| {
            let (group, version, plural) = (&resource.group, &resource.version, &resource.resource);
            (
                json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
                json!({"group": group, "version": version, "resource": plural}),
            )
        };
        let (kind, resource) = of(self.kind, self.resource);
        let (request_kind, request_resource) =
            self.requested.map_or_else(|| (kind.clone(), resource.clone()), |(kind, resource)| of(kind, resource));
        let mut described = json!({
            "kind": kind, "resource": resource, "requestKind": request_kind, "requestResource": request_resource,
            "operation": self.operation.as_str(), "userInfo": self.user, "dryRun": self.dry_run,
        });
        for (field, value) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ] {
            if !value.is_empty() {
                described[field] = value.into();
            }
        }
        described
    }

    /// The 403 of a plug-in.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> ApiError {
        let name = match self.shown_name() {
            "" => "Unknown",
            name => name,
        };
        ApiError::forbidden(&self.resource.group_resource(), name, &why.to_string())
    }
}

#[async_trait::async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    fn handles(&self, operation: Operation) -> bool;

    /// May change `request.object`.
    async fn mutate(&self, _request: &mut Request<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether it has anything to say when this lease is renewed: its time changes, and nothing else.
    fn minds_renewal(&self, _user: &UserInfo, _namespace: &str, _name: &str) -> bool {
        false
    }

    /// Must not change anything.
    async fn validate(&self, _request: &mut Request<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

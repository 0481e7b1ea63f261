//! Rows of the resource table.

use std::sync::Arc;

use ferry_meta::{GroupKind, GroupResource, GroupVersionKind};

use crate::strategy::Strategy;

/// One served resource in one version.
pub struct Resource {
    pub gvk: GroupVersionKind,
    pub plural: String,
    pub singular: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    pub columns: Vec<Column>,
    /// `/registry/<this>/…`, as upstream lays it out: `pods`, `deployments`, `services/specs`, `minions` for nodes.
    pub storage_prefix: String,
    /// The version objects are stored in, where it is not this one.
    pub storage_gvk: GroupVersionKind,
    /// Reviews and bindings are answered, never stored.
    pub stored: bool,
    pub strategy: Arc<dyn Strategy>,
}

pub struct Subresource {
    pub name: String,
    /// The kind that is sent and answered: `Scale` in autoscaling/v1 for `scale`, the parent's own for `status`.
    pub kind: GroupVersionKind,
    pub verbs: Vec<String>,
}

pub struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
}

impl Resource {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.gvk.group, &*self.plural)
    }

    pub fn group_kind(&self) -> GroupKind {
        self.gvk.group_kind()
    }

    /// The store's key of an object, or with an empty name the prefix of a namespace (or of all, if that is empty too).
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = &self.storage_prefix;
        match (self.namespaced && !namespace.is_empty(), name.is_empty()) {
            (true, false) => format!("/registry/{prefix}/{namespace}/{name}"),
            (true, true) => format!("/registry/{prefix}/{namespace}/"),
            (false, false) => format!("/registry/{prefix}/{name}"),
            (false, true) => format!("/registry/{prefix}/"),
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// All rows. Immutable: a CRD makes a new table, which the server swaps in.
#[derive(Clone, Default)]
pub struct ResourceTable {
    rows: Vec<Arc<Resource>>,
}

impl ResourceTable {
    pub fn new(rows: Vec<Arc<Resource>>) -> Self {
        Self { rows }
    }

    pub fn rows(&self) -> &[Arc<Resource>] {
        &self.rows
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.rows.iter().find(|r| r.gvk.group == group && r.gvk.version == version && r.plural == plural)
    }
}

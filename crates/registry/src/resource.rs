//! Rows of the resource table.

use std::collections::HashMap;
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// The kind that errors name: of an object served in two groups, that of the stored one.
    pub fn group_kind(&self) -> GroupKind {
        self.storage_gvk.group_kind()
    }

    /// The store's key of an object, or with an empty name the prefix of a namespace (or of all, if that is empty too).
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = &*self.storage_prefix;
        match self.namespaced && !namespace.is_empty() {
            true => ["/registry/", prefix, "/", namespace, "/", name].concat(),
            false => ["/registry/", prefix, "/", name].concat(),
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The field a selector's label names, or upstream's refusal.
    pub fn field_label<'a>(&self, label: &'a str) -> Result<&'a str, String> {
        let fields = self.strategy.selectable_fields();
        let custom = self.strategy.custom_type().is_some();
        match label {
            "metadata.name" => Ok(label),
            "metadata.namespace" if self.gvk.kind == "PodCertificateRequest" => {
                Err(format!("field label not supported: {label}"))
            }
            "metadata.namespace" if self.namespaced || (fields.is_empty() && !custom) => Ok(label),
            // Old clients of pods say so.
            "spec.host" if self.plural == "pods" && self.gvk.group.is_empty() => Ok("spec.nodeName"),
            _ if fields.contains(&label) => Ok(label),
            _ if fields.is_empty() && !custom => {
                Err(format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
            }
            _ if self.gvk.kind == "Job" && self.gvk.group == "batch" => {
                Err(format!("field label {label:?} not supported for Job"))
            }
            _ if self.gvk.kind == "ResourceSlice" => {
                let (version, kind) = (self.gvk.api_version(), &self.gvk.kind);
                Err(format!("field label not supported for {version}, Kind={kind}: {label}"))
            }
            _ => Err(format!("field label not supported: {label}")),
        }
    }

    /// The value of a selectable field, the two of the metadata included.
    pub fn field(&self, object: &serde_json::Value, field: &str) -> String {
        match field {
            "metadata.name" => ferry_meta::object::name(object).to_owned(),
            "metadata.namespace" => ferry_meta::object::namespace(object).to_owned(),
            _ => self.strategy.field(object, field),
        }
    }
}

/// All rows, in the order discovery lists groups, versions and resources. Immutable: a CRD makes a new table, which the
/// server swaps in.
#[derive(Clone, Default)]
pub struct ResourceTable {
    rows: Vec<Arc<Resource>>,
    /// Of all groups and versions.
    by_plural: HashMap<String, Vec<usize>>,
    by_kind: HashMap<GroupVersionKind, usize>,
}

impl ResourceTable {
    pub fn new(rows: Vec<Arc<Resource>>) -> Self {
        let mut table = Self::default();
        for row in rows {
            let index = table.rows.len();
            table.by_plural.entry(row.plural.clone()).or_default().push(index);
            table.by_kind.entry(row.gvk.clone()).or_insert(index);
            table.rows.push(row);
        }
        table
    }

    pub fn rows(&self) -> &[Arc<Resource>] {
        &self.rows
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut rows = self.by_plural.get(plural)?.iter().map(|index| &self.rows[*index]);
        rows.find(|row| row.gvk.group == group && row.gvk.version == version)
    }

    pub fn find_kind(&self, kind: &GroupVersionKind) -> Option<&Arc<Resource>> {
        self.by_kind.get(kind).map(|index| &self.rows[*index])
    }

    /// Groups in discovery's order, each with its versions, the preferred one first.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            let (group, version) = (row.gvk.group.as_str(), row.gvk.version.as_str());
            match groups.iter_mut().find(|(name, _)| *name == group) {
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
                None => groups.push((group, vec![version])),
            }
        }
        groups
    }
}

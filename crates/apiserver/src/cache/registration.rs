//! What the cache must know of a resource to index its objects.

use std::fmt;

use bytes::Bytes;
use ferry_meta::GroupResource;
use ferry_registry::ResourceTable;
use serde_json::Value;

type Decode = dyn Fn(&str, &Bytes) -> Result<Bytes, String> + Send + Sync;
type FieldValue = dyn Fn(&Value, &str) -> String + Send + Sync;

pub struct Registration {
    /// Every name under which the resource is served: events have two groups.
    pub resources: Vec<GroupResource>,
    /// `/registry/pods/`
    pub root: String,
    pub namespaced: bool,
    /// Selectable fields beyond the metadata's, dotted.
    pub fields: Vec<String>,
    field_value: Box<FieldValue>,
    /// From a stored value to JSON, where they differ (encryption, protobuf).
    decode: Option<Box<Decode>>,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({})", self.root)
    }
}

impl Registration {
    /// `field_value` gets objects cut down to `fields`.
    pub fn new(
        resource: GroupResource,
        storage_prefix: &str,
        namespaced: bool,
        fields: Vec<String>,
        field_value: impl Fn(&Value, &str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            resources: vec![resource],
            root: format!("/registry/{storage_prefix}/"),
            namespaced,
            fields,
            field_value: Box::new(field_value),
            decode: None,
        }
    }

    #[must_use]
    pub fn with_decode(
        mut self,
        decode: impl Fn(&str, &Bytes) -> Result<Bytes, String> + Send + Sync + 'static,
    ) -> Self {
        self.decode = Some(Box::new(decode));
        self
    }

    /// One registration per stored resource; rows that share a place in the store share it.
    pub fn of_table(table: &ResourceTable) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for row in table.rows().iter().filter(|row| row.stored) {
            let resource = row.group_resource();
            let root = format!("/registry/{}/", row.storage_prefix);
            if let Some(known) = all.iter_mut().find(|known| known.root == root) {
                if !known.resources.contains(&resource) {
                    known.resources.push(resource);
                }
                continue;
            }
            // Fields are read off stored objects, so the row of the stored version knows how.
            let stored = table.find_kind(&row.storage_gvk).unwrap_or(row).clone();
            let fields = stored.strategy.selectable_fields().into_iter().map(str::to_owned).collect();
            let strategy = stored.strategy.clone();
            let value = move |object: &Value, field: &str| strategy.field(object, field);
            all.push(Self::new(resource, &row.storage_prefix, row.namespaced, fields, value));
        }
        all
    }

    /// The prefix of a namespace's keys; the empty namespace is all of them.
    pub fn prefix(&self, namespace: &str) -> String {
        if namespace.is_empty() { self.root.clone() } else { format!("{}{namespace}/", self.root) }
    }

    pub fn key(&self, namespace: &str, name: &str) -> String {
        match namespace {
            "" => [&self.root, name].concat(),
            _ => [&self.root, namespace, "/", name].concat(),
        }
    }

    /// Namespace and name of a key.
    pub(super) fn split<'a>(&self, key: &'a str) -> (&'a str, &'a str) {
        let rest = key.strip_prefix(&*self.root).unwrap_or_default();
        if self.namespaced { rest.split_once('/').unwrap_or(("", rest)) } else { ("", rest) }
    }

    pub(super) fn field_values(&self, object: &Value) -> Box<[Box<str>]> {
        self.fields.iter().map(|field| (self.field_value)(object, field).into_boxed_str()).collect()
    }

    pub(super) fn decode(&self, key: &str, value: &Bytes) -> Result<Bytes, String> {
        match &self.decode {
            Some(decode) => decode(key, value),
            None => Ok(value.clone()),
        }
    }
}

//! What is served, derived from the resource table: the old documents per group and version, and the aggregated ones.

pub(crate) mod openapi;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferry_meta::{GroupVersion, GroupVersionKind};
use ferry_registry::{Resource, ResourceTable};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::aggregation::{Remote, Remotes, aggregated_resources, with_remote};

/// What documents were made of, and the documents.
type Made = (Arc<ResourceTable>, Arc<Remotes>, Aggregated);

/// The aggregated documents of the current table, made once per table.
#[derive(Default)]
pub(crate) struct Documents {
    made: Mutex<Option<Made>>,
}

#[derive(Clone)]
pub(crate) struct Aggregated {
    pub core: (Bytes, String),
    pub groups: (Bytes, String),
}

impl Documents {
    pub(crate) fn aggregated(&self, table: &Arc<ResourceTable>, remotes: &Arc<Remotes>) -> Aggregated {
        let mut made = self.made.lock();
        if let Some((of, with, documents)) = &*made
            && Arc::ptr_eq(of, table)
            && Arc::ptr_eq(with, remotes)
        {
            return documents.clone();
        }
        let documents = Aggregated {
            core: tagged(aggregated(table, &[], true)),
            groups: tagged(aggregated(table, remotes, false)),
        };
        *made = Some((table.clone(), remotes.clone(), documents.clone()));
        documents
    }
}

fn tagged(document: Value) -> (Bytes, String) {
    let bytes = document.to_string();
    let tag = format!("\"{}\"", hex(&Sha256::digest(&bytes)).to_uppercase());
    (bytes.into(), tag)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The groups but the core one, with their versions, best first.
fn groups(table: &ResourceTable, remotes: &[Arc<Remote>]) -> Vec<(String, Vec<String>)> {
    let own = (table.groups().into_iter())
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| (group.to_owned(), versions.into_iter().map(str::to_owned).collect()))
        .collect();
    with_remote(own, remotes)
}

fn rows<'a>(table: &'a ResourceTable, group: &str, version: &str) -> Vec<&'a Arc<Resource>> {
    let mut rows: Vec<_> = table.rows().iter().filter(|r| r.gvk.group == group && r.gvk.version == version).collect();
    rows.sort_by(|a, b| a.plural.cmp(&b.plural));
    rows
}

/// `/api`
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`
pub(crate) fn group_list(table: &ResourceTable, remotes: &[Arc<Remote>]) -> Value {
    let groups: Vec<Value> = groups(table, remotes)
        .iter()
        .map(|(group, versions)| group_fields(group, versions))
        .map(Value::Object)
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_fields(group: &str, versions: &[String]) -> Map<String, Value> {
    let versions: Vec<Value> =
        versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": v})).collect();
    let mut fields = Map::new();
    fields.insert("name".into(), group.into());
    fields.insert("preferredVersion".into(), versions.first().cloned().unwrap_or_default());
    fields.insert("versions".into(), versions.into());
    fields
}

/// `/apis/<group>`
pub(crate) fn group(table: &ResourceTable, remotes: &[Arc<Remote>], name: &str) -> Option<Value> {
    let (group, versions) = groups(table, remotes).into_iter().find(|(group, _)| group == name)?;
    let mut fields = group_fields(&group, &versions);
    fields.insert("kind".into(), "APIGroup".into());
    fields.insert("apiVersion".into(), "v1".into());
    Some(Value::Object(fields))
}

/// `/api/v1` and `/apis/<group>/<version>`
pub(crate) fn resource_list(table: &ResourceTable, group: &str, version: &str) -> Option<Value> {
    let rows = rows(table, group, version);
    if rows.is_empty() {
        return None;
    }
    let mut resources = Vec::new();
    for row in rows {
        let mut one = json!({
            "name": row.plural,
            "singularName": row.singular,
            "namespaced": row.namespaced,
            "kind": row.gvk.kind,
            "verbs": row.verbs,
        });
        add_names(&mut one, row);
        if row.stored && row.has_verb("create") {
            one["storageVersionHash"] = storage_hash(&row.storage_gvk).into();
        }
        resources.push(one);
        let mut subresources: Vec<_> = row.subresources.iter().collect();
        if !crate::storage::codec::is_custom(row) {
            subresources.sort_by(|a, b| a.name.cmp(&b.name));
        }
        for subresource in subresources {
            let mut one = json!({
                "name": format!("{}/{}", row.plural, subresource.name),
                "singularName": "",
                "namespaced": row.namespaced,
                "kind": subresource.kind.kind,
                "verbs": subresource.verbs,
            });
            if subresource.kind.group_version() != row.gvk.group_version() {
                if !subresource.kind.group.is_empty() {
                    one["group"] = subresource.kind.group.clone().into();
                }
                one["version"] = subresource.kind.version.clone().into();
            }
            resources.push(one);
        }
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": GroupVersion::new(group, version).to_string(),
        "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn add_names(one: &mut Value, row: &Resource) {
    if !row.short_names.is_empty() {
        one["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        one["categories"] = json!(row.categories);
    }
}

/// Tells clients which resources of several versions are the same objects.
fn storage_hash(kind: &GroupVersionKind) -> String {
    // Upstream keeps these in an older version, and clients compare with its hashes.
    let version = match &*kind.kind {
        "CustomResourceDefinition" | "ClusterTrustBundle" | "PodCertificateRequest" | "StorageVersionMigration" => {
            "v1beta1"
        }
        "DeviceTaintRule" => "v1beta2",
        _ => &*kind.version,
    };
    let digest = Sha256::digest(format!("{}/{version}/{}", kind.group, kind.kind));
    STANDARD.encode(&digest[..8])
}

/// `APIGroupDiscoveryList` of the core group or of all others.
fn aggregated(table: &ResourceTable, remotes: &[Arc<Remote>], core: bool) -> Value {
    let groups = if core { vec![(String::new(), vec!["v1".to_owned()])] } else { groups(table, remotes) };
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    if let Some(remote) = aggregated_resources(remotes, group, version) {
                        return remote;
                    }
                    let resources: Vec<Value> =
                        rows(table, group, version).into_iter().map(|r| aggregated_resource(r)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(row: &Resource) -> Value {
    let mut one = json!({
        "resource": row.plural,
        "responseKind": response_kind(row, &row.gvk),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": row.verbs,
    });
    add_names(&mut one, row);
    let mut subresources: Vec<_> = row.subresources.iter().collect();
    if !crate::storage::codec::is_custom(row) {
        subresources.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if !subresources.is_empty() {
        let list: Vec<Value> = subresources
            .into_iter()
            .map(|s| {
                let mut one = json!({"subresource": s.name, "verbs": s.verbs});
                one["responseKind"] = response_kind(row, &s.kind);
                one
            })
            .collect();
        one["subresources"] = list.into();
    }
    one
}

/// Built-in kinds of the group's own version are named by kind alone.
fn response_kind(row: &Resource, kind: &GroupVersionKind) -> Value {
    if kind.group_version() == row.gvk.group_version() && !crate::storage::codec::is_custom(row) {
        json!({"group": "", "version": "", "kind": kind.kind})
    } else {
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    }
}

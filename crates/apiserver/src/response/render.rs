//! Objects, lists and watch events as JSON: plain, as Tables, or their metadata alone.

use bytes::Bytes;
use ferry_meta::{ApiError, GroupVersionKind, Reason, time};
use ferry_registry::{Column, Resource};
use ferry_store::Revision;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::request::context::RequestContext;
use crate::request::negotiate::Transform;
use crate::request::query::Query;
use crate::response::answer::Answer;
use crate::storage::codec;

/// The `metadata` of a list.
pub(crate) struct ListMeta {
    pub revision: Revision,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl ListMeta {
    fn json(&self) -> String {
        // What is not kept has no version.
        if self.revision == 0 {
            return "{}".to_owned();
        }
        let mut text = format!("{{\"resourceVersion\":\"{}\"", self.revision);
        if let Some(token) = &self.continue_token {
            text.push_str(&format!(",\"continue\":\"{token}\""));
        }
        if let Some(remaining) = self.remaining {
            text.push_str(&format!(",\"remainingItemCount\":{remaining}"));
        }
        text.push('}');
        text
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn read(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            "None" => Ok(Self::None),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// One object, in the shape that was negotiated.
pub(crate) fn object(
    context: &RequestContext,
    row: &Resource,
    code: u16,
    kind: &GroupVersionKind,
    json: Bytes,
) -> Result<Answer, ApiError> {
    let (kind, json) = match &context.negotiated.transform {
        Transform::None => (kind.clone(), json),
        Transform::Table(version) => {
            let include = IncludeObject::read(&context.query)?;
            let version_now = version_of(&json);
            let meta =
                if version_now.is_empty() { "{}".into() } else { json!({"resourceVersion": version_now}).to_string() };
            let body = table(row, version, &meta, &[json], include, true)?;
            (GroupVersionKind::new("meta.k8s.io", &**version, "Table"), body)
        }
        Transform::PartialMetadata(version) => {
            let kind = GroupVersionKind::new("meta.k8s.io", &**version, "PartialObjectMetadata");
            (kind, metadata_of(row, version, &json)?)
        }
        Transform::PartialMetadataList(_) => {
            let message = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{})",
                if codec::is_custom(row) {
                    "unstructured.Unstructured".to_owned()
                } else {
                    let package = if *kind == row.gvk {
                        go_package(row)
                    } else {
                        kind.group.split('.').next().unwrap_or_default().to_owned()
                    };
                    format!("{package}.{}", kind.kind)
                }
            );
            return Err(ApiError::new(406, Reason::NotAcceptable, message));
        }
    };
    Ok(Answer::Json { code, kind, json })
}

/// Whether upstream makes rows of what a subresource answers.
pub(crate) fn subresource_as_table(row: &Resource, subresource: &str) -> bool {
    match subresource {
        "status" => {
            let kinds = ["APIService", "CustomResourceDefinition", "DeviceTaintRule", "ResourceClaim"];
            codec::is_custom(row) || !kinds.contains(&&*row.gvk.kind)
        }
        "token" | "binding" | "eviction" | "approval" | "ephemeralcontainers" | "resize" => false,
        _ => true,
    }
}

/// A list of stored objects' JSON, each complete with kind and version.
pub(crate) fn list(
    context: &RequestContext,
    row: &Resource,
    meta: &ListMeta,
    items: &[Bytes],
) -> Result<Answer, ApiError> {
    let (kind, json) = match &context.negotiated.transform {
        Transform::None => {
            let kind = GroupVersionKind::new(&*row.gvk.group, &*row.gvk.version, &*row.list_kind);
            let prefix = type_prefix(row);
            let size: usize = items.iter().map(|i| i.len() + 1).sum();
            let mut out = Vec::with_capacity(size + 256);
            out.extend_from_slice(list_head(row, &kind, meta).as_bytes());
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                match item.strip_prefix(prefix.as_bytes()) {
                    // Items of built-in lists carry neither kind nor version.
                    Some(rest) if !codec::is_custom(row) => {
                        out.push(b'{');
                        out.extend_from_slice(rest);
                    }
                    _ => out.extend_from_slice(item),
                }
            }
            out.extend_from_slice(b"]}");
            (kind, out.into())
        }
        Transform::Table(version) => {
            let include = IncludeObject::read(&context.query)?;
            let kind = GroupVersionKind::new("meta.k8s.io", &**version, "Table");
            (kind, table(row, version, &meta.json(), &in_order(row, items), include, true)?)
        }
        Transform::PartialMetadata(_) => {
            let message = format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{})",
                if codec::is_custom(row) {
                    "unstructured.UnstructuredList".to_owned()
                } else {
                    format!("{}.{}", go_package(row), row.list_kind)
                }
            );
            return Err(ApiError::new(406, Reason::NotAcceptable, message));
        }
        Transform::PartialMetadataList(version) => {
            let kind = GroupVersionKind::new("meta.k8s.io", &**version, "PartialObjectMetadataList");
            let mut out = Vec::new();
            out.extend_from_slice(
                format!(
                    "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{},\"items\":[",
                    meta.json()
                )
                .as_bytes(),
            );
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(&metadata_of(row, version, item)?);
            }
            out.extend_from_slice(b"]}");
            if items.is_empty() {
                // Nobody made a list to put nothing into.
                let end = out.len() - b"[]}".len();
                out.truncate(end);
                out.extend_from_slice(b"null}");
            }
            (kind, out.into())
        }
    };
    Ok(Answer::Json { code: 200, kind, json })
}

/// A plain list up to its first item.
pub(crate) fn list_head(row: &Resource, kind: &GroupVersionKind, meta: &ListMeta) -> String {
    let mut meta = meta.json();
    // Custom lists say that there is no next page.
    if codec::is_custom(row) && !meta.contains("\"continue\"") {
        meta.insert_str(meta.len() - 1, ",\"continue\":\"\"");
    }
    format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[", kind.kind, kind.api_version())
}

/// The package of upstream's internal type, as its messages show it.
pub(crate) fn go_package(row: &Resource) -> String {
    // Events of both groups are those of the core one.
    match row.storage_gvk.group.split('.').next() {
        None | Some("") => "core".to_owned(),
        Some(first) => first.to_owned(),
    }
}

/// What every stored object of a row starts with.
pub(crate) fn type_prefix(row: &Resource) -> String {
    format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", row.gvk.kind, row.gvk.api_version())
}

#[derive(Deserialize)]
struct MetadataOnly<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// The metadata of an object of a row, without the annotations that carry fields of another version.
pub(crate) fn metadata_of(row: &Resource, version: &str, json: &[u8]) -> Result<Bytes, ApiError> {
    let carriers = row.strategy.carrier_annotations();
    let stripped = match carriers.iter().any(|key| memchr::memmem::find(json, key.as_bytes()).is_some()) {
        true => without_annotations(serde_json::from_slice(json).map_err(ApiError::internal)?, carriers),
        false => None,
    };
    partial_metadata(version, stripped.as_deref().unwrap_or(json), true)
}

fn partial_metadata(version: &str, json: &[u8], with_type: bool) -> Result<Bytes, ApiError> {
    let parsed: MetadataOnly<'_> = serde_json::from_slice(json).map_err(ApiError::internal)?;
    let metadata = parsed.metadata.get();
    let text = if with_type {
        format!(
            "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{metadata}}}"
        )
    } else {
        format!("{{\"metadata\":{metadata}}}")
    };
    Ok(text.into())
}

pub(crate) fn version_of(json: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Version {
        metadata: Inner,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Inner {
        #[serde(default)]
        resource_version: String,
    }
    serde_json::from_slice::<Version>(json).map(|v| v.metadata.resource_version).unwrap_or_default()
}

/// The object without some of its annotations, where it has any of them.
fn without_annotations(mut object: Value, drop: &[&str]) -> Option<Vec<u8>> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    if !drop.iter().any(|key| annotations.contains_key(*key)) {
        return None;
    }
    annotations.retain(|key, _| !drop.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(object.to_string().into_bytes())
}

/// A Table up to its rows.
pub(crate) fn table_head(version: &str, meta: &str, columns: Option<&[Column]>) -> String {
    let definition = |c: &Column| {
        format!(
            "{{\"name\":{},\"type\":{},\"format\":{},\"description\":{},\"priority\":{}}}",
            json!(c.name),
            json!(c.kind),
            json!(c.format),
            json!(c.description),
            c.priority
        )
    };
    let columns = columns.map_or_else(
        || "null".to_owned(),
        |columns| format!("[{}]", columns.iter().map(definition).collect::<Vec<_>>().join(",")),
    );
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{meta},\"columnDefinitions\":{columns}"
    )
}

/// The object of a row, or as much of it as was asked for.
pub(crate) fn shown(version: &str, item: &[u8], include: IncludeObject) -> Result<String, ApiError> {
    Ok(match include {
        IncludeObject::None => "null".to_owned(),
        IncludeObject::Metadata => String::from_utf8_lossy(&partial_metadata(version, item, true)?).into_owned(),
        IncludeObject::Object => String::from_utf8_lossy(item).into_owned(),
    })
}

/// The order of rows where it is not that of the names: FlowSchemas come as they are tried.
fn in_order<'a>(row: &Resource, items: &'a [Bytes]) -> std::borrow::Cow<'a, [Bytes]> {
    if row.gvk.kind != "FlowSchema" || codec::is_custom(row) {
        return items.into();
    }
    let key = |item: &Bytes| {
        let object: Value = serde_json::from_slice(item).unwrap_or_default();
        object.pointer("/spec/matchingPrecedence").and_then(Value::as_i64).unwrap_or_default()
    };
    let mut items = items.to_vec();
    items.sort_by_cached_key(key);
    items.into()
}

/// A Table of some objects. A watch sends the columns with its first event alone.
pub(crate) fn table(
    row: &Resource,
    version: &str,
    meta: &str,
    items: &[Bytes],
    include: IncludeObject,
    columns: bool,
) -> Result<Bytes, ApiError> {
    let mut out = table_head(version, meta, columns.then_some(&row.columns));
    // Kinds without columns of their own, and definitions, have no rows rather than an empty list of them.
    let plain = row.columns.get(1).is_some_and(|column| column.name == "Created At");
    if items.is_empty() && (plain || row.gvk.kind == "CustomResourceDefinition") {
        out.push_str(",\"rows\":null}");
        return Ok(out.into());
    }
    out.push_str(",\"rows\":[");
    let now = time::now();
    for (index, item) in items.iter().enumerate() {
        let object: Value = serde_json::from_slice(item).map_err(ApiError::internal)?;
        if index > 0 {
            out.push(',');
        }
        let cells = Value::Array(row.strategy.cells(&object, now));
        out.push_str(&format!("{{\"cells\":{cells}"));
        let conditions = row.strategy.row_conditions(&object);
        if !conditions.is_empty() {
            out.push_str(&format!(",\"conditions\":{}", Value::Array(conditions)));
        }
        out.push_str(",\"object\":");
        let stripped = match include {
            IncludeObject::Metadata => without_annotations(object, row.strategy.carrier_annotations()),
            _ => None,
        };
        out.push_str(&shown(version, stripped.as_deref().unwrap_or(item), include)?);
        out.push('}');
    }
    out.push_str("]}");
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_subresources_have_rows() {
        let table = ferry_registry::ResourceTable::builtin();
        for (group, plural, subresource, rows) in [
            ("", "pods", "status", true),
            ("", "pods", "resize", false),
            ("", "pods", "ephemeralcontainers", false),
            ("apps", "deployments", "scale", true),
            ("certificates.k8s.io", "certificatesigningrequests", "approval", false),
            ("certificates.k8s.io", "certificatesigningrequests", "status", true),
            ("apiextensions.k8s.io", "customresourcedefinitions", "status", false),
            ("resource.k8s.io", "resourceclaims", "status", false),
        ] {
            let row = table.find(group, "v1", plural).expect("a row");
            assert_eq!(subresource_as_table(row, subresource), rows, "{plural}/{subresource}");
        }
    }

    #[test]
    fn annotations_that_stand_for_fields_are_no_metadata() {
        let table = ferry_registry::ResourceTable::builtin();
        let row = table.find("apps", "v1", "daemonsets").expect("a row");
        let json = json!({"metadata": {"name": "a", "annotations": {"deprecated.daemonset.template.generation": "1"}}});
        let shown = metadata_of(row, "v1", json.to_string().as_bytes()).expect("metadata");
        let shown: Value = serde_json::from_slice(&shown).expect("JSON");
        assert_eq!(shown["metadata"], json!({"name": "a"}));
    }

    #[test]
    fn flow_schemas_are_shown_as_they_are_tried() {
        let table = ferry_registry::ResourceTable::builtin();
        let row = table.find("flowcontrol.apiserver.k8s.io", "v1", "flowschemas").expect("a row");
        let schema = |precedence: i64| Bytes::from(json!({"spec": {"matchingPrecedence": precedence}}).to_string());
        let items = [schema(10000), schema(1), schema(800)];
        assert_eq!(*in_order(row, &items), [schema(1), schema(800), schema(10000)]);
    }
}

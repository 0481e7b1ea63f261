//! Custom resources in OpenAPI documents: the schema of their definition, completed by what every resource has.

use ferry_meta::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::operations::{Dialect, reference};
use crate::catalogue::META;

/// A served version of a custom resource.
#[derive(Clone, Debug)]
pub struct CustomKind<'a> {
    pub kind: GroupVersionKind,
    pub list_kind: &'a str,
    pub plural: &'a str,
    /// `openAPIV3Schema` as the definition has it.
    pub schema: &'a Value,
}

/// `com.example.v1.Widget`; None for kinds of built-in groups.
pub(super) fn type_name(kind: &GroupVersionKind) -> Option<String> {
    if kind.group.is_empty() || crate::builtin().kinds().any(|known| known.group == kind.group) {
        return None;
    }
    let mut parts: Vec<&str> = kind.group.split('.').rev().collect();
    parts.extend([kind.version.as_str(), kind.kind.as_str()]);
    Some(parts.join("."))
}

/// The schemas of a kind and of its list, by name.
pub(super) fn schemas(
    custom: &CustomKind<'_>,
    descriptions: &Map<String, Value>,
    dialect: Dialect,
) -> Vec<(String, Value)> {
    let list_kind = GroupVersionKind { kind: custom.list_kind.to_owned(), ..custom.kind.clone() };
    let (Some(name), Some(list_name)) = (type_name(&custom.kind), type_name(&list_kind)) else { return Vec::new() };
    // Clients that check against Swagger 2 refuse every field it does not list: where any is allowed, none is listed.
    let any = dialect == Dialect::V2 && keeps_unknown(custom.schema);
    let mut own = if any { json!({"type": "object"}) } else { published(custom.schema, dialect) };
    if !any {
        resource_fields(&mut own, descriptions, dialect);
    }
    own["x-kubernetes-group-version-kind"] = gvk(&custom.kind);
    let mut list = json!({
        "description": format!("{} is a list of {}", custom.list_kind, custom.kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", custom.plural),
                "type": "array",
                "items": reference(&name, dialect)
            }
        },
        "x-kubernetes-group-version-kind": gvk(&list_kind),
    });
    resource_fields(&mut list, descriptions, dialect);
    list["properties"]["metadata"] = metadata(
        "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
        "ListMeta",
        dialect,
    );
    vec![(name, own), (list_name, list)]
}

fn gvk(kind: &GroupVersionKind) -> Value {
    json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}])
}

/// A reference to a kind of metadata, with a text beside it.
fn metadata(description: &str, leaf: &str, dialect: Dialect) -> Value {
    let mut to = reference(&format!("{META}.{leaf}"), dialect);
    if dialect == Dialect::V3 {
        to = json!({"allOf": [to]});
    }
    to["description"] = description.into();
    to
}

/// `apiVersion`, `kind` and `metadata`, as every kind describes them.
fn resource_fields(schema: &mut Value, descriptions: &Map<String, Value>, dialect: Dialect) {
    let described = |field: &str| {
        let pod = descriptions.get("io.k8s.api.core.v1.Pod");
        let text = pod.and_then(|pod| pod.pointer(&format!("/properties/{field}/description")));
        text.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let Some(map) = schema.as_object_mut() else { return };
    map.entry("type").or_insert_with(|| "object".into());
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = json!({"description": described("apiVersion"), "type": "string"});
    properties["kind"] = json!({"description": described("kind"), "type": "string"});
    properties["metadata"] = metadata(&described("metadata"), "ObjectMeta", dialect);
}

/// What a resource within a resource has in any case.
fn embedded_fields(schema: &mut Map<String, Value>, dialect: Dialect) {
    const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let version = "apiVersion defines the versioned schema of this representation of an object. More info:";
    let kind = "kind is a string value representing the type of this object. In CamelCase. More info:";
    properties["apiVersion"] = json!({"description": format!("{version} {CONVENTIONS}#resources"), "type": "string"});
    properties["kind"] = json!({"description": format!("{kind} {CONVENTIONS}#types-kinds"), "type": "string"});
    let text = format!("Standard object's metadata. More info: {CONVENTIONS}#metadata");
    properties["metadata"] = metadata(&text, "ObjectMeta", dialect);
    let required = schema.entry("required").or_insert_with(|| json!([]));
    for name in ["kind", "apiVersion"] {
        if let Some(list) = required.as_array_mut()
            && !list.iter().any(|known| known == name)
        {
            list.push(name.into());
        }
    }
}

fn keeps_unknown(schema: &Value) -> bool {
    schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
}

/// The schema as clients get it: Swagger 2 has no words for alternatives and nulls, nor for fields that may be anything.
fn published(schema: &Value, dialect: Dialect) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    let nullable = schema.get("nullable") == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (key, value) in map {
        let left_out = match key.as_str() {
            "anyOf" | "oneOf" | "allOf" | "not" | "nullable" | "default" => true,
            "type" => nullable || keeps_unknown(schema),
            "items" | "properties" => nullable || keeps_unknown(schema),
            _ => false,
        };
        if dialect == Dialect::V2 && left_out {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(of)) => {
                Value::Object(of.iter().map(|(name, of)| (name.clone(), published(of, dialect))).collect())
            }
            ("items" | "additionalProperties" | "not", of) => published(of, dialect),
            ("anyOf" | "oneOf" | "allOf", Value::Array(of)) => of.iter().map(|of| published(of, dialect)).collect(),
            (_, other) => other.clone(),
        };
        out.insert(key.clone(), value);
    }
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && dialect == Dialect::V3 {
        out.entry("anyOf").or_insert_with(|| json!([{"type": "integer"}, {"type": "string"}]));
    }
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    if embedded && !(dialect == Dialect::V2 && (nullable || keeps_unknown(schema))) {
        embedded_fields(&mut out, dialect);
    }
    Value::Object(out)
}

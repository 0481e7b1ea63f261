//! Custom resources in OpenAPI documents: the schema of their definition, completed by what every resource has.

use ferry_meta::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::built_in;
use super::operations::Dialect;
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
pub(super) fn schemas(custom: &CustomKind<'_>, dialect: Dialect) -> Vec<(String, Value)> {
    let list_kind = GroupVersionKind { kind: custom.list_kind.to_owned(), ..custom.kind.clone() };
    let (Some(name), Some(list_name)) = (type_name(&custom.kind), type_name(&list_kind)) else { return Vec::new() };
    let root = if dialect == Dialect::V2 { "#/definitions" } else { "#/components/schemas" };
    // Clients that check against Swagger 2 refuse every field it does not list: where any is allowed, none is listed.
    let any = dialect == Dialect::V2 && keeps_unknown(custom.schema);
    let mut own = if any { json!({"type": "object"}) } else { published(custom.schema, dialect) };
    if !any {
        resource_fields(&mut own, root);
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
                "items": {"$ref": format!("{root}/{name}")}
            }
        },
        "x-kubernetes-group-version-kind": gvk(&list_kind),
    });
    resource_fields(&mut list, root);
    list["properties"]["metadata"] = json!({
        "description": "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
        "allOf": [{"$ref": format!("{root}/{META}.ListMeta")}],
    });
    vec![(name, own), (list_name, list)]
}

fn gvk(kind: &GroupVersionKind) -> Value {
    json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}])
}

/// `apiVersion`, `kind` and `metadata`, as every kind describes them.
fn resource_fields(schema: &mut Value, root: &str) {
    let pod = built_in::schemas();
    let described = |field: &str| {
        let text =
            pod.get("io.k8s.api.core.v1.Pod").and_then(|pod| pod.pointer(&format!("/properties/{field}/description")));
        text.cloned().unwrap_or_default()
    };
    let Some(map) = schema.as_object_mut() else { return };
    map.entry("type").or_insert_with(|| "object".into());
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = json!({"description": described("apiVersion"), "type": "string"});
    properties["kind"] = json!({"description": described("kind"), "type": "string"});
    properties["metadata"] = json!({
        "description": described("metadata"),
        "allOf": [{"$ref": format!("{root}/{META}.ObjectMeta")}],
    });
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
            "anyOf" | "oneOf" | "allOf" | "not" | "nullable" => true,
            "type" => nullable,
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
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swagger_lists_no_fields_where_any_is_allowed() {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}});
        let own = |schema: &Value, dialect| {
            let kind = GroupVersionKind::new("stable.example.com", "v1", "Widget");
            let custom = CustomKind { kind, list_kind: "WidgetList", plural: "widgets", schema };
            schemas(&custom, dialect).remove(0).1
        };
        let gvk = json!([{"group": "stable.example.com", "kind": "Widget", "version": "v1"}]);
        assert_eq!(own(&any, Dialect::V2), json!({"type": "object", "x-kubernetes-group-version-kind": gvk}));
        assert!(own(&any, Dialect::V3)["properties"]["a"].is_object());
        let below = json!({"type": "object", "properties": {"any": any, "null": {"type": "string", "nullable": true}}});
        let two = own(&below, Dialect::V2);
        let shown = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!((&two["properties"]["any"], &two["properties"]["null"]), (&shown, &json!({})));
        assert!(two["properties"]["metadata"].is_object());
    }

    #[test]
    fn definitions_are_published() {
        let schema = json!({"description": "A widget.", "type": "object", "properties": {"spec": {"type": "object",
            "properties": {"i": {"x-kubernetes-int-or-string": true}, "n": {"type": "string", "nullable": true}}}}});
        let kind = GroupVersionKind::new("stable.example.com", "v1", "Widget");
        let custom = CustomKind { kind, list_kind: "WidgetList", plural: "widgets", schema: &schema };
        let operation = super::super::Operation {
            path: "/apis/stable.example.com/v1/namespaces/{namespace}/widgets".into(),
            method: "get".into(),
            action: "list".into(),
            kind: custom.kind.clone(),
            everywhere: false,
        };
        let document = super::super::v3_custom(&[operation], &[custom]);
        let schemas = &document["components"]["schemas"];
        let widget = &schemas["com.example.stable.v1.Widget"];
        assert_eq!(
            widget["properties"]["spec"]["properties"]["i"]["anyOf"],
            json!([{"type": "integer"}, {"type": "string"}])
        );
        assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
        assert!(schemas[format!("{META}.ObjectMeta")].is_object());
        assert!(!document["paths"].to_string().contains("protobuf"));
        let text = document["paths"].to_string();
        assert!(text.contains("#/components/schemas/com.example.stable.v1.WidgetList"), "{text}");
    }
}

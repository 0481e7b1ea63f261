//! Types of the catalogue as OpenAPI schemas.

use serde_json::{Map, Value, json};

use super::operations::Dialect;
use crate::catalogue::{Catalogue, Field, Item, ListType, META, Shape, TypeDef};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// A type that has a LocalObjectReference inside.
fn is_reference(leaf: &str) -> bool {
    let holder = ["EnvSource", "KeySelector", "Projection"].iter().any(|end| leaf.ends_with(end));
    leaf == "LocalObjectReference"
        || leaf == "ConfigMapVolumeSource"
        || (holder && (leaf.starts_with("ConfigMap") || leaf.starts_with("Secret")))
}

pub(super) struct Schemas<'a> {
    catalogue: &'static Catalogue,
    /// What `k8s-openapi` says of each type.
    descriptions: &'a Map<String, Value>,
    dialect: Dialect,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(descriptions: &'a Map<String, Value>, dialect: Dialect) -> Self {
        Self { catalogue: crate::builtin(), descriptions, dialect }
    }

    /// These types and all they refer to, by name.
    pub(super) fn reachable(&self, roots: &[String]) -> Map<String, Value> {
        let mut out = Map::new();
        let mut open: Vec<String> = roots.to_vec();
        while let Some(name) = open.pop() {
            if out.contains_key(&name) {
                continue;
            }
            let schema = match self.catalogue.id(&name) {
                Some(id) => self.structure(self.catalogue.get(id), &mut open),
                None => self.special(&name),
            };
            out.insert(name, schema);
        }
        out
    }

    fn description(&self, name: &str) -> Option<&str> {
        self.descriptions.get(name)?.get("description")?.as_str()
    }

    fn property_description(&self, name: &str, field: &str) -> Option<String> {
        let known =
            self.descriptions.get(name).and_then(|s| s.pointer(&format!("/properties/{}/description", escape(field))));
        if let Some(Value::String(text)) = known {
            return Some(text.clone());
        }
        // Lists are no types of `k8s-openapi`.
        match field {
            "kind" | "apiVersion" => self.property_description_of("io.k8s.api.core.v1.Pod", field),
            "metadata" if name.ends_with("List") => Some("Standard list metadata.".to_owned()),
            "items" => {
                Some(format!("List of {}.", name.rsplit('.').next().unwrap_or_default().trim_end_matches("List")))
            }
            _ => None,
        }
    }

    fn property_description_of(&self, name: &str, field: &str) -> Option<String> {
        let text = self.descriptions.get(name)?.pointer(&format!("/properties/{}/description", escape(field)))?;
        text.as_str().map(str::to_owned)
    }

    fn structure(&self, definition: &TypeDef, open: &mut Vec<String>) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in &definition.fields {
            properties.insert(field.name.to_string(), self.property(definition, field, open));
            // `k8s-openapi` requires metadata, and the names of references, whose default is empty; upstream does not.
            let name = &*field.name;
            let optional =
                field.omit_empty && (name == "metadata" || (name == "name" && is_reference(&definition.leaf)));
            if field.required && !optional {
                required.push(Value::from(name));
            }
        }
        let mut schema = Map::new();
        let description = match self.description(&definition.name) {
            Some(text) => text.to_owned(),
            None if definition.leaf.ends_with("List") => {
                format!("{} is a list of {}.", definition.leaf, definition.leaf.trim_end_matches("List"))
            }
            None => String::new(),
        };
        if !description.is_empty() {
            schema.insert("description".into(), description.into());
        }
        schema.insert("type".into(), "object".into());
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        if !properties.is_empty() {
            schema.insert("properties".into(), properties.into());
        }
        if definition.atomic {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if definition.is_kind {
            let (group, version) = (&*definition.group, &*definition.version);
            // Kinds of the meta group are registered in the groups that use them; the core one stands for all.
            let group = if group == "meta.k8s.io" { "" } else { group };
            schema.insert(
                "x-kubernetes-group-version-kind".into(),
                json!([{"group": group, "kind": definition.leaf, "version": version}]),
            );
        }
        schema.into()
    }

    fn property(&self, definition: &TypeDef, field: &Field, open: &mut Vec<String>) -> Value {
        let mut schema = self.item(&field.item, open);
        if let Some(description) = self.property_description(&definition.name, &field.name) {
            // Nothing may stand beside a `$ref` in v3.
            if let (Dialect::V3, Some(reference)) = (self.dialect, schema.remove("$ref")) {
                schema.insert("allOf".into(), json!([{"$ref": reference}]));
            }
            schema.insert("description".into(), description.into());
        }
        if let (Dialect::V3, Some(default)) = (self.dialect, self.default(field))
            && !schema.contains_key("$ref")
        {
            schema.insert("default".into(), default);
        }
        if matches!(field.item.shape, Shape::List(_)) {
            let list_type = match field.list_type {
                ListType::Atomic if field.atomic_map => Some("atomic"),
                ListType::Atomic => None,
                ListType::Set => Some("set"),
                ListType::Map => Some("map"),
            };
            if let Some(list_type) = list_type {
                schema.insert("x-kubernetes-list-type".into(), list_type.into());
            }
            if !field.list_keys.is_empty() {
                let keys: Vec<&str> = field.list_keys.iter().map(|k| &**k).collect();
                schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
            }
        } else if field.atomic_map {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        let strategies: Vec<&str> =
            [(field.patch.merge, "merge"), (field.patch.retain_keys, "retainKeys"), (field.patch.replace, "replace")]
                .into_iter()
                .filter_map(|(on, name)| on.then_some(name))
                .collect();
        if !strategies.is_empty() {
            schema.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
        }
        if !field.merge_key.is_empty() {
            schema.insert("x-kubernetes-patch-merge-key".into(), (&*field.merge_key).into());
        }
        schema.into()
    }

    /// Values Go has when nobody set them.
    fn default(&self, field: &Field) -> Option<Value> {
        if field.default.is_some() {
            return field.default.clone();
        }
        if field.item.pointer {
            return None;
        }
        match (&field.item.shape, field.required) {
            (Shape::Struct(_), _) => Some(json!({})),
            (Shape::String, true) => Some("".into()),
            (Shape::Bool, true) => Some(false.into()),
            (Shape::Int32 | Shape::Int64, true) => Some(0.into()),
            _ => None,
        }
    }

    fn reference(&self, name: &str, open: &mut Vec<String>) -> Map<String, Value> {
        open.push(name.to_owned());
        let prefix = match self.dialect {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        Map::from_iter([("$ref".to_owned(), Value::from(format!("{prefix}{name}")))])
    }

    fn item(&self, item: &Item, open: &mut Vec<String>) -> Map<String, Value> {
        let typed = |name: &str, format: &str| {
            let mut map = Map::from_iter([("type".to_owned(), Value::from(name))]);
            if !format.is_empty() {
                map.insert("format".to_owned(), format.into());
            }
            map
        };
        match &item.shape {
            Shape::String => typed("string", ""),
            Shape::Bool => typed("boolean", ""),
            Shape::Int32 | Shape::Uint32 => typed("integer", "int32"),
            Shape::Int64 | Shape::Uint64 => typed("integer", "int64"),
            Shape::Float => typed("number", "double"),
            Shape::Bytes => typed("string", "byte"),
            Shape::Quantity => self.reference(QUANTITY, open),
            Shape::IntOrString => self.reference(INT_OR_STRING, open),
            Shape::Raw => self.reference(RAW, open),
            Shape::Time => self.reference(&format!("{META}.Time"), open),
            Shape::MicroTime => self.reference(&format!("{META}.MicroTime"), open),
            Shape::Duration => self.reference(&format!("{META}.Duration"), open),
            Shape::Fields => self.reference(&format!("{META}.FieldsV1"), open),
            Shape::Json => self.reference(&format!("{APIEXTENSIONS}.JSON"), open),
            Shape::SchemaOrArray => self.reference(&format!("{APIEXTENSIONS}.JSONSchemaPropsOrArray"), open),
            Shape::SchemaOrBool => self.reference(&format!("{APIEXTENSIONS}.JSONSchemaPropsOrBool"), open),
            Shape::SchemaOrStrings => self.reference(&format!("{APIEXTENSIONS}.JSONSchemaPropsOrStringArray"), open),
            Shape::Any => typed("object", ""),
            Shape::Struct(id) => self.reference(&self.catalogue.get(*id).name, open),
            Shape::List(inner) => {
                let mut map = typed("array", "");
                map.insert("items".to_owned(), self.item(inner, open).into());
                map
            }
            Shape::Map(inner) => {
                let mut map = typed("object", "");
                map.insert("additionalProperties".to_owned(), self.item(inner, open).into());
                map
            }
        }
    }

    /// Types with a JSON form of their own.
    fn special(&self, name: &str) -> Value {
        let mut schema = match name.rsplit('.').next().unwrap_or_default() {
            "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
            "Duration" => json!({"type": "string"}),
            "Quantity" if self.dialect == Dialect::V3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            "Quantity" => json!({"type": "string"}),
            "IntOrString" if self.dialect == Dialect::V3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            "IntOrString" => json!({"type": "string", "format": "int-or-string"}),
            "RawExtension" | "FieldsV1" | "Patch" => json!({"type": "object"}),
            _ => json!({}),
        };
        let patch = "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.";
        let description = if name.ends_with(".Patch") { Some(patch) } else { self.description(name) };
        if let Some(description) = description {
            schema["description"] = description.into();
        }
        schema
    }
}

/// A JSON pointer token.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

//! Types of the catalogue as OpenAPI schemas.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::enums;
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

/// What the published documents say where `k8s-openapi` has no text: lists above all, which are no types of it.
static TEXTS: LazyLock<HashMap<&'static str, HashMap<&'static str, String>>> = LazyLock::new(|| {
    let mut texts: HashMap<&'static str, HashMap<&'static str, String>> = HashMap::new();
    for line in include_str!("descriptions.tsv").lines().skip(1) {
        let mut cells = line.splitn(3, '\t');
        if let (Some(of), Some(field), Some(text)) = (cells.next(), cells.next(), cells.next()) {
            texts.entry(of).or_default().insert(field, text.replace("\\n", "\n"));
        }
    }
    texts
});

fn text(of: &str, field: &str) -> Option<&'static str> {
    TEXTS.get(of)?.get(field).map(String::as_str)
}

/// Defaults that say what Go has anyway, of fields that are left out when they have it.
const ZERO_DEFAULTS: [(&str, &str, &str); 6] = [
    ("AzureDiskVolumeSource", "readOnly", "false"),
    ("FileKeySelector", "optional", "false"),
    ("GRPCAction", "service", "\"\""),
    ("NodeRuntimeHandler", "name", "\"\""),
    ("ReplicationControllerSpec", "minReadySeconds", "0"),
    ("ScaleSpec", "replicas", "0"),
];

/// Types of which one field at a time is used: by which field that is told, and the fields with the values that tell it.
const UNIONS: [(&str, &str, &[&str]); 8] = [
    ("AppArmorProfile", "type", &["localhostProfile"]),
    ("LimitResponse", "type", &["queuing"]),
    ("PodSchedulingGroup", "", &["podGroupName"]),
    ("PriorityLevelConfigurationSpec", "type", &["exempt", "limited"]),
    ("SeccompProfile", "type", &["localhostProfile"]),
    ("Subject", "kind", &["group", "serviceAccount", "user"]),
    ("WorkloadPodGroupDisruptionMode", "", &["all", "single"]),
    ("WorkloadPodGroupSchedulingPolicy", "", &["basic", "gang"]),
];

pub(super) struct Schemas<'a> {
    catalogue: &'static Catalogue,
    /// What `k8s-openapi` says of each type.
    descriptions: &'a Map<String, Value>,
    dialect: Dialect,
    /// The groups and versions that options of requests are known in.
    spoken_of: Vec<(String, String)>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(
        descriptions: &'a Map<String, Value>,
        dialect: Dialect,
        spoken_of: Vec<(String, String)>,
    ) -> Self {
        Self { catalogue: crate::builtin(), descriptions, dialect, spoken_of }
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
        text(name, "").or_else(|| self.descriptions.get(name)?.get("description")?.as_str())
    }

    fn property_description(&self, name: &str, field: &str) -> Option<String> {
        let of = |name: &str| {
            let text = self.descriptions.get(name)?.pointer(&format!("/properties/{}/description", escape(field)))?;
            text.as_str().map(str::to_owned)
        };
        let known = text(name, field).map(str::to_owned).or_else(|| of(name));
        let is_list = name.ends_with("List");
        let text = known.or_else(|| match field {
            "kind" | "apiVersion" if is_list => of("io.k8s.api.core.v1.Pod"),
            "metadata" if is_list => Some("Standard list metadata.".to_owned()),
            "items" if is_list => {
                Some(format!("List of {}.", name.rsplit('.').next().unwrap_or_default().trim_end_matches("List")))
            }
            _ => None,
        });
        text.filter(|text| !text.is_empty())
    }

    fn structure(&self, definition: &TypeDef, open: &mut Vec<String>) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in &definition.fields {
            properties.insert(field.name.to_string(), self.property(definition, field, open));
            if is_required(definition, field) {
                required.push(Value::from(&*field.name));
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
        if let Some(union) = union(definition) {
            schema.insert("x-kubernetes-unions".into(), json!([union]));
        }
        if definition.is_kind {
            schema.insert("x-kubernetes-group-version-kind".into(), self.kinds(definition));
        }
        schema.into()
    }

    /// Where a kind is known. Kinds of the meta group are registered in the groups that use them; the core one stands for
    /// all, but for those that come with every request.
    fn kinds(&self, definition: &TypeDef) -> Value {
        let kind = &*definition.leaf;
        let of = |group: &str, version: &str| json!({"group": group, "kind": kind, "version": version});
        if &*definition.group != "meta.k8s.io" {
            return json!([of(&definition.group, &definition.version)]);
        }
        if !matches!(kind, "DeleteOptions" | "WatchEvent") {
            return json!([of("", &definition.version)]);
        }
        self.spoken_of.iter().map(|(group, version)| of(group, version)).collect()
    }

    fn property(&self, definition: &TypeDef, field: &Field, open: &mut Vec<String>) -> Value {
        let mut schema = self.item(&field.item, open);
        let values = match field.item.shape {
            Shape::String => enums::values(&field.item.go_type),
            _ => None,
        };
        let mut description = self.property_description(&definition.name, &field.name);
        if let Some(values) = values {
            let explained = enums::explained(values);
            description = Some(description.map_or_else(|| explained.clone(), |text| format!("{text}\n\n{explained}")));
        }
        if let Some(description) = description {
            schema.insert("description".into(), description.into());
        }
        if let (Dialect::V3, Some(default)) = (self.dialect, default(definition, field)) {
            schema.insert("default".into(), default);
        }
        self.extensions(field, &mut schema);
        // Nothing may stand beside a `$ref` in v3.
        if self.dialect == Dialect::V3
            && schema.len() > 1
            && let Some(reference) = schema.remove("$ref")
        {
            schema.insert("allOf".into(), json!([{"$ref": reference}]));
        }
        schema.into()
    }

    /// How values of a field are merged.
    fn extensions(&self, field: &Field, schema: &mut Map<String, Value>) {
        if matches!(field.item.shape, Shape::List(_) | Shape::Bytes) {
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
        } else if field.granular {
            schema.insert("x-kubernetes-map-type".into(), "granular".into());
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
            Shape::String => {
                let mut map = typed("string", "");
                if let Some(values) = enums::values(&item.go_type) {
                    map.insert("enum".to_owned(), values.iter().map(|(value, _)| *value).collect());
                }
                map
            }
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

    /// A type of text fields that is none of the catalogue's.
    fn plain(&self, name: &str) -> Value {
        let known = self.descriptions.get(name).cloned().unwrap_or_default();
        let mut required = known.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        // What tells the version comes first.
        let order = ["major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion"];
        required.sort_by_key(|name| order.iter().position(|known| *known == name).unwrap_or(order.len()));
        let mut properties = known.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        for (field, schema) in &mut properties {
            if self.dialect == Dialect::V3 && required.iter().any(|name| name == field) {
                schema["default"] = "".into();
            }
        }
        json!({"type": "object", "required": required, "properties": properties})
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
            "Info" => self.plain(name),
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

/// Whether a field must be there. `k8s-openapi` requires metadata, and the names of references, whose default is empty;
/// upstream does not.
fn is_required(definition: &TypeDef, field: &Field) -> bool {
    let name = &*field.name;
    if &*definition.name == "io.k8s.api.events.v1.Event" {
        return name == "eventTime";
    }
    let optional = field.omit_empty && (name == "metadata" || (name == "name" && is_reference(&definition.leaf)));
    field.required && !optional
}

/// Values that are there when nobody set them: those that are always written, and structs.
fn default(definition: &TypeDef, field: &Field) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    if &*field.name == "name" && field.omit_empty && is_reference(&definition.leaf) {
        return Some("".into());
    }
    let zero = ZERO_DEFAULTS.iter().find(|(of, name, _)| *of == &*definition.leaf && *name == &*field.name);
    if let Some((_, _, text)) = zero {
        return serde_json::from_str(text).ok();
    }
    if field.item.pointer {
        return None;
    }
    match (&field.item.shape, !field.omit_empty) {
        (Shape::Struct(_), _) => Some(json!({})),
        (Shape::String, true) => Some("".into()),
        (Shape::Bool, true) => Some(false.into()),
        (Shape::Int32 | Shape::Int64, true) => Some(0.into()),
        _ => None,
    }
}

fn union(definition: &TypeDef) -> Option<Value> {
    let (_, discriminator, fields) = UNIONS.iter().find(|(of, _, _)| *of == &*definition.leaf)?;
    // Subjects of roles are another type of the same name.
    fields.iter().all(|field| definition.field(field).is_some()).then(|| {
        let told: Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), capital(field).into())).collect();
        let mut union = json!({"fields-to-discriminateBy": told});
        if !discriminator.is_empty() {
            union["discriminator"] = (*discriminator).into();
        }
        union
    })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

/// A JSON pointer token.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

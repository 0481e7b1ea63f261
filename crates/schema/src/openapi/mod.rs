//! OpenAPI documents of the served kinds, for `kubectl explain`, client-side validation and code generators.
//!
//! They are built from the catalogue, with the descriptions of `k8s-openapi`; callers keep the encoded text, not the values.

pub mod built_in;
mod custom;
mod enums;
mod naming;
mod operations;
mod parameters;
pub mod protobuf;
mod roots;
mod schemas;

#[cfg(test)]
mod tests;

use ferry_meta::GroupVersionKind;
use serde_json::{Map, Value, json};

pub use custom::CustomKind;
use operations::Dialect;
use schemas::Schemas;

/// One verb on one path.
#[derive(Clone, Debug)]
pub struct Operation {
    /// `/api/v1/namespaces/{namespace}/pods/{name}`.
    pub path: String,
    /// `get`, `put`, `post`, `patch`, `delete`, …
    pub method: String,
    /// `list`, `get`, `watch`, `watchlist`, `post`, `put`, `patch`, `delete`, `deletecollection` or `connect`.
    pub action: String,
    /// The kind that the operation is said to be of.
    pub kind: GroupVersionKind,
    /// What is sent and answered: `Scale` for the scale of a custom resource, whose operation is of the resource's kind.
    pub body: GroupVersionKind,
    /// The kind of a list of them.
    pub list_kind: String,
    /// The kind of the resource that a subresource belongs to; otherwise the kind itself.
    pub parent: String,
    /// A namespaced kind across all namespaces.
    pub everywhere: bool,
    /// Of a resource that a definition made.
    pub custom: bool,
    /// Lists can be watched.
    pub watched: bool,
    /// Deleting answers with what was deleted.
    pub returns_deleted: bool,
}

/// The version that the documents tell of.
const INFO_VERSION: &str = "1.37";

/// The OpenAPI v3 document of this name (`apis/apps/v1`, `version`): these operations, and the types they speak of.
pub fn v3(name: &str, operations: &[Operation]) -> Value {
    let mut paths = paths(operations, Dialect::V3);
    paths.extend(roots::path(name, Dialect::V3));
    let paths = Value::Object(paths);
    let own: Vec<&str> = name.split('/').collect();
    let mut spoken_of = vec![(String::new(), "v1".to_owned())];
    if let ["apis", group, version] = own.as_slice() {
        spoken_of.push(((*group).to_owned(), (*version).to_owned()));
    }
    let descriptions = built_in::schemas();
    let schemas = Schemas::new(&descriptions, Dialect::V3, spoken_of).reachable(&references(&paths));
    let mut components = Map::new();
    if !schemas.is_empty() {
        components.insert("schemas".into(), schemas.into());
    }
    components.insert(
        "securitySchemes".into(),
        json!({"BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"
        }}),
    );
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": INFO_VERSION},
        "paths": paths,
        "components": components,
    })
}

/// The document of a group and version that definitions of custom resources made.
pub fn v3_custom(operations: &[Operation], customs: &[CustomKind<'_>]) -> Value {
    let descriptions = built_in::schemas();
    let paths = Value::Object(paths(operations, Dialect::V3));
    let own: Map<String, Value> =
        customs.iter().flat_map(|of| custom::schemas(of, &descriptions, Dialect::V3)).collect();
    let own = Value::Object(own);
    let mut roots = references(&paths);
    roots.extend(references(&own));
    roots.retain(|name| own.get(name).is_none());
    let mut schemas = Schemas::new(&descriptions, Dialect::V3, roots::known_groups(true)).reachable(&roots);
    if let Value::Object(own) = own {
        schemas.extend(own);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// The OpenAPI v2 document of the whole server: the documents of these names, and these operations.
pub fn v2(names: &[String], operations: &[Operation], customs: &[CustomKind<'_>]) -> Value {
    let descriptions = built_in::schemas();
    let mut paths = paths(operations, Dialect::V2);
    paths.extend(names.iter().flat_map(|name| roots::path(name, Dialect::V2)));
    let paths = Value::Object(paths);
    let own: Map<String, Value> =
        customs.iter().flat_map(|of| custom::schemas(of, &descriptions, Dialect::V2)).collect();
    let own = Value::Object(own);
    let mut roots = references(&paths);
    roots.extend(references(&own));
    roots.retain(|name| own.get(name).is_none());
    let mut definitions = Schemas::new(&descriptions, Dialect::V2, roots::known_groups(false)).reachable(&roots);
    if let Value::Object(own) = own {
        definitions.extend(own);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": INFO_VERSION},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header"
        }},
        "security": [{"BearerToken": []}]
    })
}

/// The names of all types that a value refers to.
fn references(value: &Value) -> Vec<String> {
    fn collect(value: &Value, names: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    names.push(reference.rsplit('/').next().unwrap_or_default().to_owned());
                }
                map.values().for_each(|value| collect(value, names));
            }
            Value::Array(items) => items.iter().for_each(|value| collect(value, names)),
            _ => {}
        }
    }
    let mut names = Vec::new();
    collect(value, &mut names);
    names.sort();
    names.dedup();
    names
}

fn paths(list: &[Operation], dialect: Dialect) -> Map<String, Value> {
    let mut by_path: std::collections::BTreeMap<&str, Vec<&Operation>> = std::collections::BTreeMap::new();
    for operation in list {
        by_path.entry(&operation.path).or_default().push(operation);
    }
    let item = |on_path: Vec<&Operation>| {
        let common = parameters::common(&on_path);
        let mut item = Map::new();
        for operation in on_path {
            item.insert(operation.method.clone(), operations::operation(operation, &common, dialect));
        }
        if !common.is_empty() {
            let list: Vec<Value> = common.iter().map(|parameter| parameter.value(dialect)).collect();
            item.insert("parameters".into(), list.into());
        }
        Value::Object(item)
    };
    by_path.into_iter().map(|(path, on_path)| (path.to_owned(), item(on_path))).collect()
}

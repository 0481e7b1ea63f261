//! OpenAPI documents of the served kinds, for `kubectl explain`, client-side validation and code generators.
//!
//! They are built from the catalogue, with the descriptions of `k8s-openapi`; callers keep the encoded text, not the values.

pub mod built_in;
mod custom;
mod operations;
pub mod protobuf;
mod schemas;

use ferry_meta::GroupVersionKind;
use serde_json::{Map, Value, json};

pub use custom::CustomKind;
use operations::Dialect;

/// One verb on one path.
#[derive(Clone, Debug)]
pub struct Operation {
    /// `/api/v1/namespaces/{namespace}/pods/{name}`.
    pub path: String,
    /// `get`, `put`, `post`, `patch`, `delete`, …
    pub method: String,
    /// `list`, `get`, `watch`, `watchlist`, `post`, `put`, `patch`, `delete`, `deletecollection` or `connect`.
    pub action: String,
    /// What is sent and answered.
    pub kind: GroupVersionKind,
    /// A namespaced kind across all namespaces.
    pub everywhere: bool,
}

/// A version of the server, as `/version` says it.
const INFO_VERSION: &str = "v1.37.0";

/// The OpenAPI v3 document of one group and version: these operations, and the types they speak of.
pub fn v3(operations: &[Operation]) -> Value {
    let descriptions = built_in::schemas();
    let roots = roots(operations);
    let schemas = schemas::Schemas::new(&descriptions, Dialect::V3).reachable(&roots);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": INFO_VERSION},
        "paths": paths(operations, Dialect::V3),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"
            }}
        }
    })
}

/// The document of a group and version that definitions of custom resources made.
pub fn v3_custom(operations: &[Operation], customs: &[CustomKind<'_>]) -> Value {
    let mut document = v3(operations);
    document["info"] = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    for (name, schema) in customs.iter().flat_map(|custom| custom::schemas(custom, Dialect::V3)) {
        document["components"]["schemas"][name] = schema;
    }
    document
}

/// The OpenAPI v2 document of the whole server.
pub fn v2(operations: &[Operation], customs: &[CustomKind<'_>]) -> Value {
    let descriptions = built_in::schemas();
    let roots = roots(operations);
    let mut definitions = schemas::Schemas::new(&descriptions, Dialect::V2).reachable(&roots);
    definitions.extend(customs.iter().flat_map(|custom| custom::schemas(custom, Dialect::V2)));
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": INFO_VERSION},
        "paths": paths(operations, Dialect::V2),
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header"
        }},
        "security": [{"BearerToken": []}]
    })
}

/// OpenAPI names of the types the operations speak of.
fn roots(operations: &[Operation]) -> Vec<String> {
    let catalogue = crate::builtin();
    let meta = |leaf: &str| format!("{}.{leaf}", crate::catalogue::META);
    let mut names = vec![
        meta("ObjectMeta"),
        meta("ListMeta"),
        meta("Status"),
        meta("DeleteOptions"),
        meta("WatchEvent"),
        meta("Patch"),
    ];
    for operation in operations {
        let mut kinds = vec![operation.kind.clone()];
        kinds.push(GroupVersionKind { kind: format!("{}List", operation.kind.kind), ..operation.kind.clone() });
        names.extend(kinds.iter().filter_map(|kind| catalogue.kind(kind)).map(|ty| ty.name().to_owned()));
    }
    names.sort();
    names.dedup();
    names
}

fn paths(list: &[Operation], dialect: Dialect) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in list {
        let item = paths.entry(&*operation.path).or_insert_with(|| {
            let parameters = operations::path_parameters(operation, dialect);
            if parameters.is_empty() { json!({}) } else { json!({"parameters": parameters}) }
        });
        item[&*operation.method] = operations::operation(operation, dialect);
    }
    Value::Object(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(path: &str, method: &str, action: &str, kind: (&str, &str, &str)) -> Operation {
        Operation {
            path: path.into(),
            method: method.into(),
            action: action.into(),
            kind: GroupVersionKind::new(kind.0, kind.1, kind.2),
            everywhere: false,
        }
    }

    fn document() -> Value {
        let deployment = ("apps", "v1", "Deployment");
        v3(&[
            operation("/apis/apps/v1/namespaces/{namespace}/deployments", "get", "list", deployment),
            operation("/apis/apps/v1/namespaces/{namespace}/deployments", "post", "post", deployment),
            operation("/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "patch", "patch", deployment),
        ])
    }

    #[test]
    fn every_reference_is_there() {
        fn check(value: &Value, schemas: &Map<String, Value>) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let name = reference.rsplit('/').next().unwrap_or_default();
                        assert!(schemas.contains_key(name), "{reference}");
                    }
                    map.values().for_each(|v| check(v, schemas));
                }
                Value::Array(items) => items.iter().for_each(|v| check(v, schemas)),
                _ => {}
            }
        }
        let document = document();
        let schemas = document.pointer("/components/schemas").and_then(Value::as_object).expect("schemas");
        check(&document, schemas);
        assert!(schemas.len() > 100, "{}", schemas.len());
    }

    #[test]
    fn types_are_described_as_upstream_does() {
        let document = document();
        let schema = |name: &str| document["components"]["schemas"][name].clone();
        let deployment = schema("io.k8s.api.apps.v1.Deployment");
        assert_eq!(
            deployment["x-kubernetes-group-version-kind"],
            json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
        );
        assert_eq!(
            deployment["properties"]["spec"]["allOf"],
            json!([{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}])
        );
        assert_eq!(deployment["required"], json!(["spec"]));
        let containers = &schema("io.k8s.api.core.v1.PodSpec")["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-list-type"], "map");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
        assert!(containers["description"].as_str().is_some_and(|d| !d.is_empty()));
        assert_eq!(schema("io.k8s.api.core.v1.PodSpec")["required"], json!(["containers"]));
        assert_eq!(schema("io.k8s.api.core.v1.ContainerPort")["properties"]["protocol"]["default"], "TCP");
    }

    #[test]
    fn patches_tell_that_fields_are_validated() {
        let document = document();
        let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        let names: Vec<&str> =
            patch["parameters"].as_array().into_iter().flatten().filter_map(|p| p["name"].as_str()).collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    }
}

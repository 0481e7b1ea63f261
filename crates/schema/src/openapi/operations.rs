//! Operations on paths: bodies and answers.

use serde_json::{Map, Value, json};

use super::parameters::{self, Parameter};
use super::{Operation, naming};
use crate::catalogue::META;
use ferry_meta::GroupVersionKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

pub(super) const ANSWERS: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(super) fn reference(name: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => json!({"$ref": format!("#/definitions/{name}")}),
        Dialect::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
    }
}

fn type_name(kind: &GroupVersionKind) -> Option<String> {
    crate::builtin().kind(kind).map(|ty| ty.name().to_owned()).or_else(|| super::custom::type_name(kind))
}

/// The type of what is answered; None where it is text.
fn answer(operation: &Operation) -> Option<String> {
    match &*operation.action {
        "list" => type_name(&GroupVersionKind { kind: operation.list_kind.clone(), ..operation.kind.clone() }),
        "watch" | "watchlist" => Some(format!("{META}.WatchEvent")),
        "delete" if operation.returns_deleted => type_name(&operation.kind),
        "delete" | "deletecollection" => Some(format!("{META}.Status")),
        "connect" => None,
        "get" if operation.path.ends_with("/log") => None,
        _ => type_name(&operation.body),
    }
}

/// The type of what is sent, and whether it must be.
fn body(operation: &Operation) -> Option<(String, bool)> {
    match &*operation.action {
        "post" | "put" => type_name(&operation.body).map(|name| (name, true)),
        "patch" => Some((format!("{META}.Patch"), true)),
        "deletecollection" if operation.custom => None,
        "delete" | "deletecollection" => Some((format!("{META}.DeleteOptions"), false)),
        _ => None,
    }
}

/// The media types of answers. Custom resources know neither protobuf nor strategic merges; clients choose their patches
/// by what is listed here.
fn produces(operation: &Operation) -> Vec<&'static str> {
    if operation.custom {
        return ANSWERS[..2].to_vec();
    }
    match &*operation.action {
        "connect" => vec!["*/*"],
        "get" if operation.path.ends_with("/log") => [&["text/plain"], &ANSWERS[..]].concat(),
        "list" | "watch" | "watchlist" => [&ANSWERS[..], &STREAMS[..]].concat(),
        _ => ANSWERS.to_vec(),
    }
}

fn consumes(operation: &Operation) -> &'static [&'static str] {
    match (&*operation.action, operation.custom) {
        ("patch", false) => &PATCHES,
        ("patch", true) => {
            &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
        }
        (_, true) => &["application/json", "application/yaml"],
        _ => &["*/*"],
    }
}

/// What a path says of one of its operations, besides the parameters that are `common` to all of them.
pub(super) fn operation(operation: &Operation, common: &[Parameter], dialect: Dialect) -> Value {
    let kind = &operation.kind;
    let (group, version) = naming::served_by(&operation.path);
    let types = produces(operation);
    let mut parameters: Vec<Value> = parameters::of(operation)
        .iter()
        .filter(|parameter| !common.iter().any(|shared| parameters::same(shared, parameter)))
        .map(|parameter| parameter.value(dialect))
        .collect();
    let mut out = json!({
        "tags": [naming::tag(group, version)],
        "description": naming::describe(operation),
        "operationId": naming::identifier(operation),
        "responses": responses(operation, &types, dialect),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    });
    let consumes = consumes(operation);
    let body = body(operation);
    match (dialect, &body) {
        (Dialect::V2, body) => {
            out["consumes"] = json!(consumes);
            out["produces"] = json!(types);
            out["schemes"] = json!(["https"]);
            if let Some((name, required)) = body {
                let mut parameter = json!({"name": "body", "in": "body", "schema": reference(name, dialect)});
                if *required {
                    parameter["required"] = true.into();
                }
                parameters.insert(0, parameter);
            }
        }
        (Dialect::V3, Some((name, required))) => {
            let content: Map<String, Value> = consumes
                .iter()
                .map(|media| ((*media).to_owned(), json!({"schema": reference(name, dialect)})))
                .collect();
            out["requestBody"] = json!({"content": content});
            if *required {
                out["requestBody"]["required"] = true.into();
            }
        }
        (Dialect::V3, None) => {}
    }
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    out
}

fn responses(operation: &Operation, types: &[&str], dialect: Dialect) -> Value {
    let schema = answer(operation).map_or_else(|| json!({"type": "string"}), |name| reference(&name, dialect));
    let response = |description: &str| match dialect {
        Dialect::V2 => json!({"description": description, "schema": schema}),
        Dialect::V3 => {
            let content: Map<String, Value> =
                types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
            json!({"description": description, "content": content})
        }
    };
    let mut responses = json!({"200": response("OK"), "401": {"description": "Unauthorized"}});
    match &*operation.action {
        "post" => {
            responses["201"] = response("Created");
            responses["202"] = response("Accepted");
        }
        // Nobody is told that applying to a custom resource may create it.
        "patch" if operation.custom => {}
        "put" | "patch" => responses["201"] = response("Created"),
        "delete" => responses["202"] = response("Accepted"),
        _ => {}
    }
    responses
}

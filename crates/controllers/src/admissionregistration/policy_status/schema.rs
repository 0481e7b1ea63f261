//! The types of kinds, from the documents the server publishes of them.

use std::collections::HashMap;

use ferry_cel::{Decl, Type};
use kube::Client;
use serde_json::{Map, Value, json};

use super::check::Kind;

const PREFIX: &str = "#/components/schemas/";
const KINDS: &str = "x-kubernetes-group-version-kind";
/// A type with its references filled in may not have more places: a document of somebody else's server could make it grow without end.
const MOST_PLACES: usize = 200_000;

/// Documents are read once for each policy.
pub(super) struct Schemas {
    client: Client,
    documents: HashMap<String, Option<Value>>,
}

impl Schemas {
    pub fn new(client: Client) -> Self {
        Self { client, documents: HashMap::new() }
    }

    /// The type of a kind's objects. `number` is part of its name: two types of one name are the same to the checker.
    pub async fn declare(&mut self, kind: &Kind, number: u8) -> Option<Type> {
        let path = match kind.group.as_str() {
            "" => format!("/openapi/v3/api/{}", kind.version),
            group => format!("/openapi/v3/apis/{group}/{}", kind.version),
        };
        if !self.documents.contains_key(&path) {
            let document = self.read(&path).await;
            self.documents.insert(path.clone(), document);
        }
        let schemas = self.documents.get(&path)?.as_ref()?.pointer("/components/schemas")?.as_object()?;
        declare(schemas, kind, number)
    }

    async fn read(&self, path: &str) -> Option<Value> {
        let request = http::Request::get(path).body(Vec::new()).ok()?;
        match self.client.request(request).await {
            Ok(document) => Some(document),
            Err(error) => {
                tracing::warn!(path, "no schema to check policies with: {}", ferry_client::write::short(&error));
                None
            }
        }
    }
}

fn declare(schemas: &Map<String, Value>, kind: &Kind, number: u8) -> Option<Type> {
    let wanted = |entry: &Value| {
        let is = |field: &str, value: &str| entry[field].as_str().unwrap_or_default() == value;
        is("group", &kind.group) && is("version", &kind.version) && is("kind", &kind.kind)
    };
    let (name, root) = schemas
        .iter()
        .find(|(_, schema)| schema.get(KINDS).and_then(Value::as_array).is_some_and(|all| all.iter().any(wanted)))?;
    let mut filling = Filling { schemas, visited: vec![name], places: 0 };
    let filled = filling.fill(root)?;
    let is_text = |path: &str| filled.pointer(path).is_some_and(|schema| schema["type"] == "string");
    let whole = is_text("/properties/kind")
        && is_text("/properties/apiVersion")
        && is_text("/properties/metadata/properties/name")
        && is_text("/properties/metadata/properties/generateName");
    Decl::from_schema(&filled, &format!("{}{number}", kind.kind), !whole).map(|decl| decl.ty)
}

/// Puts what is referred to in the place of references.
struct Filling<'a> {
    schemas: &'a Map<String, Value>,
    visited: Vec<&'a str>,
    places: usize,
}

impl<'a> Filling<'a> {
    fn fill(&mut self, schema: &'a Value) -> Option<Value> {
        self.places += 1;
        if self.places > MOST_PLACES {
            return None;
        }
        let Some(name) = reference(schema) else { return self.parts(schema) };
        if self.visited.contains(&name) {
            return Some(json!({ "type": "object" }));
        }
        self.visited.push(name);
        let filled = self.parts(self.schemas.get(name)?);
        self.visited.pop();
        filled
    }

    fn parts(&mut self, schema: &'a Value) -> Option<Value> {
        let mut filled = Map::new();
        for (key, value) in schema.as_object()? {
            let value = match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    let mut all = Map::new();
                    for (name, property) in properties {
                        all.insert(name.clone(), self.fill(property)?);
                    }
                    Value::Object(all)
                }
                ("items" | "additionalProperties", Value::Object(_)) => self.fill(value)?,
                ("description" | "oneOf" | "anyOf" | "allOf" | "not", _) => continue,
                // The types of Kubernetes' own say it by format.
                ("format", format) if format == "int-or-string" => {
                    filled.insert("x-kubernetes-int-or-string".to_owned(), true.into());
                    continue;
                }
                _ => value.clone(),
            };
            filled.insert(key.clone(), value);
        }
        Some(Value::Object(filled))
    }
}

/// A reference stands alone, or in an `allOf` so that it can have a description.
fn reference(schema: &Value) -> Option<&str> {
    let own = schema.get("$ref").and_then(Value::as_str).map(|name| name.strip_prefix(PREFIX).unwrap_or(name));
    own.or_else(|| schema.get("allOf")?.as_array()?.iter().find_map(reference))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Kind {
        Kind { group: "g".into(), version: "v1".into(), kind: "Thing".into() }
    }

    fn schemas(spec: Value) -> Map<String, Value> {
        let schemas = json!({
            "Thing": {
                "type": "object", KINDS: [{ "group": "g", "version": "v1", "kind": "Thing" }],
                "properties": { "spec": { "allOf": [{ "$ref": format!("{PREFIX}Spec") }], "description": "d" } },
            },
            "Spec": spec,
        });
        schemas.as_object().cloned().expect("an object")
    }

    #[test]
    fn references_are_filled_in_and_circles_end() {
        let spec = json!({ "type": "object", "properties": {
            "count": { "type": "integer" }, "port": { "oneOf": [{ "type": "string" }], "format": "int-or-string" },
            "again": { "$ref": format!("{PREFIX}Spec") },
        } });
        let object = declare(&schemas(spec), &kind(), 1).expect("a type");
        let environment = ferry_cel::Environment::new().variable("object", object);
        for (expression, fits) in [
            ("object.spec.count > 1", true),
            ("object.spec.port == 1 || object.spec.port == 'http'", true),
            ("has(object.metadata.name)", true),
            ("object.spec.count == 'a'", false),
            ("object.spec.again.count > 1", false),
            ("object.metadata.labels == {}", false),
        ] {
            assert_eq!(environment.compile(expression).is_ok(), fits, "{expression}");
        }
    }

    #[test]
    fn a_type_that_grows_without_end_is_none() {
        let mut schemas =
            schemas(json!({ "type": "object", "properties": { "a": { "$ref": format!("{PREFIX}S0") } } }));
        for number in 0..64 {
            let next = json!({ "$ref": format!("{PREFIX}S{}", number + 1) });
            let twice = json!({ "type": "object", "properties": { "a": next, "b": next } });
            schemas.insert(format!("S{number}"), twice);
        }
        schemas.insert("S64".into(), json!({ "type": "string" }));
        assert!(declare(&schemas, &kind(), 1).is_none());
    }
}

//! What is wrong with a policy's expressions, given the schema of a kind it is about.

use ferry_cel::{Decl, Environment, Type};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::{Map, Value};

/// Deeper than any built-in kind; what lies below is taken as it comes.
const DEEPEST: usize = 24;

/// One expression of a policy, by the path of its field.
pub(super) fn expressions(policy: &ValidatingAdmissionPolicy) -> Vec<(String, &str)> {
    let validations = policy.spec.as_ref().and_then(|spec| spec.validations.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    for (index, validation) in validations.iter().enumerate() {
        found.push((format!("spec.validations[{index}].expression"), validation.expression.as_str()));
        if let Some(text) = validation.message_expression.as_deref().filter(|text| !text.is_empty()) {
            found.push((format!("spec.validations[{index}].messageExpression"), text));
        }
    }
    found
}

/// The schema of a kind out of a group's OpenAPI document, with what it refers to put in its place.
pub(super) fn schema(document: &Value, group: &str, version: &str, kind: &str) -> Option<Value> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let is = |schema: &&Value| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        kinds
            .into_iter()
            .flatten()
            .any(|known| known["group"] == group && known["version"] == version && known["kind"] == kind)
    };
    let found = schemas.values().find(is)?;
    Some(resolve(found, schemas, &mut Vec::new()))
}

fn anything() -> Value {
    serde_json::json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn resolve<'a>(schema: &'a Value, schemas: &'a Map<String, Value>, above: &mut Vec<&'a str>) -> Value {
    let Some(map) = schema.as_object() else { return schema.clone() };
    // A reference stands alone, or in a list of one beside a description.
    let reference = map.get("$ref").or_else(|| match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref"),
        _ => None,
    });
    if let Some(name) = reference.and_then(Value::as_str).and_then(|text| text.rsplit('/').next()) {
        let Some(target) = schemas.get(name).filter(|_| above.len() < DEEPEST && !above.contains(&name)) else {
            return anything();
        };
        above.push(name);
        let made = resolve(target, schemas, above);
        above.pop();
        return made;
    }
    if map.get("format").and_then(Value::as_str) == Some("int-or-string") || map.contains_key("oneOf") {
        return serde_json::json!({ "x-kubernetes-int-or-string": true });
    }
    let mut made = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), resolve(field, schemas, above)));
                Value::Object(fields.collect())
            }
            ("items" | "additionalProperties", value) => resolve(value, schemas, above),
            ("description" | "default", _) => continue,
            (_, value) => value.clone(),
        };
        made.insert(key.clone(), value);
    }
    Value::Object(made)
}

/// By field: what a compiler of expressions says of them, where `object` is as the schema says.
pub(super) fn check(policy: &ValidatingAdmissionPolicy, schema: Option<&Value>) -> Vec<(String, String)> {
    let object = schema.and_then(|schema| Decl::from_schema(schema, "Object", true)).map_or(Type::Dyn, |decl| decl.ty);
    let base = || {
        Environment::new()
            .variable("object", object.clone())
            .variable("oldObject", object.clone())
            .variable("namespaceObject", Type::Dyn)
            .variable("request", Type::Dyn)
            .variable("params", Type::Dyn)
            .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
            .variable("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"))
    };
    let mut variables: Vec<(String, Type)> = Vec::new();
    for variable in policy.spec.iter().flat_map(|spec| spec.variables.iter().flatten()) {
        let environment = base().lazy("variables", "kubernetes.variables", &variables);
        // What is wrong with a variable shows where it is used.
        let ty = environment.compile(&variable.expression).map_or(Type::Dyn, |program| program.result().clone());
        variables.push((variable.name.clone(), ty));
    }
    let environment = base().lazy("variables", "kubernetes.variables", &variables);
    let judged = expressions(policy).into_iter();
    judged.filter_map(|(field, text)| environment.compile(text).err().map(|problem| (field, problem))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let refers =
            |name: &str| json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }], "description": "x" });
        json!({ "components": { "schemas": {
            "Widget": {
                "type": "object", "x-kubernetes-group-version-kind": [{ "group": "g", "version": "v1", "kind": "Widget" }],
                "properties": { "spec": refers("Spec") },
            },
            "Spec": { "type": "object", "properties": {
                "replicas": { "type": "integer", "format": "int32" }, "port": { "oneOf": [{ "type": "integer" }, { "type": "string" }] },
                "parts": { "type": "array", "items": refers("Spec") },
            } },
        } } })
    }

    fn warnings(expression: &str, variable: &str) -> Vec<(String, String)> {
        let policy = serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": {
            "variables": [{ "name": "v", "expression": variable }], "validations": [{ "expression": expression }],
        } }))
        .expect("a policy");
        check(&policy, schema(&document(), "g", "v1", "Widget").as_ref())
    }

    #[test]
    fn expressions_are_held_to_the_schema() {
        for good in [
            "object.spec.replicas > 1",
            "object.spec.port == 'http'",
            "variables.v == 3",
            "object.spec.parts.size() > 0",
        ] {
            assert_eq!(warnings(good, "object.spec.replicas"), [], "{good}");
        }
        let bad = warnings("object.spec.replicas > '1'", "1");
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0].0, "spec.validations[0].expression");
        assert!(bad[0].1.contains("no matching overload"), "{}", bad[0].1);
        assert!(warnings("object.spec.nonsense == 1", "1")[0].1.contains("undefined field 'nonsense'"));
        assert!(warnings("variables.v == 'x'", "object.spec.replicas")[0].1.contains("no matching overload"));
    }
}

//! That the defaults of a schema are values the schema itself allows.

use ferry_meta::{FieldErrors, Path};
use ferry_schema::structural::Schema;
use serde_json::Value;

use crate::at::{At, Report};

pub(super) fn validate(errors: &mut FieldErrors, schema: &At<'_>) {
    let default = schema.raw("default");
    if !default.is_null() {
        one(errors, schema.value, default, &schema.at("default"));
    }
    for (name, of) in schema.raw("properties").as_object().into_iter().flatten() {
        validate(errors, &At::new(of, schema.at("properties").key(name)));
    }
    // What stands below additionalProperties is not looked at, as upstream does not.
    if schema.raw("items").is_object() {
        validate(errors, &schema.get("items"));
    }
}

fn one(errors: &mut FieldErrors, schema: &Value, default: &Value, path: &Path) {
    let schema = Schema::parse(schema);
    let mut pruned = default.clone();
    // The fields every resource has are known here only where a resource stands.
    let resource = schema.embedded || schema.preserve_unknown;
    let unknown = !schema.prune(&mut pruned).is_empty()
        || (!resource && ["apiVersion", "kind", "metadata"].iter().any(|key| stray(&schema, default, key)));
    if unknown {
        return errors.invalid(path.clone(), default.clone(), "must not have unknown fields");
    }
    for mut error in schema.validate(default, None) {
        let below = error.path.as_str();
        error.path = match below.chars().next() {
            None => path.clone(),
            Some(_) => path.child(below),
        };
        errors.push(error);
    }
}

fn stray(schema: &Schema, default: &Value, key: &str) -> bool {
    let named =
        schema.properties.contains_key(key) || !matches!(schema.additional, ferry_schema::structural::Additional::None);
    default.get(key).is_some() && !named
}

#[cfg(test)]
mod tests {
    use ferry_meta::FieldError;
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_must_fit() {
        for (schema, want) in [
            (json!({"type": "string", "default": "r"}), None),
            (
                json!({"type": "string", "default": 3}),
                Some(
                    "s.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
                ),
            ),
            (
                json!({"type": "string", "enum": ["p"], "default": "r"}),
                Some("s.properties[a].default: Unsupported value: \"r\": supported values: \"p\""),
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}}),
                Some("s.properties[a].default: Invalid value: {\"y\":1}: must not have unknown fields"),
            ),
            (
                json!({"type": "object", "properties": {"x": {"type": "string"}}, "default": {"x": 1}}),
                Some(
                    "s.properties[a].default.x: Invalid value: \"integer\": x in body must be of type string: \"integer\"",
                ),
            ),
        ] {
            let whole = json!({"type": "object", "properties": {"a": schema}});
            let mut errors = FieldErrors::new();
            validate(&mut errors, &At::new(&whole, Path::new("s")));
            assert_eq!(errors.first().map(FieldError::line).as_deref(), want);
        }
    }
}

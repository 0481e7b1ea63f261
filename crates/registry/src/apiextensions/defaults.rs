//! That the defaults of a schema are values the schema itself allows.

use ferry_meta::{FieldErrors, Path};
use ferry_schema::structural::Schema;
use serde_json::Value;

use super::rules::Rules;
use crate::cursor::{Cursor, Report};

pub(super) fn validate(errors: &mut FieldErrors, schema: &Cursor<'_>) {
    let default = schema.raw("default");
    if !default.is_null() {
        one(errors, schema.value, default, &schema.at("default"));
    }
    for (name, of) in schema.raw("properties").as_object().into_iter().flatten() {
        validate(errors, &Cursor::new(of, schema.at("properties").key(name)));
    }
    // What stands below additionalProperties is not looked at, as upstream does not.
    if schema.raw("items").is_object() {
        validate(errors, &schema.get("items"));
    }
}

fn one(errors: &mut FieldErrors, whole: &Value, default: &Value, path: &Path) {
    let schema = Schema::parse(whole);
    let mut pruned = default.clone();
    // The fields every resource has are known here only where a resource stands.
    let resource = schema.embedded || schema.preserve_unknown;
    let unknown = !schema.prune(&mut pruned).is_empty()
        || (!resource && ["apiVersion", "kind", "metadata"].iter().any(|key| stray(&schema, default, key)));
    if unknown {
        return errors.invalid(path.clone(), default.clone(), "must not have unknown fields");
    }
    let found = schema.validate(default, None);
    if found.is_empty()
        && let Some(rules) = Rules::of_part(whole)
    {
        errors.extend(rules.judge_default(default, path));
    }
    for mut error in found {
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
            (json!({"type": "integer", "default": 3, "x-kubernetes-validations": [{"rule": "self > 2"}]}), None),
            (json!({"type": "integer", "default": 3, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}), None),
            (
                json!({"type": "string", "default": "bad", "x-kubernetes-validations": [{"rule": "self.startsWith('ok')"}]}),
                Some("s.properties[a].default: Invalid value: \"bad\": failed rule: self.startsWith('ok')"),
            ),
            (
                json!({"type": "array", "maxItems": 5, "default": [3, 1], "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}}),
                Some("s.properties[a].default[1]: Invalid value: 1: failed rule: self > 1"),
            ),
            (
                json!({"type": "integer", "default": 3, "x-kubernetes-validations": [{"rule": "self > 5 || oldSelf.orValue(0) == 1", "optionalOldSelf": true}]}),
                Some("s.properties[a].default: Invalid value: 3: failed rule: self > 5 || oldSelf.orValue(0) == 1"),
            ),
            (
                json!({"type": "string", "default": "x", "x-kubernetes-validations": [{"rule": "self.nope"}]}),
                Some(
                    "s.properties[a].default: Invalid value: \"string\": rule compile error: compilation failed: ERROR: <input>:1:5: type 'string' does not support field selection\n | self.nope\n | ....^",
                ),
            ),
        ] {
            // Rules are part of what a schema allows.
            let whole = json!({"type": "object", "properties": {"a": schema}});
            let mut errors = FieldErrors::new();
            validate(&mut errors, &Cursor::new(&whole, Path::new("s")));
            assert_eq!(errors.first().map(FieldError::line).as_deref(), want);
        }
    }
}

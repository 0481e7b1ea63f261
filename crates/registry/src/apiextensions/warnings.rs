//! What is accepted in a schema but has no effect, or less than its author may think.

use ferry_meta::object;
use ferry_schema::structural::is_known_format;
use serde_json::Value;

pub(super) fn of(definition: &Value) -> Vec<String> {
    let (mut formats, mut sets) = (Vec::new(), Vec::new());
    for version in object::items(definition, "/spec/versions") {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            visit(schema, &mut formats, &mut sets);
        }
    }
    sets.sort();
    sets.dedup();
    formats.extend(sets);
    formats
}

fn visit(schema: &Value, formats: &mut Vec<String>, sets: &mut Vec<String>) {
    let (ty, format) = (object::text(schema, "/type"), object::text(schema, "/format"));
    if !format.is_empty() && !is_known_format(ty, format) {
        formats.push(format!("unrecognized format {format:?}"));
    }
    let items = object::text(schema, "/items/type");
    if object::text(schema, "/x-kubernetes-list-type") == "set" && ["object", "array"].contains(&items) {
        sets.push(format!(
            "x-kubernetes-list-type: set for items of type {items:?} is not supported by server-side apply or CEL validation rules"
        ));
    }
    for key in ["items", "allOf", "anyOf", "oneOf", "not"] {
        match schema.get(key) {
            Some(Value::Array(list)) => list.iter().for_each(|inner| visit(inner, formats, sets)),
            Some(inner @ Value::Object(_)) => visit(inner, formats, sets),
            _ => {}
        }
    }
    for key in ["properties", "patternProperties", "definitions", "dependencies"] {
        object::map(schema, &format!("/{key}")).values().for_each(|inner| visit(inner, formats, sets));
    }
    for key in ["additionalProperties", "additionalItems"] {
        if let Some(inner @ Value::Object(_)) = schema.get(key) {
            visit(inner, formats, sets);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_no_effect_is_told() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "format": "date-time"},
            "b": {"type": "string", "format": "odd"},
            "c": {"type": "integer", "format": "double"},
            "d": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
        }});
        let definition = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let want = [
            "unrecognized format \"odd\"",
            "unrecognized format \"double\"",
            "x-kubernetes-list-type: set for items of type \"object\" is not supported by server-side apply or CEL validation rules",
        ];
        assert_eq!(of(&definition), want);
    }
}

//! The structure of a schema: everything outside `allOf`, `anyOf`, `oneOf` and `not` spells it out, what stands inside them only
//! narrows values.

use ferry_meta::{FieldError, FieldErrors, Path};
use serde_json::{Value, json};

use super::pattern;
use super::schema::{
    EMBEDDED, INT_OR_STRING, LIST_KEYS, LIST_TYPE, MAP_TYPE, PRESERVE, RULES, fields, is_set, not_of_type,
};
use crate::cursor::{Cursor, Report};

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Judges the structure as a whole; the order is that of the texts.
pub(super) fn validate(schema: &Cursor<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    structure(&mut errors, schema, Level::Root);
    complete(&mut errors, schema, schema.value, &schema.path);
    errors.sort_by_cached_key(FieldError::line);
    errors
}

/// Why the structure of a schema cannot even be taken up, if so.
pub(super) fn inconvertible(schema: &Value) -> Option<String> {
    let filled = |key: &str| match &schema[key] {
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        found => is_set(found),
    };
    let unsupported = ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    if let Some(key) = unsupported.into_iter().find(|key| filled(key)) {
        return Some(format!("OpenAPIV3Schema '{}' is not supported", if key == "$schema" { "schema" } else { key }));
    }
    if schema[PRESERVE] == false {
        return Some(format!("internal error: '{PRESERVE}' must be true or undefined"));
    }
    if schema["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let single = ["not", "items", "additionalProperties"].into_iter().map(|key| &schema[key]);
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let fields = schema["properties"].as_object().into_iter().flat_map(|map| map.values());
    single.chain(lists).chain(fields).filter(|part| part.is_object()).find_map(inconvertible)
}

/// What holds at each place of the structure itself.
fn structure(errors: &mut FieldErrors, schema: &Cursor<'_>, level: Level) {
    let kind = schema.text("type");
    let (embedded, preserves) = (schema.is_true(EMBEDDED), schema.is_true(PRESERVE));
    if kind == "array" && !schema.has("items") {
        errors.required(schema.at("items"), "must be specified");
    }
    if schema.has("items") {
        structure(errors, &schema.get("items"), Level::Item);
    }
    for (_, field) in fields(schema) {
        structure(errors, &field, Level::Field);
    }
    let additional = schema.get("additionalProperties");
    if additional.exists() && level == Level::Root {
        errors.forbidden(additional.path.clone(), "must not be used at the root");
    }
    if additional.value.is_object() {
        structure(errors, &additional, Level::Field);
    }
    if schema.is_true(INT_OR_STRING) {
        for key in [PRESERVE, EMBEDDED].into_iter().filter(|key| schema.is_true(key)) {
            errors.invalid(schema.at(key), true, format!("must be false if {INT_OR_STRING} is true"));
        }
    }
    narrowing(errors, schema, either(schema.raw("anyOf")), either(&schema.raw("allOf")[0]["anyOf"]));
    if embedded && kind != "object" {
        not_of_type(errors, schema, &format!("must be object if {EMBEDDED} is true"));
    } else if kind.is_empty() && !schema.is_true(INT_OR_STRING) && !preserves {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.required(schema.at("type"), &format!("must not be empty {place}"));
    }
    if embedded && additional.exists() {
        errors.forbidden(additional.path.clone(), format!("must not be used if {EMBEDDED} is set"));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(schema.at("type"), kind, "must be object at the root");
    }
    resource_fields(errors, schema, level);
    if embedded && !preserves && schema.map("properties").is_empty() {
        let detail = format!("must not be empty if {EMBEDDED} is true without {PRESERVE}");
        errors.required(schema.at("properties"), &detail);
    }
}

/// `kind`, `apiVersion` and `metadata` of a resource are what they are.
fn resource_fields(errors: &mut FieldErrors, schema: &Cursor<'_>, level: Level) {
    let resource = level == Level::Root || schema.is_true(EMBEDDED);
    for (name, field) in fields(schema) {
        let kind = field.text("type");
        if resource && ["kind", "apiVersion"].contains(&name) && kind != "string" {
            errors.invalid(field.at("type"), kind, "must be string");
        }
        if resource && name == "metadata" && kind != "object" {
            errors.invalid(field.at("type"), kind, "must be object");
        }
        if name == "metadata" && level == Level::Root {
            let names_only = field.map("properties").keys().all(|key| ["name", "generateName"].contains(&key.as_str()));
            let mut others = field.value.as_object().into_iter().flatten();
            let plain =
                others.all(|(key, value)| ["type", "properties", "default"].contains(&key.as_str()) || !is_set(value));
            if !names_only || !plain {
                let detail =
                    "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.forbidden(field.path.clone(), detail);
            }
        }
    }
}

/// The one way to say that a value is a number or a text.
fn either(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

/// The parts of a schema that only narrow values. `any_of` and `first_any_of` say that there the types of an int-or-string stand.
fn narrowing(errors: &mut FieldErrors, schema: &Cursor<'_>, any_of: bool, first_any_of: bool) {
    if !any_of {
        schema.items("anyOf").iter().for_each(|part| narrow(errors, part, false));
    }
    for (index, part) in schema.items("allOf").iter().enumerate() {
        narrow(errors, part, first_any_of && index == 0);
    }
    schema.items("oneOf").iter().for_each(|part| narrow(errors, part, false));
    narrow(errors, &schema.get("not"), false);
    let pattern = schema.text("pattern");
    if let Some(why) = pattern::refusal(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(schema.at("pattern"), pattern, detail);
    }
}

fn narrow(errors: &mut FieldErrors, part: &Cursor<'_>, any_of: bool) {
    if !part.exists() {
        return;
    }
    narrowing(errors, part, any_of, false);
    narrow(errors, &part.get("items"), false);
    fields(part).iter().for_each(|(_, field)| narrow(errors, field, false));
    const FORBIDDEN: [(&str, &str); 13] = [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        (PRESERVE, "false"),
        (EMBEDDED, "false"),
        (INT_OR_STRING, "false"),
        (LIST_KEYS, "empty"),
        (LIST_TYPE, "undefined"),
        (MAP_TYPE, "undefined"),
        (RULES, "empty"),
    ];
    for (key, wanted) in FORBIDDEN {
        let found = match (part.raw(key), wanted) {
            (Value::Array(items), _) => !items.is_empty(),
            (found, "undefined") => !found.is_null(),
            (found, _) => is_set(found),
        };
        if found {
            errors.forbidden(part.at(key), format!("must be {wanted} to be structural"));
        }
    }
    if part.map("properties").contains_key("metadata") {
        let path = part.at("properties").key("metadata");
        errors.forbidden(path, "must not be specified in a nested context");
    }
}

/// Whatever is narrowed at the root has its place in the structure.
fn complete(errors: &mut FieldErrors, part: &Cursor<'_>, structure: &Value, at: &Path) {
    for key in ["allOf", "anyOf", "oneOf"] {
        part.items(key).iter().for_each(|inner| complete_nested(errors, inner, structure, at));
    }
    complete_nested(errors, &part.get("not"), structure, at);
}

fn complete_nested(errors: &mut FieldErrors, part: &Cursor<'_>, structure: &Value, at: &Path) {
    if !part.exists() {
        return;
    }
    if structure.is_null() {
        return errors.required(at.clone(), &format!("because it is defined in {}", part.path.as_str()));
    }
    complete(errors, part, structure, at);
    complete_nested(errors, &part.get("items"), &structure["items"], &at.child("items"));
    for (name, field) in fields(part) {
        complete_nested(errors, &field, &structure["properties"][name], &at.child("properties").key(name));
    }
}

//! What a schema of custom resources may say. What rules in CEL mean is looked at in `rules`.

use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldError, FieldErrors};
use serde_json::{Value, json};

use super::structural::{self, inconvertible};
use super::{defaults, paths, rules};
use crate::cursor::{Cursor, Report};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
pub(super) const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
pub(super) const EMBEDDED: &str = "x-kubernetes-embedded-resource";
pub(super) const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
pub(super) const LIST_TYPE: &str = "x-kubernetes-list-type";
pub(super) const LIST_KEYS: &str = "x-kubernetes-list-map-keys";
pub(super) const MAP_TYPE: &str = "x-kubernetes-map-type";
pub(super) const RULES: &str = "x-kubernetes-validations";

/// With a status subresource the root of a schema holds no more than these, lest the status escape what narrows it.
const AT_ROOT: [(&str, &str); 22] = [
    ("Description", "description"),
    ("Type", "type"),
    ("Format", "format"),
    ("Title", "title"),
    ("Maximum", "maximum"),
    ("ExclusiveMaximum", "exclusiveMaximum"),
    ("Minimum", "minimum"),
    ("ExclusiveMinimum", "exclusiveMinimum"),
    ("MaxLength", "maxLength"),
    ("MinLength", "minLength"),
    ("Pattern", "pattern"),
    ("MaxItems", "maxItems"),
    ("MinItems", "minItems"),
    ("UniqueItems", "uniqueItems"),
    ("MultipleOf", "multipleOf"),
    ("Required", "required"),
    ("Items", "items"),
    ("Properties", "properties"),
    ("ExternalDocs", "externalDocs"),
    ("Example", "example"),
    ("XPreserveUnknownFields", PRESERVE),
    ("XValidations", RULES),
];

/// Judges one schema; `has_status` tells whether its resource has a status subresource.
pub fn validate(schema: &Cursor<'_>, has_status: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if !schema.exists() {
        return errors;
    }
    if has_status {
        root_with_status(&mut errors, schema);
    }
    if schema.is_true("nullable") {
        errors.forbidden(schema.at("nullable"), "nullable cannot be true at the root");
    }
    let unconvertible = inconvertible(schema.value);
    let mut sound = unconvertible.is_none();
    if sound {
        let mut found = structural::validate(schema);
        if found.is_empty() {
            defaults::validate(&mut found, schema);
        }
        sound = found.is_empty();
        errors.extend(found);
    }
    properties_of_schema(&mut errors, schema, &Surroundings { root: true, ..Surroundings::default() });
    if sound {
        rules::check(&mut errors, schema);
    }
    if let Some(message) = unconvertible.filter(|_| errors.is_empty()) {
        errors.invalid(schema.path.clone(), "", message);
    }
    errors
}

pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn root_with_status(errors: &mut FieldErrors, schema: &Cursor<'_>) {
    for (key, _) in schema.value.as_object().into_iter().flatten().filter(|(_, value)| is_set(value)) {
        if key == "type" && schema.text("type") != "object" {
            let detail =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.invalid(schema.at("type"), schema.text("type"), detail);
            return;
        }
        if !AT_ROOT.iter().any(|(_, allowed)| allowed == key) {
            let allowed = AT_ROOT.map(|(name, _)| name).join(" ");
            let detail = format!(
                "only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            let error = FieldError::invalid(&schema.path, schema.value.clone(), detail);
            errors.push(error.shown_as(crate::internal::show("JSONSchemaProps", schema.value)));
            return;
        }
    }
}

/// The properties of a schema with paths as upstream writes them.
pub(super) fn fields<'a>(schema: &Cursor<'a>) -> Vec<(&'a str, Cursor<'a>)> {
    let path = schema.at("properties");
    schema.map("properties").iter().map(|(name, field)| (name.as_str(), Cursor::new(field, path.key(name)))).collect()
}

pub(super) fn not_of_type(errors: &mut FieldErrors, schema: &Cursor<'_>, detail: &str) {
    match schema.text("type") {
        "" => errors.required(schema.at("type"), detail),
        kind => errors.invalid(schema.at("type"), kind, detail),
    }
}

/// Where in a resource a schema stands.
#[derive(Clone, Default)]
struct Surroundings {
    root: bool,
    inside_metadata: bool,
    no_defaults: Option<String>,
}

/// What holds for each schema on its own, wherever it stands.
fn properties_of_schema(errors: &mut FieldErrors, schema: &Cursor<'_>, around: &Surroundings) {
    if !schema.exists() {
        return;
    }
    unsupported_parts(errors, schema, around);
    if schema.is_true("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(schema.at("uniqueItems"), detail);
    }
    let inner = Surroundings { root: false, ..around.clone() };
    let additional = schema.get("additionalProperties");
    if additional.exists() {
        if !schema.map("properties").is_empty() && *additional.value != json!(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.forbidden(additional.path.clone(), detail);
        }
        let mut below = inner.clone();
        if around.inside_metadata {
            below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        if additional.value.is_object() {
            properties_of_schema(errors, &additional, &below);
        }
    }
    for (name, field) in fields(schema) {
        let mut below = inner.clone();
        if (around.root || schema.is_true(EMBEDDED)) && ["metadata", "kind", "apiVersion"].contains(&name) {
            below.inside_metadata = true;
            if around.root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        properties_of_schema(errors, &field, &below);
    }
    properties_of_schema(errors, &schema.get("not"), &inner);
    for key in ["allOf", "oneOf", "anyOf"] {
        schema.items(key).iter().for_each(|part| properties_of_schema(errors, part, &inner));
    }
    if schema.raw("items").is_object() {
        properties_of_schema(errors, &schema.get("items"), &inner);
    }
    schema.items("items").iter().for_each(|part| properties_of_schema(errors, part, &inner));
    if schema.flag(PRESERVE) == Some(false) {
        errors.invalid(schema.at(PRESERVE), false, "must be true or undefined");
    }
    map_kind(errors, schema);
    list_kind(errors, schema);
    schema.items(RULES).iter().for_each(|rule| one_rule(errors, rule, schema.value));
}

fn unsupported_parts(errors: &mut FieldErrors, schema: &Cursor<'_>, around: &Surroundings) {
    let kind = schema.text("type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.unsupported(schema.at("type"), kind, &TYPES);
    }
    if let Some(reason) = around.no_defaults.as_ref().filter(|_| schema.has("default")) {
        errors.forbidden(schema.at("default"), format!("must not be set {reason}"));
    }
    let keys = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
    for key in keys.into_iter().filter(|key| schema.has(key)) {
        let empty = schema.raw(key).as_object().is_some_and(|map| map.is_empty()) || schema.raw(key) == "";
        if !empty || ["dependencies", "$ref", "additionalItems"].contains(&key) {
            errors.forbidden(schema.at(key), format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        errors.forbidden(schema.at("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if !schema.array("items").is_empty() {
        errors.forbidden(schema.at("items"), "items must be a schema object and not an array");
    }
    if around.inside_metadata && schema.is_true(EMBEDDED) {
        errors.forbidden(schema.at(EMBEDDED), "must not be used inside of resource meta");
    }
}

fn map_kind(errors: &mut FieldErrors, schema: &Cursor<'_>) {
    let Some(kind) = schema.raw(MAP_TYPE).as_str() else { return };
    if schema.text("type") != "object" {
        not_of_type(errors, schema, &format!("must be object if {MAP_TYPE} is specified"));
    }
    if !["atomic", "granular"].contains(&kind) {
        errors.unsupported(schema.at(MAP_TYPE), kind, &["atomic", "granular"]);
    }
}

fn list_kind(errors: &mut FieldErrors, schema: &Cursor<'_>) {
    let kind = schema.raw(LIST_TYPE).as_str();
    let items = schema.get("items");
    if kind.is_some() && schema.text("type") != "array" {
        not_of_type(errors, schema, &format!("must be array if {LIST_TYPE} is specified"));
    } else if kind == Some("set") {
        let detail = format!("must be atomic as item of a list with {LIST_TYPE}=set");
        let atomic = |key: &str| items.raw(key) == "atomic";
        match items.text("type") {
            "array" if items.has(LIST_TYPE) && !atomic(LIST_TYPE) => {
                errors.invalid(items.at(LIST_TYPE), items.raw(LIST_TYPE).clone(), detail);
            }
            "object" if !atomic(MAP_TYPE) => {
                errors.invalid(items.at(MAP_TYPE), items.raw(LIST_TYPE).clone(), detail);
            }
            _ => {}
        }
    }
    if let Some(kind) = kind.filter(|kind| !["atomic", "set", "map"].contains(kind)) {
        errors.unsupported(schema.at(LIST_TYPE), kind, &["atomic", "set", "map"]);
    }
    if !schema.array(LIST_KEYS).is_empty() && kind != Some("map") {
        let detail = format!("must be map if {LIST_KEYS} is non-empty");
        match kind {
            None => errors.required(schema.at(LIST_TYPE), &detail),
            Some(kind) => errors.invalid(schema.at(LIST_TYPE), kind, detail),
        }
    }
    if kind == Some("map") {
        keyed_list(errors, schema, &items);
    }
    if items.value.is_object()
        && let Some(kind @ ("set" | "map")) = kind
    {
        if items.is_true("nullable") {
            errors.forbidden(items.at("nullable"), format!("cannot be nullable when {LIST_TYPE} is {kind}"));
        }
        if kind == "map" {
            keys_are_there(errors, schema, &items);
        }
    }
}

fn keyed_list(errors: &mut FieldErrors, schema: &Cursor<'_>, items: &Cursor<'_>) {
    if schema.array(LIST_KEYS).is_empty() {
        errors.required(schema.at(LIST_KEYS), &format!("must not be empty if {LIST_TYPE} is map"));
    }
    match items.value {
        Value::Null => errors.required(items.path.clone(), &format!("must have a schema if {LIST_TYPE} is map")),
        Value::Object(_) if items.text("type") != "object" => {
            let detail = format!("must be object if parent array's {LIST_TYPE} is map");
            errors.invalid(items.at("type"), items.text("type"), detail);
        }
        Value::Object(_) => {
            let mut seen: HashSet<&str> = HashSet::new();
            for key in schema.texts(LIST_KEYS) {
                // All keys are shown each time.
                if errors.is_full() {
                    break;
                }
                let mut refuse =
                    |detail: &str| errors.invalid(schema.at(LIST_KEYS), schema.raw(LIST_KEYS).clone(), detail);
                match items.raw("properties")[key]["type"].as_str() {
                    _ if !items.map("properties").contains_key(key) => {
                        refuse("entries must all be names of item properties");
                    }
                    Some("array" | "object") => {
                        let detail = format!("must be a scalar type if parent array's {LIST_TYPE} is map");
                        errors.invalid(items.at("properties").key(key).child("type"), items.text("type"), detail);
                    }
                    _ => {}
                }
                if seen.contains(&key) {
                    let detail = "must not contain duplicate entries";
                    errors.invalid(schema.at(LIST_KEYS), schema.raw(LIST_KEYS).clone(), detail);
                }
                seen.insert(key);
            }
        }
        other => {
            let detail = format!("must only have a single schema if {LIST_TYPE} is map");
            errors.invalid(items.path.clone(), other.clone(), detail);
        }
    }
}

/// Every item of a keyed list has its keys, given or by default.
fn keys_are_there(errors: &mut FieldErrors, schema: &Cursor<'_>, items: &Cursor<'_>) {
    let fields: HashMap<_, _> = fields(items).into_iter().collect();
    let required: HashSet<&str> = items.texts("required").collect();
    for key in schema.texts(LIST_KEYS) {
        let Some(field) = fields.get(key) else { continue };
        let prefix = format!("this property is in {LIST_KEYS}, so it");
        if !required.contains(key) && !field.has("default") {
            errors.required(field.at("default"), &format!("{prefix} must have a default or be a required property"));
        }
        if field.is_true("nullable") {
            errors.forbidden(field.at("nullable"), format!("{prefix} cannot be nullable"));
        }
    }
}

fn one_rule(errors: &mut FieldErrors, rule: &Cursor<'_>, schema: &Value) {
    let (text, message, expression) = (rule.text("rule"), rule.text("message"), rule.text("messageExpression"));
    if text.trim().is_empty() {
        errors.required(rule.at("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(rule.at("message"), message, "must be non-empty if specified");
    } else if message.trim().contains('\n') {
        errors.invalid(rule.at("message"), message, "must not contain line breaks");
    } else if text.trim().contains('\n') && message.trim().is_empty() {
        errors.required(rule.at("message"), "message must be specified if rule contains line breaks");
    }
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.required(rule.at("messageExpression"), "messageExpression must be non-empty if specified");
    }
    if let Some(reason) = rule.raw("reason").as_str().filter(|reason| !REASONS.contains(reason)) {
        errors.unsupported(rule.at("reason"), reason, &REASONS);
    }
    let path = rule.text("fieldPath");
    if !path.is_empty() && path.trim().is_empty() {
        errors.invalid(rule.at("fieldPath"), path, "must be non-empty if specified");
    }
    if path.contains('\n') {
        errors.invalid(rule.at("fieldPath"), path, "must not contain line breaks");
    }
    if !path.is_empty() && inconvertible(schema).is_none() && paths::follow(path, schema, true).is_err() {
        errors.invalid(rule.at("fieldPath"), path, "must be a valid path");
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::{FieldError, Path};

    use super::*;

    #[test]
    fn schemas_are_structural() {
        let check = |field: Value, want: &str| {
            let schema = json!({"type": "object", "properties": {"a": field}});
            let errors = validate(&Cursor::new(&schema, Path::new("s")), false);
            assert_eq!(errors.iter().map(FieldError::line).collect::<Vec<_>>().join("\n"), want, "{schema}");
        };
        check(json!({"type": "string", "anyOf": [{"minLength": 1}]}), "");
        check(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), "");
        check(json!({}), "s.properties[a].type: Required value: must not be empty for specified object fields");
        check(
            json!({"type": "string", "not": {"type": "string"}}),
            "s.properties[a].not.type: Forbidden: must be empty to be structural",
        );
        check(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}),
            "s.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map\n\
             s.properties[a].items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
        );
        check(
            json!({"type": "string", "pattern": "(["}),
            "s.properties[a].pattern: Invalid value: \"([\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[`",
        );
    }
}

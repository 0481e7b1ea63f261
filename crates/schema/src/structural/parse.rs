//! From `openAPIV3Schema` as the definition holds it to a [`Schema`].

use serde_json::{Map, Value};

use super::{Additional, Limits, Pattern, Schema, formats};
use crate::catalogue::ListType;

/// Larger automata than this are not built; a pattern is the writer's of the definition, who need not mean well.
const PATTERN_BYTES: usize = 1 << 20;
/// As many allowed values are gone through one by one.
const FEW: usize = 16;

impl Schema {
    pub fn parse(value: &Value) -> Self {
        let Some(map) = value.as_object() else { return Self::default() };
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
        let list = |key: &str| -> Vec<Self> {
            map.get(key).and_then(Value::as_array).into_iter().flatten().map(Self::parse).collect()
        };
        let properties = map.get("properties").and_then(Value::as_object);
        let mut schema = Self {
            kind: text("type").into(),
            format: Some(text("format"))
                .filter(|format| formats::is_known(text("type"), format))
                .unwrap_or_default()
                .into(),
            nullable: flag("nullable"),
            default: map.get("default").filter(|default| !default.is_null()).cloned(),
            properties: properties.into_iter().flatten().map(|(key, of)| (key.clone(), Self::parse(of))).collect(),
            additional: match map.get("additionalProperties") {
                Some(Value::Bool(true)) => Additional::Anything,
                Some(of @ Value::Object(_)) => Additional::Of(Box::new(Self::parse(of))),
                _ => Additional::None,
            },
            items: map.get("items").filter(|items| items.is_object()).map(|items| Box::new(Self::parse(items))),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: match text("x-kubernetes-list-type") {
                "map" => ListType::Map,
                "set" => ListType::Set,
                _ => ListType::Atomic,
            },
            list_keys: texts(map, "x-kubernetes-list-map-keys"),
            atomic_map: text("x-kubernetes-map-type") == "atomic",
            limits: limits(map),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: map.get("not").filter(|not| not.is_object()).map(|not| Box::new(Self::parse(not))),
            has_rules: false,
        };
        let own = map.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
        let below = schema.properties.values().any(|below| below.has_rules)
            || schema.items.as_ref().is_some_and(|items| items.has_rules)
            || matches!(&schema.additional, Additional::Of(of) if of.has_rules);
        schema.has_rules = own || below;
        schema
    }
}

fn texts(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn limits(map: &Map<String, Value>) -> Limits {
    let float = |key: &str| map.get(key).and_then(Value::as_f64);
    let count = |key: &str| map.get(key).and_then(Value::as_u64);
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let one_of_values = map.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty());
    let texts_of = |values: &Vec<Value>| values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let pattern = map.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty());
    Limits {
        one_of_texts: one_of_values.filter(|values| values.len() > FEW).map(texts_of).unwrap_or_default(),
        one_of_values: one_of_values.cloned(),
        minimum: float("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: float("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: float("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: pattern.map(|text| Pattern {
            text: text.into(),
            expression: regex::RegexBuilder::new(text).size_limit(PATTERN_BYTES).build().ok(),
        }),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        required: texts(map, "required"),
    }
}

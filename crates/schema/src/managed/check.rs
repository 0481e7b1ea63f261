//! Whether an applied configuration fits its type, in the words of structured merge.

use std::collections::BTreeSet;

use serde_json::Value;

use super::walk::{Merge, Place, child};
use crate::catalogue::{Catalogue, Item, Shape, TypeId};

/// All complaints as the one text that upstream prints, or None.
pub(super) fn complaints(catalogue: &Catalogue, id: TypeId, config: &Value) -> Option<String> {
    let mut found = Vec::new();
    structure(catalogue, id, config, "", &mut found);
    match found.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// The places of a configuration that can only be replaced as a whole.
pub(super) fn atomics(catalogue: &Catalogue, id: TypeId, config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    atomic_fields(catalogue, &Merge::Struct(id), config, "", &mut found);
    found
}

fn atomic_fields(catalogue: &Catalogue, merge: &Merge<'_>, value: &Value, path: &str, out: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let Some(place) = child(catalogue, merge, key) else { continue };
        atomic_value(catalogue, place, value, &format!("{path}.{key}"), out);
    }
}

fn atomic_value(catalogue: &Catalogue, place: Place<'_>, value: &Value, path: &str, out: &mut Vec<String>) {
    let merge = place.merge(catalogue);
    match (&merge, value) {
        (Merge::Leaf, Value::Array(_) | Value::Object(_)) => out.push(path.to_owned()),
        (Merge::List(inner), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                atomic_value(catalogue, Place::of_item(inner), item, &format!("{path}[{index}]"), out);
            }
        }
        (Merge::Struct(_), Value::Object(_)) => atomic_fields(catalogue, &merge, value, path, out),
        _ => {}
    }
}

fn complain(path: &str, what: String, out: &mut Vec<String>) {
    out.push(if path.is_empty() { what } else { format!("{path}: {what}") });
}

fn structure(catalogue: &Catalogue, id: TypeId, value: &Value, path: &str, out: &mut Vec<String>) {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return,
        other => return complain(path, format!("expected map, got {}", pointer(other)), out),
    };
    for (key, value) in map {
        let path = format!("{path}.{key}");
        match child(catalogue, &Merge::Struct(id), key) {
            Some(place) => values(catalogue, place, value, &path, out),
            None => {
                complain(&path, "field not declared in schema".to_owned(), out);
                return;
            }
        }
    }
}

fn values(catalogue: &Catalogue, place: Place<'_>, value: &Value, path: &str, out: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    match place.shape {
        Shape::Struct(id) => structure(catalogue, *id, value, path, out),
        Shape::Map(inner) => match value {
            Value::Object(map) => {
                for (key, value) in map {
                    values(catalogue, Place::of_item(inner), value, &format!("{path}.{key}"), out);
                }
            }
            other => complain(path, format!("expected map, got {}", pointer(other)), out),
        },
        Shape::List(inner) => match value {
            Value::Array(items) => list(catalogue, place, inner, items, path, out),
            other => complain(path, format!("expected list, got {}", pointer(other)), out),
        },
        Shape::String | Shape::Bytes | Shape::Duration if !value.is_string() => {
            complain(path, format!("expected string, got &value.valueUnstructured{{Value:{}}}", literal(value)), out);
        }
        Shape::Bool if !value.is_boolean() => {
            complain(path, format!("expected boolean, got {}", pointer(value)), out);
        }
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float if !value.is_number() => {
            complain(path, format!("expected numeric (int or float), got {}", go_type(value)), out);
        }
        Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::IntOrString
            if value.is_object() || value.is_array() =>
        {
            complain(path, format!("expected any scalar, got {}", pointer(value)), out);
        }
        _ => {}
    }
}

fn list(catalogue: &Catalogue, place: Place<'_>, inner: &Item, items: &[Value], path: &str, out: &mut Vec<String>) {
    let keyed = matches!(place.merge(catalogue), Merge::List(_));
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let mut item_path = format!("{path}[{index}]");
        if keyed {
            match place.element(catalogue, inner, item) {
                Ok(element) => {
                    item_path = format!("{path}{element}");
                    if seen.contains(&element) {
                        complain(path, format!("duplicate entries for key {element}"), out);
                    }
                    seen.insert(element);
                }
                Err(why) => return complain(path, format!("element {index}: {why}"), out),
            }
        }
        values(catalogue, Place::of_item(inner), item, &item_path, out);
    }
}

/// Go's `%v` of a pointer to a value.
fn pointer(value: &Value) -> String {
    format!("&{{{}}}", crate::patch::go_print(value))
}

/// Go's `%#v`.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => crate::text::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(k, v)| format!("{}:{}", crate::text::quote(k), literal(v))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

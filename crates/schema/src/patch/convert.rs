//! Strategic merge upstream ends in a conversion from maps to structs, which has words of its own for wrong types.

use serde_json::Value;

use crate::catalogue::{Catalogue, Item, Shape, Type, TypeId};

/// The first value that does not fit its type.
pub(super) fn first_error(ty: &Type, object: &Value) -> Option<String> {
    match object {
        Value::Object(_) => structure(ty.catalogue(), ty.id(), object),
        _ => None,
    }
}

fn structure(catalogue: &Catalogue, id: TypeId, value: &Value) -> Option<String> {
    let Value::Object(map) = value else { return Some(format!("cannot restore struct from: {}", kind(value))) };
    catalogue.get(id).fields.iter().find_map(|field| item(catalogue, &field.item, map.get(&*field.name)?))
}

fn item(catalogue: &Catalogue, expected: &Item, value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match (&expected.shape, value) {
        (Shape::Struct(id), _) => structure(catalogue, *id, value),
        (Shape::List(inner), Value::Array(items)) => items.iter().find_map(|v| item(catalogue, inner, v)),
        (Shape::List(_), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Map(inner), Value::Object(map)) => map.values().find_map(|v| item(catalogue, inner, v)),
        (Shape::Map(_), other) => Some(format!("cannot restore map from {}", kind(other))),
        (Shape::String, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => None,
        (Shape::String, Value::Number(_)) => Some(format!("cannot convert {} to string", kind(value))),
        (Shape::String, _) => Some("unrecognized type: string".to_owned()),
        (Shape::Bool, _) => Some("unrecognized type: bool".to_owned()),
        (Shape::Int32, Value::Number(number)) if number.is_f64() => Some("cannot convert float64 to int32".to_owned()),
        (Shape::Int32, Value::Number(number)) if number.is_i64() => None,
        (Shape::Int32, _) => Some("unrecognized type: int32".to_owned()),
        (Shape::Int64, Value::Number(number)) if number.is_i64() => None,
        (Shape::Int64, Value::Number(number)) if number.is_f64() => Some("cannot convert float64 to int64".to_owned()),
        (Shape::Int64, _) => Some("unrecognized type: int64".to_owned()),
        // The rest is read from JSON upstream too, and complains in the same words.
        _ => None,
    }
}

/// Brings numbers into the range of their fields, as Go does when it turns a larger integer into a smaller one: what does not
/// fit wraps around, for validation to refuse. Tells whether there were any.
pub(crate) fn truncate(ty: &Type, object: &mut Value) -> bool {
    truncate_fields(ty.catalogue(), ty.id(), object)
}

fn truncate_fields(catalogue: &Catalogue, id: TypeId, value: &mut Value) -> bool {
    let Value::Object(map) = value else { return false };
    let mut any = false;
    for field in &catalogue.get(id).fields {
        if let Some(value) = map.get_mut(&*field.name) {
            any |= truncate_item(catalogue, &field.item, value);
        }
    }
    any
}

fn truncate_item(catalogue: &Catalogue, expected: &Item, value: &mut Value) -> bool {
    let mut any = false;
    match (&expected.shape, &mut *value) {
        (Shape::Struct(id), value) => any = truncate_fields(catalogue, *id, value),
        (Shape::List(inner), Value::Array(items)) => {
            items.iter_mut().for_each(|item| any |= truncate_item(catalogue, inner, item));
        }
        (Shape::Map(inner), Value::Object(map)) => {
            map.values_mut().for_each(|item| any |= truncate_item(catalogue, inner, item));
        }
        (Shape::Int32, Value::Number(number)) => {
            if let Some(whole) = number.as_i64().filter(|whole| i32::try_from(*whole).is_err()) {
                // The low 32 bits, which is what is left in Go.
                *value = Value::from(whole as i32);
                any = true;
            }
        }
        _ => {}
    }
    any
}

/// Go's `reflect.Kind` of a decoded JSON value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// A value as Go's `%s` prints it: only texts are texts.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={})", kind(value), go_print(value)),
        _ => go_print(value),
    }
}

/// A value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(on) => on.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go_print(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

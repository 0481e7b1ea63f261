//! Strategic merge upstream ends in a conversion from maps to structs, which has words of its own for wrong types.

use serde_json::Value;

use crate::catalogue::{Catalogue, Item, Shape, Type, TypeId};
use crate::encode::go_float;

/// The first value that does not fit its type.
pub(crate) fn first_error(ty: &Type, object: &Value) -> Option<String> {
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
        // Go turns integers into texts alone.
        (Shape::String, Value::Number(number)) if number.is_i64() => {
            Some(format!("cannot convert {} to {}", kind(value), expected.go_type))
        }
        (Shape::String, _) => Some("unrecognized type: string".to_owned()),
        (Shape::Bool, _) => Some("unrecognized type: bool".to_owned()),
        (Shape::Int32 | Shape::Int64, Value::Number(number)) if whole(number).is_some() => None,
        (Shape::Int32, Value::Number(_)) => Some("cannot convert float64 to int32".to_owned()),
        (Shape::Int64, Value::Number(_)) => Some("cannot convert float64 to int64".to_owned()),
        (Shape::Int32, _) => Some("unrecognized type: int32".to_owned()),
        (Shape::Int64, _) => Some("unrecognized type: int64".to_owned()),
        (Shape::Bytes, Value::String(text)) => {
            crate::decode::base64::decode(text).err().map(|why| format!("error decoding from json: {why}"))
        }
        (Shape::Bytes, Value::Array(_)) => None,
        (Shape::Bytes, other) => Some(format!("cannot restore slice from {}", kind(other))),
        // These are read from their own JSON, which knows no field around it.
        (Shape::Time | Shape::MicroTime, Value::String(_)) => None,
        (Shape::Time | Shape::MicroTime, other) => {
            Some(format!("json: cannot unmarshal {} into Go value of type string", json_kind(other)))
        }
        (Shape::IntOrString, Value::String(_)) => None,
        (Shape::IntOrString, Value::Number(number)) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {
            None
        }
        (Shape::IntOrString, other) => {
            let found = match other {
                Value::Number(_) => format!("number {other}"),
                _ => json_kind(other).to_owned(),
            };
            Some(format!("json: cannot unmarshal {found} into Go value of type int32"))
        }
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
            if let Some(whole) = whole(number).filter(|whole| number.as_i64() != Some(i64::from(*whole as i32))) {
                // The low 32 bits, which is what is left in Go.
                *value = Value::from(whole as i32);
                any = true;
            }
        }
        (Shape::Int64, Value::Number(number)) => {
            if let Some(whole) = whole(number).filter(|whole| number.as_i64() != Some(*whole)) {
                *value = Value::from(whole);
                any = true;
            }
        }
        _ => {}
    }
    any
}

/// The integer that Go makes of a number. What has a dot or does not fit 64 bits is a float to it first; a float that is too large
/// becomes the least of all integers. None where there is a fraction.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
        let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
        Some(if fits { float as i64 } else { i64::MIN })
    })
}

/// What Go's JSON calls a value.
fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's `reflect.Kind` of a decoded JSON value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if !number.is_i64() => "float64",
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
        Value::Number(number) if !number.is_i64() => go_float(number.as_f64().unwrap_or_default()),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go_print(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_integers_as_in_go() {
        for (text, integer) in [
            ("7", Some(7)),
            ("1000.0", Some(1000)),
            ("1e3", Some(1000)),
            ("1.5", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", Some(i64::MIN)),
            ("1e300", Some(i64::MIN)),
        ] {
            assert_eq!(whole(&text.parse().unwrap()), integer, "{text}");
        }
    }
}

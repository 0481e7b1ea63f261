//! Go's way with text.

pub(crate) use ferry_meta::field::quote;
use serde_json::Value;

/// The type that Go decodes a value to, as `%T` prints it.
pub fn go_type(value: &Value) -> &'static str {
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

/// A float as Go's `%v` has it.
pub fn go_float_short(value: f64) -> String {
    let text = format!("{value:e}");
    match text.split_once('e').map(|(mantissa, exponent)| (mantissa, exponent.parse::<i32>().unwrap_or_default())) {
        Some((mantissa, exponent)) if !(-4..6).contains(&exponent) => {
            format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => value.to_string(),
    }
}

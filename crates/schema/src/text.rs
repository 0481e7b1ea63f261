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
    shortest(value)
}

/// The same with half the precision.
pub(crate) fn go_float_32(value: f64) -> String {
    shortest(value as f32)
}

fn shortest(value: impl std::fmt::Display + std::fmt::LowerExp) -> String {
    let text = format!("{value:e}");
    match text.split_once('e').map(|(mantissa, exponent)| (mantissa, exponent.parse::<i32>().unwrap_or_default())) {
        Some((mantissa, exponent)) if !(-4..6).contains(&exponent) => {
            format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_go_writes_them() {
        for (float, whole, half) in [
            (0.5, "0.5", "0.5"),
            (-123_456.5, "-123456.5", "-123456.5"),
            (1_234_567.5, "1.2345675e+06", "1.2345675e+06"),
            (1e20, "1e+20", "1e+20"),
            (1e-4, "0.0001", "0.0001"),
            (1e-7, "1e-07", "1e-07"),
            (0.300_000_000_000_000_04, "0.30000000000000004", "0.3"),
            (123_456_789.123_456_79, "1.2345678912345679e+08", "1.2345679e+08"),
        ] {
            assert_eq!((&*go_float_short(float), &*go_float_32(float)), (whole, half));
        }
    }
}

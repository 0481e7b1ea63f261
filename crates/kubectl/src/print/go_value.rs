//! Values as Go's %v shows them.

use serde_json::Value;

pub fn show(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => show_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let all: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", show(value))).collect();
            format!("map[{}]", all.join(" "))
        }
    }
}

/// A value in Go's own syntax, as %#v shows it.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => show_number(number),
        Value::String(text) => crate::text::quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| format!("{}:{}", crate::text::quote(key), syntax(value));
            format!("map[string]interface {{}}{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

fn show_number(number: &serde_json::Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    let value = number.as_f64().unwrap_or_default();
    let exponent = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if !(-4..21).contains(&exponent) {
        let text = format!("{value:e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let power: i32 = power.parse().unwrap_or_default();
        return format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    }
    value.to_string()
}

//! Values as Go writes them in its own syntax, which upstream shows of keys that JSON cannot have.

use serde_json::Value;

/// What is shown at most.
const LONGEST: usize = 4096;

pub(super) fn of(value: &Value) -> String {
    let mut shown = String::new();
    match value {
        Value::Null => shown.push_str("<nil>"),
        value => write(value, &mut shown),
    }
    shown
}

fn write(value: &Value, out: &mut String) {
    if out.len() > LONGEST {
        return;
    }
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&crate::text::quote(text)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number > 0 { ", " } else { "" });
                write(item, out);
            }
            out.push('}');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            out.push_str("map[interface {}]interface {}{");
            for (number, (key, field)) in sorted.into_iter().enumerate() {
                out.push_str(if number > 0 { ", " } else { "" });
                out.push_str(&crate::text::quote(key));
                out.push(':');
                write(field, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

//! A patched object as errors show it: what the patch left alone stands in the order of Go's structs, the maps on the way to
//! what it changed are sorted.

use serde_json::Value;

use crate::catalogue::Type;

pub(super) fn text(ty: &Type, current: &Value, patched: &Value) -> String {
    if ty.schema().is_some() {
        return sorted(patched);
    }
    let before = String::from_utf8(crate::encode_json(ty, current)).unwrap_or_default();
    let mut out = String::new();
    write(current, &before, patched, &mut out);
    out
}

fn sorted(value: &Value) -> String {
    String::from_utf8(crate::encode::encode_any(value, false)).unwrap_or_default()
}

/// `before` is the text of `current`.
fn write(current: &Value, before: &str, patched: &Value, out: &mut String) {
    match (current, patched) {
        _ if current == patched => out.push_str(before),
        (Value::Object(current), Value::Object(patched)) => {
            let parts = members(before);
            out.push('{');
            for (number, (key, value)) in patched.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                out.push_str(&sorted(&Value::from(&**key)));
                out.push(':');
                let part = parts.iter().find(|(name, _)| name == key).map(|(_, text)| *text);
                match (current.get(key), part) {
                    (Some(current), Some(part)) => write(current, part, value, out),
                    _ => out.push_str(&sorted(value)),
                }
            }
            out.push('}');
        }
        (Value::Array(current), Value::Array(patched)) => {
            let parts = elements(before);
            out.push('[');
            for (number, value) in patched.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                // An item that moved is known by its value, one that changed by its place.
                let place = current.iter().position(|item| item == value).unwrap_or(number);
                match (current.get(place), parts.get(place)) {
                    (Some(current), Some(part)) => write(current, part, value, out),
                    _ => out.push_str(&sorted(value)),
                }
            }
            out.push(']');
        }
        _ => out.push_str(&sorted(patched)),
    }
}

/// The parts between the brackets of well-formed JSON, as they stand there.
fn elements(text: &str) -> Vec<&str> {
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let (mut parts, mut depth, mut start, mut quoted, mut escaped) = (Vec::new(), 0usize, 0, false, false);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inner.len() {
        parts.push(&inner[start..]);
    }
    parts
}

/// Keys with the texts of their values.
fn members(text: &str) -> Vec<(String, &str)> {
    let member = |part: &'_ str| {
        let mut keys = serde_json::Deserializer::from_str(part).into_iter::<String>();
        let key = keys.next()?.ok()?;
        Some((key, keys.byte_offset()))
    };
    let found = elements(text).into_iter().filter_map(|part| {
        let (key, end) = member(part)?;
        Some((key, part.get(end..)?.trim_start().strip_prefix(':')?))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_touched_is_sorted() {
        let current = json!({"b": {"y": 1, "x": "a,}\"]"}, "a": [{"d": 1, "c": 2}, 3]});
        let before = r#"{"b":{"y":1,"x":"a,}\"]"},"a":[{"d":1,"c":2},3]}"#;
        for (patched, want) in [
            (current.clone(), before),
            (
                json!({"b": {"y": 1, "x": "a,}\"]"}, "a": [{"d": 1, "c": 2}, 4]}),
                r#"{"a":[{"d":1,"c":2},4],"b":{"y":1,"x":"a,}\"]"}}"#,
            ),
            (json!({"b": {"y": 2, "x": "n"}, "a": []}), r#"{"a":[],"b":{"x":"n","y":2}}"#),
            (
                json!({"b": {"y": 1, "x": "a,}\"]"}, "a": [5, {"d": 1, "c": 2}, 3]}),
                r#"{"a":[5,{"d":1,"c":2},3],"b":{"y":1,"x":"a,}\"]"}}"#,
            ),
        ] {
            let mut out = String::new();
            write(&current, before, &patched, &mut out);
            assert_eq!(out, want);
        }
    }
}

//! A patched object as errors show it: what the patch left alone stands in the order of Go's structs, the maps on the way to
//! what it changed are sorted, and what it brought stands as upstream's library for patches writes it.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::catalogue::Type;

/// After a merge patch: the library goes through all that the patch has, so that it is sorted.
pub(super) fn of_merge(ty: &Type, current: &Value, patched: &Value, patch: &[u8]) -> String {
    let mut out = String::new();
    let patch = std::str::from_utf8(patch).unwrap_or_default().trim();
    merged(current, &text(ty, current), patched, patch, &mut out);
    out
}

/// After a JSON patch: the library goes into the containers of its paths alone, and what was added stands as it was written.
pub(super) fn of_json(ty: &Type, current: &Value, patched: &Value, patch: &[u8]) -> String {
    changed(current, &text(ty, current), patched, patch)
}

/// `before` is the text of `current`.
fn changed(current: &Value, before: &str, patched: &Value, patch: &[u8]) -> String {
    let operations: Vec<BTreeMap<String, &RawValue>> = serde_json::from_slice(patch).unwrap_or_default();
    let (mut touched, mut brought) = (Touched::default(), Vec::new());
    for operation in &operations {
        for field in ["path", "from"] {
            let path: Option<String> = operation.get(field).and_then(|path| serde_json::from_str(path.get()).ok());
            path.into_iter().for_each(|path| touched.add(&path));
        }
        let value = operation.get("value").and_then(|raw| Some((serde_json::from_str(raw.get()).ok()?, raw.get())));
        brought.extend(value);
    }
    let mut out = String::new();
    Walk { brought }.write(current, before, patched, Some(&touched), &mut out);
    out
}

fn text(ty: &Type, value: &Value) -> String {
    // A custom resource is a map to upstream.
    let bytes =
        if ty.schema().is_some() { crate::encode::encode_any(value, false) } else { crate::encode_json(ty, value) };
    String::from_utf8(bytes).unwrap_or_default()
}

fn sorted(value: &Value) -> String {
    String::from_utf8(crate::encode::encode_any(value, false)).unwrap_or_default()
}

fn open_member(number: usize, key: &str, out: &mut String) {
    out.push_str(if number > 0 { "," } else { "" });
    out.push_str(&sorted(&Value::from(key)));
    out.push(':');
}

/// `before` is the text of `current`.
fn merged(current: &Value, before: &str, patched: &Value, patch: &str, out: &mut String) {
    let (Value::Object(current), Value::Object(patched)) = (current, patched) else {
        return if current.is_object() { out.push_str(&compact(patch)) } else { pruned(patch, out) };
    };
    let Ok(changes) = serde_json::from_str::<BTreeMap<String, &RawValue>>(patch) else {
        return out.push_str(&compact(patch));
    };
    let parts = members(before);
    out.push('{');
    for (number, (key, value)) in patched.iter().enumerate() {
        open_member(number, key, out);
        let part = parts.iter().find(|(name, _)| name == key).map(|(_, text)| *text);
        match (changes.get(key), current.get(key), part) {
            (None, _, Some(part)) => out.push_str(part),
            (Some(change), Some(current), Some(part)) => merged(current, part, value, change.get(), out),
            (Some(change), ..) => pruned(change.get(), out),
            (None, ..) => out.push_str(&sorted(value)),
        }
    }
    out.push('}');
}

/// A value of a merge patch: its maps are sorted and lose their nulls, all else is as it was written.
fn pruned(patch: &str, out: &mut String) {
    if let Ok(map) = serde_json::from_str::<BTreeMap<String, &RawValue>>(patch) {
        out.push('{');
        for (number, (key, value)) in map.iter().filter(|(_, value)| value.get() != "null").enumerate() {
            open_member(number, key, out);
            pruned(value.get(), out);
        }
        out.push('}');
    } else if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(patch) {
        out.push('[');
        for (number, item) in items.iter().enumerate() {
            out.push_str(if number > 0 { "," } else { "" });
            pruned(item.get(), out);
        }
        out.push(']');
    } else {
        out.push_str(&compact(patch));
    }
}

/// JSON without the blanks between its parts, and with the letters escaped that Go escapes.
fn compact(json: &str) -> String {
    let (mut out, mut quoted, mut escaped) = (String::with_capacity(json.len()), false, false);
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
                escaped = false;
            }
            ' ' | '\t' | '\n' | '\r' if !quoted => {}
            _ => {
                quoted ^= letter == '"' && !escaped;
                escaped = quoted && letter == '\\' && !escaped;
                out.push(letter);
            }
        }
    }
    out
}

/// The containers that the paths of a JSON patch go through.
#[derive(Default)]
struct Touched(BTreeMap<String, Touched>);

impl Touched {
    fn add(&mut self, pointer: &str) {
        let mut at = self;
        for token in pointer.split('/').skip(1) {
            at = at.0.entry(token.replace("~1", "/").replace("~0", "~")).or_default();
        }
    }

    /// The one below, if a path goes further from there.
    fn below(&self, token: &str) -> Option<&Self> {
        self.0.get(token).filter(|below| !below.0.is_empty())
    }
}

/// What the operations brought, by its value.
struct Walk<'p> {
    brought: Vec<(Value, &'p str)>,
}

impl Walk<'_> {
    fn write(&self, current: &Value, before: &str, patched: &Value, touched: Option<&Touched>, out: &mut String) {
        match (current, patched, touched) {
            (Value::Object(current), Value::Object(patched), Some(touched)) => {
                let parts = members(before);
                out.push('{');
                for (number, (key, value)) in patched.iter().enumerate() {
                    open_member(number, key, out);
                    let part = parts.iter().find(|(name, _)| name == key).map(|(_, text)| *text);
                    match (current.get(key), part) {
                        (Some(current), Some(part)) => self.write(current, part, value, touched.below(key), out),
                        _ => out.push_str(&self.fresh(value)),
                    }
                }
                out.push('}');
            }
            (Value::Array(current), Value::Array(patched), Some(touched)) => {
                let parts = elements(before);
                out.push('[');
                for (number, value) in patched.iter().enumerate() {
                    out.push_str(if number > 0 { "," } else { "" });
                    let below = touched.below(&number.to_string());
                    // An item that moved is known by its value, one that changed by its place.
                    let moved = current.iter().position(|item| item == value).filter(|_| below.is_none());
                    let place = moved.unwrap_or(number);
                    match (current.get(place), parts.get(place)) {
                        (Some(current), Some(part)) => self.write(current, part, value, below, out),
                        _ => out.push_str(&self.fresh(value)),
                    }
                }
                out.push(']');
            }
            _ if current == patched => out.push_str(before),
            _ => out.push_str(&self.fresh(patched)),
        }
    }

    fn fresh(&self, value: &Value) -> String {
        let brought = self.brought.iter().rev().find(|(one, _)| one == value);
        brought.map_or_else(|| sorted(value), |(_, text)| compact(text))
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

    const BEFORE: &str = r#"{"b":{"y":1,"x":"a,}\"]"},"a":[{"d":1,"c":2},3]}"#;

    fn current() -> Value {
        serde_json::from_str(BEFORE).expect("JSON")
    }

    #[test]
    fn a_merge_patch_sorts_what_it_has() {
        for (patch, want) in [
            (json!({}).to_string(), r#"{"a":[{"d":1,"c":2},3],"b":{"y":1,"x":"a,}\"]"}}"#),
            (r#"{"b": {"y": 1}}"#.to_owned(), r#"{"a":[{"d":1,"c":2},3],"b":{"x":"a,}\"]","y":1}}"#),
            (
                r#"{"a":[{"d":1,"c":2,"e":null}, {"z": 1e+20, "k":"<"}, null]}"#.to_owned(),
                r#"{"a":[{"c":2,"d":1},{"k":"\u003c","z":1e+20},null],"b":{"y":1,"x":"a,}\"]"}}"#,
            ),
            (r#"{"b":[{"z":1,"k":2}]}"#.to_owned(), r#"{"a":[{"d":1,"c":2},3],"b":[{"z":1,"k":2}]}"#),
        ] {
            let body: Value = serde_json::from_str(&patch).expect("a patch");
            let patched = super::super::merge_patch(current(), &body).expect("patched");
            let mut out = String::new();
            merged(&current(), BEFORE, &patched, &patch, &mut out);
            assert_eq!(out, want, "{patch}");
        }
    }

    #[test]
    fn a_json_patch_sorts_the_maps_of_its_paths_alone() {
        for (patch, want) in [
            (r#"[{"op":"add","path":"/n","value":1}]"#, r#"{"a":[{"d":1,"c":2},3],"b":{"y":1,"x":"a,}\"]"},"n":1}"#),
            (
                r#"[{"op":"replace","path":"/a/0/d","value":{"z": 1, "k": 1e+20}}]"#,
                r#"{"a":[{"c":2,"d":{"z":1,"k":1e+20}},3],"b":{"y":1,"x":"a,}\"]"}}"#,
            ),
            (r#"[{"op":"add","path":"/a/0","value":5}]"#, r#"{"a":[5,{"d":1,"c":2},3],"b":{"y":1,"x":"a,}\"]"}}"#),
            (r#"[{"op":"remove","path":"/b/x"}]"#, r#"{"a":[{"d":1,"c":2},3],"b":{"y":1}}"#),
        ] {
            let operations: Value = serde_json::from_str(patch).expect("a patch");
            let patched = super::super::json_patch(current(), &operations).expect("patched");
            assert_eq!(changed(&current(), BEFORE, &patched, patch.as_bytes()), want, "{patch}");
        }
    }
}

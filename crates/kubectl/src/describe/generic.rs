//! Objects of kinds without a page of their own: every field, with a readable name.

use serde_json::{Map, Value};

use super::parts::{annotations, head, pairs};
use crate::print::go_value::show;

const SKIPPED: [&str; 5] =
    [".metadata.managedFields", ".metadata.name", ".metadata.namespace", ".metadata.labels", ".metadata.annotations"];

pub fn object(object: &Value) -> String {
    let mut out = head(object, true);
    out.push_str(&pairs("Labels", &object["metadata"]["labels"]));
    out.push_str(&annotations("Annotations", &object["metadata"]["annotations"]));
    if let Some(map) = object.as_object() {
        fields(&mut out, map, 0, "");
    }
    out
}

fn fields(out: &mut String, map: &Map<String, Value>, level: usize, path: &str) {
    let indent = "  ".repeat(level);
    for (key, value) in map {
        let path = format!("{path}.{key}");
        if SKIPPED.contains(&&*path) {
            continue;
        }
        match value {
            Value::Object(inner) => {
                out.push_str(&format!("{indent}{}:\n", label(key)));
                fields(out, inner, level + 1, &path);
            }
            Value::Array(items) => {
                out.push_str(&format!("{indent}{}:\n", label(key)));
                for item in items {
                    match item {
                        Value::Object(inner) => fields(out, inner, level + 1, &path),
                        other => out.push_str(&format!("{indent}  {}\n", show(other))),
                    }
                }
            }
            other => out.push_str(&format!("{indent}{}:\t{}\n", label(key), show(other))),
        }
    }
}

/// `creationTimestamp` is `Creation Timestamp`.
fn label(field: &str) -> String {
    if field.chars().any(|c| !c.is_alphabetic() && c != '-') {
        return field.to_owned();
    }
    let words: Vec<String> = together(split(field))
        .into_iter()
        .map(|word| match word.to_uppercase().as_str() {
            upper @ ("API" | "URL" | "UID" | "GUID") => upper.to_owned(),
            _ if word.to_lowercase() == word => {
                let mut chars = word.chars();
                chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
            }
            _ => word,
        })
        .collect();
    words.join(" ")
}

/// `UR` and `Ls` are one word: capitals before a capital.
fn together(parts: Vec<String>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for part in parts {
        let capital = part.chars().next().is_some_and(char::is_uppercase);
        match words.last_mut().filter(|_| open && capital) {
            Some(word) => {
                word.push_str(&part);
                open = false;
            }
            None => {
                open = part.chars().count() >= 2 && part.chars().all(|c| !c.is_alphabetic() || c.is_uppercase());
                words.push(part);
            }
        }
    }
    words
}

fn split(field: &str) -> Vec<String> {
    let chars: Vec<char> = field.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (at, c) in chars.iter().enumerate() {
        let upper_before = at > 0 && chars[at - 1].is_uppercase();
        let lower_next = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins =
            at == 0 || (c.is_uppercase() && (!upper_before || lower_next)) || (*c == '-') != (chars[at - 1] == '-');
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(*c);
        }
    }
    words
}

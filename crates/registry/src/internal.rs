//! How upstream prints the values of its internal types in errors: all fields, in the order and with the names of its code.
//!
//! `internal.tsv` holds one type per line with its fields as `name:json:kind`; an empty json name is the field's with a small
//! first letter. Kinds: `s` text, `i` number, `b` boolean, `q` quantity, `x` number or text, `p` anything that is null when
//! unset, `tT` a T, `*T` a T or null, `lT` a list of T, `dT` a map of T, `eT` the fields of T in place, `mT` those of the
//! metadata in place, `AT` a T or a list of them and `BT` a T or a flag as definitions have them. `o` before a kind leaves out what is empty.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

struct Field {
    name: &'static str,
    json: String,
    kind: u8,
    target: &'static str,
    omit_empty: bool,
}

static TYPES: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let lines = include_str!("internal.tsv").lines().skip(1);
    lines
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, fields)| (name, fields.split(' ').filter_map(field).collect()))
        .collect()
});

fn field(text: &'static str) -> Option<Field> {
    let mut parts = text.splitn(3, ':');
    let (name, json, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let json = if json.is_empty() && !name.is_empty() {
        format!("{}{}", name[..1].to_lowercase(), &name[1..])
    } else {
        json.to_owned()
    };
    let omitting = kind.strip_prefix('o');
    let kind = omitting.unwrap_or(kind);
    let omit_empty = omitting.is_some();
    Some(Field { name, json, kind: *kind.as_bytes().first()?, target: &kind[1..], omit_empty })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// As `show`, for a value that upstream has a pointer to.
pub fn show_pointer(name: &str, value: &Value) -> String {
    if value.is_null() { "null".to_owned() } else { show(name, value) }
}

/// As `show`, for a list of such values.
pub fn show_list(name: &str, value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| show(name, item)).collect();
            format!("[{}]", items.join(","))
        }
        _ => "null".to_owned(),
    }
}

/// The value of an internal type on one line.
pub fn show(name: &str, value: &Value) -> String {
    let mut printer = Printer { out: String::new(), indent: None };
    printer.structure(name, value, 0);
    printer.out
}

/// Any value on one line, as Go writes JSON.
pub fn show_json(value: &Value) -> String {
    let mut printer = Printer { out: String::new(), indent: None };
    printer.json(value, 0);
    printer.out
}

/// The value over several lines, each level one space deeper, as upstream compares old and new specs.
pub fn show_lines(name: &str, value: &Value) -> String {
    let mut printer = Printer { out: String::new(), indent: Some(1) };
    printer.structure(name, value, 0);
    printer.out
}

struct Printer {
    out: String,
    indent: Option<usize>,
}

impl Printer {
    fn line(&mut self, depth: usize) {
        if let Some(width) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', width * depth));
        }
    }

    fn key(&mut self, name: &str) {
        let _ = write!(self.out, "{}:", Value::from(name));
        if self.indent.is_some() {
            self.out.push(' ');
        }
    }

    fn structure(&mut self, name: &str, value: &Value, depth: usize) {
        self.out.push('{');
        let mut first = true;
        self.fields(name, value, depth, &mut first);
        if !first {
            self.line(depth);
        }
        self.out.push('}');
    }

    fn fields(&mut self, name: &str, value: &Value, depth: usize, first: &mut bool) {
        let Some(fields) = TYPES.get(name) else { return };
        for field in fields {
            if field.kind == b'e' {
                self.fields(field.target, value, depth, first);
                continue;
            }
            if field.kind == b'm' {
                self.fields(field.target, value.get("metadata").unwrap_or(&Value::Null), depth, first);
                continue;
            }
            let inner = value.get(&field.json).unwrap_or(&Value::Null);
            if field.omit_empty && is_empty(inner) {
                continue;
            }
            if !std::mem::replace(first, false) {
                self.out.push(',');
            }
            self.line(depth + 1);
            self.key(field.name);
            self.field_value(field, inner, depth + 1);
        }
    }

    fn field_value(&mut self, field: &Field, value: &Value, depth: usize) {
        match (field.kind, value) {
            (b't', value) => self.structure(field.target, value, depth),
            (b's', Value::Null) => self.out.push_str("\"\""),
            (b'i' | b'x', Value::Null) => self.out.push('0'),
            (b'q', Value::Null) => self.out.push_str("\"0\""),
            (b'b', Value::Null) => self.out.push_str("false"),
            (b'*', Value::Object(_)) => self.structure(field.target, value, depth),
            (b'l', Value::Array(items)) => {
                self.list(items.len(), depth, |printer, index, depth| {
                    printer.structure(field.target, &items[index], depth)
                });
            }
            (b'A' | b'B', Value::Null) => self.out.push_str("null"),
            (b'A', Value::Array(_)) => self.structure("SchemasAndSchema", &json!({"jSONSchemas": value}), depth),
            (b'A', value) => self.structure("SchemasAndSchema", &json!({"schema": value}), depth),
            (b'B', Value::Bool(_)) => self.structure("SchemaOrBool", &json!({"allows": value}), depth),
            (b'B', value) => self.structure("SchemaOrBool", &json!({"allows": true, "schema": value}), depth),
            (b'd', Value::Object(map)) => self.map(map, depth, |printer, item, depth| {
                printer.structure(field.target, item, depth);
            }),
            (_, value) => self.json(value, depth),
        }
    }

    fn map(&mut self, map: &Map<String, Value>, depth: usize, item: impl Fn(&mut Self, &Value, usize)) {
        self.out.push('{');
        for (index, (key, value)) in map.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.line(depth + 1);
            self.key(key);
            item(self, value, depth + 1);
        }
        if !map.is_empty() {
            self.line(depth);
        }
        self.out.push('}');
    }

    fn list(&mut self, length: usize, depth: usize, mut item: impl FnMut(&mut Self, usize, usize)) {
        self.out.push('[');
        for index in 0..length {
            if index > 0 {
                self.out.push(',');
            }
            self.line(depth + 1);
            item(self, index, depth + 1);
        }
        if length > 0 {
            self.line(depth);
        }
        self.out.push(']');
    }

    /// Plain JSON in the same layout.
    fn json(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Array(items) => {
                self.list(items.len(), depth, |printer, index, depth| printer.json(&items[index], depth))
            }
            Value::Object(map) => self.map(map, depth, Self::json),
            // Go writes these three so that JSON can stand in HTML.
            Value::String(text) if text.contains(['<', '>', '&']) => {
                let text = value.to_string();
                self.out.push_str(&text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"));
            }
            other => {
                let _ = write!(self.out, "{other}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_stands_in_place_and_selectors_have_their_order() {
        let template = json!({"metadata": {"labels": {"a": "b"}, "name": ""}, "spec": {}});
        assert!(show("PodTemplateSpec", &template).starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#));
        let selector =
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}], "x": 1});
        assert_eq!(
            show("LabelSelector", &selector),
            r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]}"#
        );
        assert!(show("ValidationRule", &json!({"rule": "self < 1"})).starts_with(r#"{"Rule":"self \u003c 1","#));
        assert_eq!(show_pointer("PodFailurePolicy", &Value::Null), "null");
        assert_eq!(show_list("NodeSelectorTerm", &json!([{}])), r#"[{"MatchExpressions":null,"MatchFields":null}]"#);
    }

    #[test]
    fn internal_values_print_with_all_their_fields() {
        assert_eq!(
            show("SecurityContext", &json!({"privileged": true, "seccompProfile": {"type": "Localhost"}})),
            r#"{"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":null,"ProcMount":null,"SeccompProfile":{"Type":"Localhost","LocalhostProfile":null},"AppArmorProfile":null}"#
        );
        assert!(
            show_lines("PodSpec", &json!({"nodeName": "n1"}))
                .contains("\n \"NodeName\": \"n1\",\n \"HostNetwork\": false,")
        );
    }
}

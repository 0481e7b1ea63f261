//! OpenAPI documents in protobuf, as the `gnostic` messages that Go clients read: the same document as the JSON, told by a table.
//!
//! A line of the table is a message: its fields as `json-name=number:type`, where the type is `s` text, `b` boolean,
//! `d` float, `i` integer, `any` a value kept as YAML, or another message; `[]` before it means a list. `*` stands for all
//! entries of a map, each a message of name and value, `@` for the value itself, `ext` for the `x-` extensions.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

const V2: &str = include_str!("messages-v2.txt");
const V3: &str = include_str!("messages-v3.txt");

static V2_MESSAGES: LazyLock<Messages> = LazyLock::new(|| messages(V2));
static V3_MESSAGES: LazyLock<Messages> = LazyLock::new(|| messages(V3));

/// Documents nest as deep as the schemas they tell of, which are bounded where they are read.
const DEEPEST: usize = 512;

type Messages = HashMap<&'static str, Vec<Field>>;

struct Field {
    name: &'static str,
    number: u32,
    kind: &'static str,
    repeated: bool,
}

fn messages(text: &'static str) -> Messages {
    let line = |line: &'static str| {
        let (message, fields) = line.split_once(' ')?;
        Some((message, fields.split(' ').filter_map(field).collect()))
    };
    text.lines().filter_map(line).collect()
}

fn field(text: &'static str) -> Option<Field> {
    let (name, rest) = text.split_once('=')?;
    let (number, kind) = rest.split_once(':')?;
    let repeated = kind.starts_with("[]");
    Some(Field { name, number: number.parse().ok()?, kind: kind.trim_start_matches("[]"), repeated })
}

/// An OpenAPI v2 document.
pub fn v2(document: &Value) -> Vec<u8> {
    Writer { messages: &V2_MESSAGES, additional: "Schema" }.message("Document", document, 0)
}

/// An OpenAPI v3 document.
pub fn v3(document: &Value) -> Vec<u8> {
    Writer { messages: &V3_MESSAGES, additional: "SchemaOrReference" }.message("Document", document, 0)
}

struct Writer {
    messages: &'static Messages,
    /// What the values of a map are told as.
    additional: &'static str,
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    varint(out, (u64::from(number) << 3) | u64::from(wire));
}

fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    tag(out, number, 2);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

impl Writer {
    fn message(&self, name: &str, value: &Value, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        if depth > DEEPEST {
            return out;
        }
        if let Some((number, kind)) = self.choice(name, value) {
            match value {
                Value::Bool(on) => {
                    tag(&mut out, number, 0);
                    varint(&mut out, u64::from(*on));
                }
                _ => self.one(&mut out, number, kind, value, depth),
            }
            return out;
        }
        let Some(fields) = self.messages.get(name) else { return out };
        let empty = Map::new();
        let map = value.as_object().unwrap_or(&empty);
        let extensible = fields.iter().any(|field| field.name == "ext");
        for field in fields {
            match field.name {
                "ext" => {
                    for (key, value) in map.iter().filter(|(key, _)| key.starts_with("x-")) {
                        self.named(&mut out, field.number, key, "any", value, depth);
                    }
                }
                "*" => {
                    for (key, value) in map.iter().filter(|(key, _)| !(extensible && key.starts_with("x-"))) {
                        self.named(&mut out, field.number, key, field.kind, value, depth);
                    }
                }
                "@" => self.field(&mut out, field, value, depth),
                key => {
                    if let Some(value) = map.get(key) {
                        self.field(&mut out, field, value, depth);
                    }
                }
            }
        }
        out
    }

    fn field(&self, out: &mut Vec<u8>, field: &Field, value: &Value, depth: usize) {
        match value {
            Value::Array(items) if field.repeated => {
                items.iter().for_each(|item| self.one(out, field.number, field.kind, item, depth));
            }
            value => self.one(out, field.number, field.kind, value, depth),
        }
    }

    fn named(&self, out: &mut Vec<u8>, number: u32, name: &str, kind: &str, value: &Value, depth: usize) {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, name.as_bytes());
        self.one(&mut entry, 2, kind, value, depth);
        bytes(out, number, &entry);
    }

    fn one(&self, out: &mut Vec<u8>, number: u32, kind: &str, value: &Value, depth: usize) {
        match (kind, value) {
            ("s", Value::String(text)) => bytes(out, number, text.as_bytes()),
            ("b", Value::Bool(on)) => {
                tag(out, number, 0);
                varint(out, u64::from(*on));
            }
            ("i", Value::Number(value)) => {
                tag(out, number, 0);
                varint(out, value.as_i64().unwrap_or_default() as u64);
            }
            ("d", Value::Number(value)) => {
                tag(out, number, 1);
                out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            ("s" | "b" | "i" | "d", _) => {}
            ("any", value) => {
                let mut any = Vec::new();
                bytes(&mut any, 2, crate::yaml::to_yaml(value).as_bytes());
                bytes(out, number, &any);
            }
            (message, value) => bytes(out, number, &self.message(message, value, depth + 1)),
        }
    }

    /// The field of a message that holds one of several kinds; None for messages that have fields of their own.
    fn choice(&self, message: &str, value: &Value) -> Option<(u32, &'static str)> {
        let reference = value.get("$ref").is_some();
        Some(match message {
            "AdditionalPropertiesItem" if value.is_boolean() => (2, "b"),
            "AdditionalPropertiesItem" => (1, self.additional),
            "SchemaItem" => (1, "Schema"),
            "SecurityDefinitionsItem" => (2, "ApiKeySecurity"),
            "ParametersItem" if reference => (2, "JsonReference"),
            "ParametersItem" => (1, "Parameter2"),
            "Parameter2" if value.get("in").is_some_and(|place| place == "body") => (1, "BodyParameter"),
            "Parameter2" => (2, "NonBodyParameter"),
            "NonBodyParameter" => match value.get("in").and_then(Value::as_str) {
                Some("header") => (1, "HeaderParameterSubSchema"),
                Some("path") => (4, "PathParameterSubSchema"),
                _ => (3, "QueryParameterSubSchema"),
            },
            "ResponseValue" if reference => (2, "JsonReference"),
            "ResponseValue" => (1, "Response"),
            "DefaultType" => match value {
                Value::Number(_) => (1, "d"),
                Value::Bool(_) => (2, "b"),
                _ => (3, "s"),
            },
            "SchemaOrReference"
            | "ParameterOrReference"
            | "RequestBodyOrReference"
            | "ResponseOrReference"
            | "SecuritySchemeOrReference"
                if reference =>
            {
                (2, "Reference")
            }
            "SchemaOrReference" => (1, "Schema"),
            "ParameterOrReference" => (1, "Parameter"),
            "RequestBodyOrReference" => (1, "RequestBody"),
            "ResponseOrReference" => (1, "Response"),
            "SecuritySchemeOrReference" => (1, "SecurityScheme"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_told_in_messages() {
        let document = json!({"swagger": "2.0", "info": {"title": "K"}, "definitions": {
            "a.B": {"type": "object", "properties": {"c": {"$ref": "#/definitions/d"}}, "x-k": [{"g": "h"}]}}});
        let bytes = v2(&document);
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(bytes.starts_with(b"\x0a\x032.0\x12\x03\x0a\x01K"), "{bytes:?}");
        // A type is a list of one text, a reference the first field of a schema.
        assert!(has(b"\xb2\x01\x08\x0a\x06object"), "{bytes:?}");
        assert!(has(b"\x0a\x0f#/definitions/d"), "{bytes:?}");
        assert!(has(b"- g: h\n"), "{bytes:?}");
        let document = json!({"openapi": "3.0.0", "paths": {"/x": {"get": {"responses": {"200": {"description": "OK",
            "content": {"application/json": {"schema": {"$ref": "#/s"}}}}}}}}});
        let bytes = v3(&document);
        assert!(bytes.starts_with(b"\x0a\x053.0.0\x22"), "{bytes:?}");
        let reference = b"\x12\x05\x0a\x03#/s";
        assert!(bytes.windows(reference.len()).any(|window| window == reference), "{bytes:?}");
    }
}

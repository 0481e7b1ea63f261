//! Encoding: JSON as Go writes it, with fields in the order of the structs and Go's escapes.

use serde_json::{Map, Value};

use crate::catalogue::{Catalogue, Item, Shape, Type, TypeId};
use crate::managed::set::Element;
use crate::zero;

/// Compact JSON, without a newline at its end.
pub fn encode_json(ty: &Type, object: &Value) -> Vec<u8> {
    let mut writer = Writer::new(Vec::with_capacity(512));
    writer.root(ty, object);
    writer.out
}

/// Indented by two spaces, without a newline at its end.
pub fn encode_json_pretty(ty: &Type, object: &Value) -> Vec<u8> {
    let mut writer = Writer { indent: Some(0), ..Writer::new(Vec::with_capacity(1024)) };
    writer.root(ty, object);
    writer.out
}

/// JSON of any value with Go's escapes and sorted keys, as for custom resources.
pub fn encode_any(value: &Value, pretty: bool) -> Vec<u8> {
    let mut writer = Writer { indent: pretty.then_some(0), ..Writer::new(Vec::with_capacity(512)) };
    writer.any(value);
    writer.out
}

/// A custom resource: its kind and metadata as every kind has them, the rest with sorted keys.
pub fn encode_custom(object: &Value) -> Vec<u8> {
    let mut writer = Writer::new(Vec::with_capacity(512));
    match object {
        Value::Object(map) => writer.custom(map),
        other => writer.any(other),
    }
    writer.out
}

/// Free-form JSON as it is kept inside protobuf, where nothing is escaped that JSON does not ask for.
pub(crate) fn encode_raw(shape: &Shape, value: &Value) -> Vec<u8> {
    let mut writer = Writer { escapes: false, ..Writer::new(Vec::with_capacity(128)) };
    match (shape, value) {
        (Shape::Fields, Value::Object(map)) => writer.owned_fields(map),
        _ => writer.any(value),
    }
    writer.out
}

/// Puts line breaks and two spaces per level into compact JSON that was encoded before.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0usize;
    let mut in_string = false;
    let mut at = 0;
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    while let Some(byte) = compact.get(at).copied() {
        at += 1;
        if in_string {
            out.push(byte);
            match byte {
                b'\\' => {
                    out.extend(compact.get(at));
                    at += 1;
                }
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                if let Some(close @ (b'}' | b']')) = compact.get(at).copied() {
                    out.push(close);
                    at += 1;
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
    }
    out
}

pub(crate) struct Writer {
    pub(crate) out: Vec<u8>,
    /// The current depth, when indenting.
    indent: Option<usize>,
    /// Go escapes what HTML could take for markup.
    escapes: bool,
    /// Where the writer is in an object that goes into the store.
    pub(crate) stored: Option<Level>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Root,
    Metadata,
    Below,
}

impl Writer {
    pub(crate) fn new(out: Vec<u8>) -> Self {
        Self { out, indent: None, escapes: true, stored: None }
    }

    /// Whether a value does not survive the store.
    fn is_lost(&self, item: &Item, value: &Value) -> bool {
        self.stored.is_some()
            && match (&item.shape, value) {
                (Shape::List(_), Value::Array(items)) => items.is_empty() && !item.wrapped,
                (Shape::Map(_), Value::Object(map)) => map.is_empty(),
                _ => false,
            }
    }

    pub(crate) fn root(&mut self, ty: &Type, object: &Value) {
        match object {
            Value::Object(map) if ty.schema().is_some() => self.custom(map),
            Value::Object(map) => self.structure(ty.catalogue(), ty.id(), map),
            other => self.any(other),
        }
    }

    fn custom(&mut self, map: &Map<String, Value>) {
        let metadata = crate::builtin().id("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        self.open(b'{');
        let mut first = true;
        for key in ["kind", "apiVersion", "metadata"] {
            let Some(value) = map.get(key) else { continue };
            self.separate(&mut first);
            self.key(key);
            match (value, metadata) {
                (Value::Object(map), Some(id)) if key == "metadata" => self.structure(crate::builtin(), id, map),
                (other, _) => self.any(other),
            }
        }
        for (key, value) in map.iter().filter(|(key, _)| !crate::structural::is_resource_field(key)) {
            self.separate(&mut first);
            self.key(key);
            self.any(value);
        }
        self.close(b'}', first);
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        if let Some(depth) = &mut self.indent {
            *depth += 1;
        }
    }

    fn close(&mut self, bracket: u8, empty: bool) {
        if let Some(depth) = &mut self.indent {
            *depth -= 1;
            if !empty {
                self.line();
            }
        }
        self.out.push(bracket);
    }

    fn line(&mut self) {
        if let Some(depth) = self.indent {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * depth, b' ');
        }
    }

    fn separate(&mut self, first: &mut bool) {
        if !std::mem::replace(first, false) {
            self.out.push(b',');
        }
        self.line();
    }

    fn key(&mut self, key: &str) {
        self.string(key);
        self.out.extend_from_slice(if self.indent.is_some() { b": " } else { b":" });
    }

    fn structure(&mut self, catalogue: &Catalogue, id: TypeId, map: &Map<String, Value>) {
        let definition = catalogue.get(id);
        if definition.preserve_unknown {
            return self.map(map);
        }
        let level = self.stored;
        if level.is_some() {
            self.stored = Some(Level::Below);
        }
        // The fields to write, in the struct's order: those that are there, and those Go always writes.
        let mut fields: Vec<(usize, Option<&Value>)> = Vec::with_capacity(map.len() + definition.always.len());
        for (key, value) in map {
            if let Some(index) = definition.field_index(key) {
                fields.push((index, Some(value)));
            }
        }
        for index in &definition.always {
            let index = usize::from(*index);
            if !map.contains_key(&*definition.fields[index].name) {
                fields.push((index, None));
            }
        }
        fields.sort_unstable_by_key(|(index, _)| *index);
        self.open(b'{');
        let mut first = true;
        for (index, value) in fields {
            let field = &definition.fields[index];
            if let Some(value) = value {
                let lost = self.is_lost(&field.item, value);
                let left_out = (field.omit_empty && (lost || zero::is_empty(&field.item, value)))
                    || (field.omit_zero && (lost || value.is_null()))
                    || (level == Some(Level::Metadata) && &*field.name == "resourceVersion");
                if left_out {
                    continue;
                }
            }
            if level == Some(Level::Root) && &*field.name == "metadata" {
                self.stored = Some(Level::Metadata);
            }
            self.separate(&mut first);
            self.key(&field.name);
            match value {
                Some(value) => self.item(catalogue, &field.item, value),
                None => self.zero(catalogue, &field.item),
            }
        }
        self.close(b'}', first);
    }

    fn zero(&mut self, catalogue: &Catalogue, item: &Item) {
        match (&item.shape, item.pointer) {
            (Shape::Struct(id), false) => self.structure(catalogue, *id, &Map::new()),
            _ => self.any(&zero::item(catalogue, item)),
        }
    }

    fn item(&mut self, catalogue: &Catalogue, item: &Item, value: &Value) {
        match (&item.shape, value) {
            _ if self.is_lost(item, value) => self.any(&Value::Null),
            (Shape::Struct(id), Value::Object(map)) => self.structure(catalogue, *id, map),
            (Shape::List(inner), Value::Array(items)) => {
                self.open(b'[');
                let mut first = true;
                for value in items {
                    self.separate(&mut first);
                    self.item(catalogue, inner, value);
                }
                self.close(b']', first);
            }
            (Shape::Map(inner), Value::Object(map)) => {
                self.open(b'{');
                let mut first = true;
                for (key, value) in map {
                    self.separate(&mut first);
                    self.key(key);
                    self.item(catalogue, inner, value);
                }
                self.close(b'}', first);
            }
            (Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings, value) => {
                self.schema_or(catalogue, value);
            }
            (Shape::Fields, Value::Object(map)) => self.owned_fields(map),
            (Shape::Struct(_) | Shape::Quantity | Shape::IntOrString, Value::Null) if !item.pointer => {
                self.zero(catalogue, item);
            }
            (_, value) => self.any(value),
        }
    }

    fn schema_or(&mut self, catalogue: &Catalogue, value: &Value) {
        let schema = catalogue.id("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        match (value, schema) {
            (Value::Object(map), Some(id)) => self.structure(catalogue, id, map),
            (Value::Array(items), Some(_)) => {
                self.open(b'[');
                let mut first = true;
                for value in items {
                    self.separate(&mut first);
                    self.schema_or(catalogue, value);
                }
                self.close(b']', first);
            }
            _ => self.any(value),
        }
    }

    fn map(&mut self, map: &Map<String, Value>) {
        self.open(b'{');
        let mut first = true;
        for (key, value) in map {
            self.separate(&mut first);
            self.key(key);
            self.any(value);
        }
        self.close(b'}', first);
    }

    /// `FieldsV1`: items of lists in the order of their keys, not of the text of them.
    fn owned_fields(&mut self, map: &Map<String, Value>) {
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        // One item alone stands where it belongs, unless there are places in a list too, which come last.
        let count = |kind: &str| map.keys().filter(|key| key.starts_with(kind)).count();
        let items = count("k:") + count("v:");
        if items > 1 || (items == 1 && count("i:") > 0) {
            entries.sort_by_cached_key(|(key, _)| (**key != ".", Element::parse(key)));
        }
        self.open(b'{');
        let mut first = true;
        for (key, value) in entries {
            self.separate(&mut first);
            self.key(key);
            match value {
                Value::Object(inner) => self.owned_fields(inner),
                other => self.any(other),
            }
        }
        self.close(b'}', first);
    }

    fn any(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                self.open(b'[');
                let mut first = true;
                for value in items {
                    self.separate(&mut first);
                    self.any(value);
                }
                self.close(b']', first);
            }
            Value::Object(map) => self.map(map),
        }
    }

    fn number(&mut self, number: &serde_json::Number) {
        match number.as_f64() {
            Some(float) if number.is_f64() => self.out.extend_from_slice(go_float(float).as_bytes()),
            _ => match number.as_i64() {
                Some(whole) => self.out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes()),
                None => self.out.extend_from_slice(number.to_string().as_bytes()),
            },
        }
    }

    fn string(&mut self, text: &str) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        self.out.push(b'"');
        let bytes = text.as_bytes();
        let mut start = 0;
        let mut at = plain(bytes, 0);
        while let Some(byte) = bytes.get(at).copied() {
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                8 => b"\\b",
                12 => b"\\f",
                b'<' | b'>' | b'&' if !self.escapes => {
                    at = plain(bytes, at + 1);
                    continue;
                }
                0..0x20 | b'<' | b'>' | b'&' => {
                    let low = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                    self.out.extend_from_slice(&bytes[start..at]);
                    self.out.extend_from_slice(b"\\u00");
                    self.out.extend_from_slice(&low);
                    start = at + 1;
                    at = plain(bytes, start);
                    continue;
                }
                // U+2028 and U+2029, which JavaScript takes for line ends.
                0xe2 if bytes.get(at + 1) == Some(&0x80) && matches!(bytes.get(at + 2), Some(0xa8 | 0xa9)) => {
                    self.out.extend_from_slice(&bytes[start..at]);
                    self.out.extend_from_slice(if bytes[at + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
                    start = at + 3;
                    at = plain(bytes, start);
                    continue;
                }
                _ => {
                    at = plain(bytes, at + 1);
                    continue;
                }
            };
            self.out.extend_from_slice(&bytes[start..at]);
            self.out.extend_from_slice(escape);
            start = at + 1;
            at = plain(bytes, start);
        }
        self.out.extend_from_slice(&bytes[start..]);
        self.out.push(b'"');
    }
}

/// The first byte at or behind `at` that may need an escape. Eight bytes at a time, since most have none.
fn plain(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const TOPS: u64 = u64::from_le_bytes([0x80; 8]);
    let holds = |word: u64, byte: u8| {
        let difference = word ^ (ONES * u64::from(byte));
        difference.wrapping_sub(ONES) & !difference & TOPS
    };
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        let found = [b'"', b'\\', b'<', b'>', b'&', 0xe2].iter().fold(control, |all, byte| all | holds(word, *byte));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at
}

/// A float as Go's JSON writes it: exponents only for the very small and the very large, without padding zeros.
pub(crate) fn go_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
            _ => text,
        };
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_escaped_as_gos() {
        let text = encode_any(&json!({"k": "<&>é\u{2028}\u{1}\n\"\\"}), false);
        assert_eq!(String::from_utf8_lossy(&text), "{\"k\":\"\\u003c\\u0026\\u003eé\\u2028\\u0001\\n\\\"\\\\\"}");
        // Whatever stands where in a group of eight bytes.
        for length in 0..20 {
            let plain = "âé\u{7f}".repeat(length);
            let text = encode_any(&json!(format!("{plain}<{plain}\n{plain}\u{2029}")), false);
            assert_eq!(String::from_utf8_lossy(&text), format!("\"{plain}\\u003c{plain}\\n{plain}\\u2029\""));
        }
    }

    #[test]
    fn owned_items_stand_in_the_order_of_their_keys() {
        let fields = json!({"f:b": {}, ".": {}, "k:{\"port\":443}": {".": {}}, "k:{\"port\":80}": {}});
        let text = encode_raw(&Shape::Fields, &fields);
        assert_eq!(
            String::from_utf8_lossy(&text),
            r#"{".":{},"f:b":{},"k:{\"port\":80}":{},"k:{\"port\":443}":{".":{}}}"#
        );
    }

    #[test]
    fn floats_are_written_as_gos() {
        for (value, text) in [(1.5, "1.5"), (1e21, "1e+21"), (1e-7, "1e-7"), (100.0, "100"), (0.000001, "0.000001")] {
            assert_eq!(go_float(value), text);
        }
    }

    #[test]
    fn indenting_agrees_with_writing_indented() {
        let value = json!({"a": [], "b": {}, "c": [1, {"d": "x,:{}[]\\\""}], "e": {"f": null}});
        assert_eq!(
            String::from_utf8_lossy(&indent(&encode_any(&value, false))),
            String::from_utf8_lossy(&encode_any(&value, true))
        );
    }
}

//! Reads well-formed JSON into the form a Go round trip through the kind's struct would give.
//!
//! Like Go, it reads on after a value of the wrong type and reports the first one.

use ferry_meta::bounds::{self, DEEPEST, ENTRY, Excess, HEAVIEST, ITEM, MAP};
use serde_json::{Map, Number, Value};

use super::base64;
use super::scan;
use crate::catalogue::{Catalogue, Field, Item, Shape, TypeId};
use crate::zero;

/// As many unknown and duplicate fields are reported.
const MAX_STRICT_ERRORS: usize = 100;
/// What such a report shows of a path and of a field's name.
const SHOWN: usize = 4096;

/// A step on the way to a value.
pub(super) enum Segment<'s> {
    Field(&'s str),
    Item(usize),
}

pub(crate) struct Reader<'i, 'c> {
    pub(super) input: &'i [u8],
    pub(super) at: usize,
    pub(super) catalogue: &'c Catalogue,
    /// Collect unknown and duplicate fields.
    pub(super) strict: bool,
    pub(crate) strict_errors: Vec<String>,
    /// The first value of a wrong type, in Go's words; or what a type with a reader of its own found.
    pub(crate) error: Option<String>,
    /// Such a reader ended the decoding: Go goes on behind a value of a wrong type, and stops here.
    ended: bool,
    /// `spec.containers[0].` of the place being read.
    path: String,
    /// JSON names of the struct fields being read, and the innermost struct: Go's errors name both.
    stack: Vec<(TypeId, &'c str)>,
    within: &'c str,
    depth: usize,
    /// What the value takes so far. It can be more than its text says: Go writes fields that no client did.
    weight: usize,
    /// Duplicate keys count in free-form values too: they are what is being read, not a part of an object.
    pub(super) watches_free_form: bool,
}

impl<'i, 'c> Reader<'i, 'c> {
    pub(crate) fn new(input: &'i [u8], catalogue: &'c Catalogue, strict: bool) -> Self {
        Self {
            input,
            at: 0,
            catalogue,
            strict,
            strict_errors: Vec::new(),
            error: None,
            ended: false,
            path: String::new(),
            stack: Vec::new(),
            within: "",
            depth: 0,
            weight: input.len(),
            watches_free_form: false,
        }
    }

    /// Counts what was made. Nothing more is read once it is too much.
    pub(super) fn weigh(&mut self, bytes: usize) {
        self.weight += bytes;
        if self.is_too_large() {
            self.at = self.input.len();
        }
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.weight > HEAVIEST
    }

    /// The whole text as a value of this type; `null` is the zero value.
    pub(crate) fn root(&mut self, id: TypeId) -> Value {
        let definition = self.catalogue.get(id);
        match self.peek() {
            b'{' => Value::Object(self.object(id, Map::new())),
            b'n' => zero::structure(self.catalogue, id),
            _ => {
                let found = self.found();
                self.type_error(found, &definition.go_name);
                Value::Null
            }
        }
    }

    pub(super) fn peek(&mut self) -> u8 {
        self.at = scan::skip_space(self.input, self.at);
        self.input.get(self.at).copied().unwrap_or(b'n')
    }

    pub(super) fn skip(&mut self) -> &'i [u8] {
        self.at = scan::skip_space(self.input, self.at);
        let start = self.at;
        self.at = scan::skip_value(self.input, start);
        self.input.get(start..self.at).unwrap_or_default()
    }

    pub(super) fn string(&mut self) -> String {
        let (text, end) = scan::read_string(self.input, self.at);
        self.at = end;
        text
    }

    /// What Go calls the value that stands here.
    fn found(&mut self) -> &'static str {
        match self.peek() {
            b'{' => "object",
            b'[' => "array",
            b'"' => "string",
            b't' | b'f' => "bool",
            b'n' => "null",
            _ => "number",
        }
    }

    pub(super) fn save(&mut self, error: String) {
        if self.error.is_none() {
            self.error = Some(error);
        }
    }

    /// The mistake of a type with a reader of its own counts more than any value of a wrong type before it.
    fn end(&mut self, error: String) {
        if !self.ended {
            self.error = Some(error);
            self.ended = true;
        }
    }

    /// Reads what has a reader of its own.
    fn apart<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        if self.ended {
            return read(self);
        }
        let before = self.error.take();
        let value = read(self);
        if self.error.is_some() {
            self.ended = true;
        } else {
            self.error = before;
        }
        value
    }

    fn type_error(&mut self, value: &str, go_type: &str) {
        if self.error.is_some() {
            return;
        }
        self.error = Some(if self.within.is_empty() {
            format!("json: cannot unmarshal {value} into Go value of type {go_type}")
        } else {
            let named = |(id, name): &(TypeId, &'c str)| self.catalogue.go_path(*id, name).join(".");
            let fields = self.stack.iter().map(named).collect::<Vec<_>>().join(".");
            format!("json: cannot unmarshal {value} into Go struct field {}.{fields} of type {go_type}", self.within)
        });
    }

    pub(super) fn strict_error(&mut self, what: &str, key: &str) {
        if !self.strict || self.strict_errors.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let path = bounds::cut(self.path.strip_prefix('.').unwrap_or(&self.path), SHOWN);
        let dot = if path.is_empty() { "" } else { "." };
        let key = bounds::cut(key, SHOWN);
        let error = format!("{what} field {}", crate::text::quote(&format!("{path}{dot}{key}")));
        if !self.strict_errors.contains(&error) {
            self.strict_errors.push(error);
        }
    }

    /// Runs on one nested value with the path extended; refuses what is nested too deeply.
    pub(super) fn nested<T>(&mut self, segment: Segment<'_>, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        use std::fmt::Write;
        if self.depth >= DEEPEST {
            self.skip();
            self.save(Excess::Depth.to_string());
            return None;
        }
        let length = self.path.len();
        match segment {
            Segment::Field(name) => {
                self.path.push('.');
                self.path.push_str(name);
            }
            Segment::Item(index) => drop(write!(self.path, "[{index}]")),
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        self.path.truncate(length);
        Some(result)
    }

    pub(super) fn object(&mut self, id: TypeId, mut map: Map<String, Value>) -> Map<String, Value> {
        let catalogue = self.catalogue;
        let definition = catalogue.get(id);
        let mut seen = 0u128;
        let inherits = !map.is_empty();
        self.at += 1;
        while self.peek() == b'"' {
            let key = self.string();
            self.peek();
            self.at += 1; // the colon
            match definition.field_index(&key) {
                None if definition.preserve_unknown => {
                    let value = self.nested(Segment::Field(&key), Self::any).unwrap_or_default();
                    map.insert(key, value);
                }
                None => {
                    self.strict_error("unknown", &key);
                    self.skip();
                }
                Some(index) => {
                    let bit = 1u128.checked_shl(index as u32).unwrap_or(0);
                    if seen & bit != 0 {
                        self.strict_error("duplicate", &key);
                    }
                    // A field beyond the width of the bits may be there as well.
                    let before = if inherits || seen & bit != 0 || bit == 0 { map.remove(&key) } else { None };
                    seen |= bit;
                    self.field(id, &definition.fields[index], key, before, &mut map);
                }
            }
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        zero::fill(catalogue, id, &mut map);
        if !map.is_empty() {
            self.weigh(MAP + ENTRY * map.len());
        }
        map
    }

    fn field(
        &mut self,
        of: TypeId,
        field: &'c Field,
        key: String,
        before: Option<Value>,
        map: &mut Map<String, Value>,
    ) {
        if self.peek() == b'n' {
            self.skip();
            // Null leaves a plain value as it is and takes away what can be absent.
            let keeps = !field.item.pointer
                && !matches!(field.item.shape, Shape::List(_) | Shape::Map(_) | Shape::Bytes | Shape::Quantity)
                && !field.item.shape.is_any();
            if let (true, Some(before)) = (keeps, before) {
                map.insert(key, before);
            }
            return;
        }
        let catalogue = self.catalogue;
        let (outer, depth) = (std::mem::replace(&mut self.within, &catalogue.get(of).leaf), self.stack.len());
        self.stack.push((of, &field.name));
        let value = self.nested(Segment::Field(&key), |reader| reader.value(&field.item, before)).flatten();
        self.stack.truncate(depth);
        self.within = outer;
        // An empty list of managed fields asks for them to be cleared: it must be told from an absent one.
        let dropped = |value: &Value| {
            field.omit_empty && zero::is_empty(&field.item, value) && !zero::keeps_empty(catalogue.get(of), &key)
        };
        if let Some(value) = value
            && !dropped(&value)
        {
            map.insert(key, value);
        }
    }

    /// A value that is not null; None if it is of the wrong type or means null.
    fn value(&mut self, item: &'c Item, before: Option<Value>) -> Option<Value> {
        let start = self.peek();
        match (&item.shape, start) {
            (Shape::Struct(id), b'{') => {
                let before = if let Some(Value::Object(map)) = before { map } else { Map::new() };
                return Some(Value::Object(self.object(*id, before)));
            }
            (Shape::Map(inner), b'{') => {
                let before = if let Some(Value::Object(map)) = before { map } else { Map::new() };
                return Some(Value::Object(self.map(inner, before)));
            }
            (Shape::List(inner), b'[') => return Some(self.list(inner)),
            (Shape::String | Shape::Duration, b'"') => return Some(Value::String(self.string())),
            (Shape::Bool, b't' | b'f') => {
                self.skip();
                return Some(Value::Bool(start == b't'));
            }
            (Shape::Bytes, b'"') => return self.bytes(),
            (Shape::Bytes, b'[') => return Some(self.numbers()),
            (Shape::Time | Shape::MicroTime, b'"') => {
                let text = self.string();
                let parsed = if item.shape == Shape::Time {
                    crate::go_time::time(&text)
                } else {
                    crate::go_time::micro_time(&text)
                };
                return match parsed {
                    Ok(value) => value.map(Value::String),
                    Err(error) => {
                        self.end(error.to_string());
                        None
                    }
                };
            }
            (Shape::Quantity, _) => return self.quantity(),
            (Shape::IntOrString, b'"') => return Some(Value::String(self.string())),
            (shape, _) if shape.is_any() => return Some(self.any()),
            (Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings, _) => {
                return self.apart(|reader| reader.schema_or(&item.shape));
            }
            (_, b'-' | b'0'..=b'9') => {
                let read = |reader: &mut Self| reader.number(item);
                if let Some(value) = if item.shape == Shape::IntOrString { self.apart(read) } else { read(self) } {
                    return value;
                }
            }
            _ => {}
        }
        let found = self.found();
        let refuse = |reader: &mut Self| reader.type_error(found, &item.go_type);
        match item.shape {
            Shape::Time | Shape::MicroTime | Shape::Duration | Shape::IntOrString => self.apart(refuse),
            _ => refuse(self),
        }
        self.skip();
        None
    }

    /// None where a number does not belong.
    fn number(&mut self, item: &'c Item) -> Option<Option<Value>> {
        let at = self.at;
        let text = std::str::from_utf8(self.skip()).unwrap_or_default();
        let number = match item.shape {
            Shape::Int32 | Shape::IntOrString => text.parse::<i32>().ok().map(Number::from),
            Shape::Int64 => text.parse::<i64>().ok().map(Number::from),
            Shape::Uint32 => text.parse::<u32>().ok().map(Number::from),
            Shape::Uint64 => text.parse::<u64>().ok().map(Number::from),
            Shape::Float => text.parse::<f64>().ok().filter(|f| f.is_finite()).and_then(float),
            _ => {
                self.at = at;
                return None;
            }
        };
        if number.is_none() {
            self.type_error(&format!("number {text}"), &item.go_type);
        }
        Some(number.map(Value::Number))
    }

    fn quantity(&mut self) -> Option<Value> {
        let text = if self.peek() == b'"' { self.string() } else { String::from_utf8_lossy(self.skip()).into_owned() };
        match crate::quantity::canonical(text.trim()) {
            Ok(canonical) => Some(Value::String(canonical)),
            Err(error) => {
                self.end(error.to_string());
                None
            }
        }
    }

    fn bytes(&mut self) -> Option<Value> {
        let text = self.string();
        match base64::decode(&text) {
            Ok(bytes) => Some(Value::String(base64::encode(&bytes))),
            Err(error) => {
                self.save(error);
                None
            }
        }
    }

    /// Bytes one by one: to Go they are a list of numbers as well.
    fn numbers(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.at += 1;
        while self.peek() != b']' && self.at < self.input.len() {
            let found = self.found();
            let text = std::str::from_utf8(self.skip()).unwrap_or_default();
            let byte = text.parse::<u8>().ok();
            if byte.is_none() && found != "null" {
                let shown = if found == "number" { format!("number {text}") } else { found.to_owned() };
                self.type_error(&shown, "uint8");
            }
            bytes.push(byte.unwrap_or_default());
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Value::String(base64::encode(&bytes))
    }

    fn list(&mut self, inner: &'c Item) -> Value {
        let mut items = Vec::new();
        self.at += 1;
        while self.peek() != b']' && self.at < self.input.len() {
            let value = if self.peek() == b'n' {
                self.skip();
                None
            } else {
                self.nested(Segment::Item(items.len()), |reader| reader.value(inner, None)).flatten()
            };
            items.push(value.unwrap_or_else(|| zero::item(self.catalogue, inner)));
            self.weigh(ITEM);
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        Value::Array(items)
    }

    fn map(&mut self, inner: &'c Item, mut map: Map<String, Value>) -> Map<String, Value> {
        let mut seen = Map::new();
        self.at += 1;
        while self.peek() == b'"' {
            let key = self.string();
            self.peek();
            self.at += 1;
            if seen.contains_key(&key) {
                self.strict_error("duplicate", &key);
            }
            let value = if self.peek() == b'n' {
                self.skip();
                None
            } else {
                self.nested(Segment::Field(&key), |reader| reader.value(inner, None)).flatten()
            };
            self.weigh(if seen.is_empty() { MAP + ENTRY } else { ENTRY });
            // No bytes are stored as none.
            let zero = || match inner.shape {
                Shape::Bytes => Value::String(String::new()),
                _ => zero::item(self.catalogue, inner),
            };
            seen.insert(key, value.unwrap_or_else(zero));
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        if map.is_empty() {
            return seen;
        }
        map.append(&mut seen);
        map
    }
}

/// Go writes whole floats without a fraction.
pub(crate) fn float(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() < 9e15 { Some(Number::from(value as i64)) } else { Number::from_f64(value) }
}

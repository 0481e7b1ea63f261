//! Protobuf to JSON.

use std::cell::Cell;

use base64::Engine;
use ferry_meta::bounds::{DEEPEST, ENTRY, Excess, Extent, HEAVIEST, ITEM, MAP};
use serde_json::{Map, Value};

use super::ProtoError;
use super::wire::{Raw, Reader};
use crate::catalogue::{Catalogue, Declared, Item, Shape, TypeDef, TypeId};
use crate::zero;

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Depths are those of the values: a message in a list stands two levels below the one that has the list.
pub(super) struct Decoder<'c> {
    catalogue: &'c Catalogue,
    /// What was made so far.
    weight: Cell<usize>,
}

type Read<T> = Result<T, ProtoError>;

impl<'c> Decoder<'c> {
    pub(super) fn new(catalogue: &'c Catalogue, length: usize) -> Self {
        Self { catalogue, weight: Cell::new(length) }
    }

    fn weigh(&self, bytes: usize) -> Read<()> {
        let weight = self.weight.get() + bytes;
        self.weight.set(weight);
        if weight > HEAVIEST { Err(ProtoError::TooLarge(Excess::Weight)) } else { Ok(()) }
    }

    pub(super) fn structure(&self, id: TypeId, bytes: &[u8], depth: usize) -> Read<Value> {
        let mut map = Map::new();
        self.fields(id, bytes, &mut map, depth)?;
        zero::fill(self.catalogue, id, &mut map);
        if !map.is_empty() {
            self.weigh(MAP + ENTRY * map.len())?;
        }
        Ok(Value::Object(map))
    }

    /// Reads a message's fields into a map; inlined structs share it.
    fn fields(&self, id: TypeId, bytes: &[u8], map: &mut Map<String, Value>, depth: usize) -> Read<()> {
        // The fields stand a level below.
        if depth >= DEEPEST {
            return Err(ProtoError::Malformed("exceeded max depth"));
        }
        let definition = self.catalogue.get(id);
        let mut reader = Reader::new(bytes);
        while let Some((number, raw)) = reader.field()? {
            match declared(definition, number) {
                None => {}
                // An inlined struct has no inlined struct of its own kind: this ends with the types.
                Some(Declared::Inline { id, .. }) => self.fields(*id, raw.bytes()?, map, depth)?,
                Some(Declared::Field(index)) => {
                    let field = &definition.fields[*index];
                    self.field(&field.item, &field.name, raw, map, depth)?;
                    let empty = |value: &Value| field.omit_empty && zero::is_empty(&field.item, value);
                    if map.get(&*field.name).is_some_and(empty) {
                        map.remove(&*field.name);
                    }
                }
            }
        }
        Ok(())
    }

    fn field(&self, item: &'c Item, name: &str, raw: Raw<'_>, map: &mut Map<String, Value>, depth: usize) -> Read<()> {
        match &item.shape {
            Shape::List(inner) if !item.wrapped => {
                let list = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else { return Ok(()) };
                let packed = matches!(inner.shape, Shape::Bool | Shape::Int32 | Shape::Int64);
                if let (true, Raw::Bytes(bytes)) = (packed, raw) {
                    let mut reader = Reader::new(bytes);
                    while !reader.is_empty() {
                        self.weigh(ITEM)?;
                        list.push(self.value(inner, Raw::Varint(reader.varint()?), depth + 2)?);
                    }
                } else {
                    self.weigh(ITEM)?;
                    list.push(self.value(inner, raw, depth + 2)?);
                }
            }
            Shape::Map(inner) => {
                let mut key = String::new();
                let mut value = None;
                let mut reader = Reader::new(raw.bytes()?);
                while let Some((number, raw)) = reader.field()? {
                    match number {
                        1 => key = raw.text()?,
                        2 => value = Some(self.value(inner, raw, depth + 2)?),
                        _ => {}
                    }
                }
                let entries = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(entries) = entries {
                    self.weigh(if entries.is_empty() { MAP + ENTRY } else { ENTRY })?;
                    entries.insert(key, value.unwrap_or_else(|| zero::item(self.catalogue, inner)));
                }
            }
            _ => {
                let value = self.value(item, raw, depth + 1)?;
                if value.is_null() {
                    map.remove(name);
                } else {
                    map.insert(name.to_owned(), value);
                }
            }
        }
        Ok(())
    }

    /// A value that stands at this depth.
    fn value(&self, item: &'c Item, raw: Raw<'_>, depth: usize) -> Read<Value> {
        Ok(match &item.shape {
            Shape::String => Value::String(raw.text()?),
            Shape::Bool => Value::Bool(raw.integer()? != 0),
            Shape::Int32 => Value::from(raw.integer()? as i32),
            Shape::Int64 => Value::from(raw.integer()?),
            Shape::Uint32 => Value::from(raw.integer()? as u32),
            Shape::Uint64 => Value::from(raw.integer()? as u64),
            Shape::Float => crate::decode::float(raw.double()?).map_or(Value::Null, Value::Number),
            Shape::Bytes => Value::String(base64::engine::general_purpose::STANDARD.encode(raw.bytes()?)),
            Shape::Quantity => {
                let text = single(raw, 1)?.map(|r| r.text()).transpose()?.unwrap_or_default();
                let canonical = if text.is_empty() { Ok("0".into()) } else { crate::quantity::canonical(&text) };
                Value::String(canonical.map_err(|e| ProtoError::Type(e.to_string()))?)
            }
            Shape::Time | Shape::MicroTime => time(raw, item.shape == Shape::MicroTime)?,
            Shape::Duration => {
                let nanos = single(raw, 1)?.map(Raw::integer).transpose()?.unwrap_or_default();
                Value::String(ferry_semantics::duration::show(nanos))
            }
            Shape::IntOrString => int_or_string(raw)?,
            Shape::Raw | Shape::Fields | Shape::Json | Shape::Any => match single(raw, 1)? {
                None => Value::Null,
                Some(raw) => self.free_form(raw.bytes()?, depth)?,
            },
            Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => {
                self.schema_or(&item.shape, raw, depth)?
            }
            Shape::Struct(id) => self.structure(*id, raw.bytes()?, depth)?,
            Shape::List(inner) => {
                let mut list = Vec::new();
                let mut reader = Reader::new(raw.bytes()?);
                while let Some((number, raw)) = reader.field()? {
                    if number == 1 {
                        self.weigh(ITEM)?;
                        list.push(self.value(inner, raw, depth + 1)?);
                    }
                }
                Value::Array(list)
            }
            Shape::Map(_) => Value::Null,
        })
    }

    fn schema_or(&self, shape: &Shape, raw: Raw<'_>, depth: usize) -> Read<Value> {
        let Some(schema) = self.catalogue.id(SCHEMA) else { return Ok(Value::Null) };
        let mut found = match shape {
            Shape::SchemaOrBool => Value::Bool(false),
            _ => Value::Null,
        };
        let mut list: Option<Vec<Value>> = None;
        let mut reader = Reader::new(raw.bytes()?);
        while let Some((number, raw)) = reader.field()? {
            match (shape, number) {
                (Shape::SchemaOrBool, 1) if !found.is_object() => found = Value::Bool(raw.integer()? != 0),
                (Shape::SchemaOrBool, 2) | (Shape::SchemaOrArray | Shape::SchemaOrStrings, 1) => {
                    found = self.structure(schema, raw.bytes()?, depth)?;
                }
                (Shape::SchemaOrArray, 2) => {
                    self.weigh(ITEM)?;
                    list.get_or_insert_default().push(self.structure(schema, raw.bytes()?, depth + 1)?);
                }
                (Shape::SchemaOrStrings, 2) => list.get_or_insert_default().push(Value::String(raw.text()?)),
                _ => {}
            }
        }
        Ok(list.map_or(found, Value::Array))
    }

    fn free_form(&self, bytes: &[u8], depth: usize) -> Read<Value> {
        let value = crate::decode::any(bytes).map_err(|error| ProtoError::Type(error.to_string()))?;
        let extent = Extent::of(&value);
        self.weigh(extent.weight)?;
        if depth + extent.depth > DEEPEST {
            return Err(ProtoError::Malformed("exceeded max depth"));
        }
        Ok(value)
    }
}

fn declared(definition: &TypeDef, number: u32) -> Option<&Declared> {
    let at = definition.numbered.binary_search_by_key(&number, |(n, _)| *n).ok()?;
    definition.declared.get(usize::from(definition.numbered[at].1))
}

/// One field of a small message.
fn single(raw: Raw<'_>, wanted: u32) -> Read<Option<Raw<'_>>> {
    let mut reader = Reader::new(raw.bytes()?);
    let mut found = None;
    while let Some((number, raw)) = reader.field()? {
        if number == wanted {
            found = Some(raw);
        }
    }
    Ok(found)
}

fn time(raw: Raw<'_>, micro: bool) -> Read<Value> {
    let bytes = raw.bytes()?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        match number {
            1 => seconds = raw.integer()?,
            2 => nanos = raw.integer()?,
            _ => {}
        }
    }
    let nanos = i32::try_from(nanos.clamp(0, 999_999_999)).unwrap_or(0);
    let shown = crate::go_time::of_unix(seconds, nanos, micro);
    shown.map(Value::String).ok_or(ProtoError::Malformed("proto: time out of range"))
}

fn int_or_string(raw: Raw<'_>) -> Read<Value> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    let mut reader = Reader::new(raw.bytes()?);
    while let Some((field, raw)) = reader.field()? {
        match field {
            1 => is_text = raw.integer()? != 0,
            2 => number = raw.integer()?,
            3 => text = raw.text()?,
            _ => {}
        }
    }
    Ok(if is_text { Value::String(text) } else { Value::from(number as i32) })
}

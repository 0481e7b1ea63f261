//! JSON to protobuf.

use base64::Engine;
use serde_json::{Map, Value};

use super::wire::Writer;
use crate::catalogue::{Catalogue, Declared, Item, Shape, TypeId};

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

pub(super) struct Encoder<'c> {
    pub(super) catalogue: &'c Catalogue,
    pub(super) writer: Writer,
}

impl AsMut<Writer> for Encoder<'_> {
    fn as_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl<'c> Encoder<'c> {
    pub(super) fn structure(&mut self, id: TypeId, map: &Map<String, Value>) {
        let definition = self.catalogue.get(id);
        for (number, index) in &definition.numbered {
            match &definition.declared[usize::from(*index)] {
                Declared::Inline { id, .. } => Writer::message(self, *number, |e| e.structure(*id, map)),
                Declared::Field(field) => {
                    let field = &definition.fields[*field];
                    self.field(*number, &field.item, map.get(&*field.name).filter(|v| !v.is_null()));
                }
            }
        }
    }

    /// Absent values are written where Go holds them by value.
    fn field(&mut self, number: u32, item: &'c Item, value: Option<&Value>) {
        match (&item.shape, value) {
            (Shape::List(inner), value) if item.wrapped => {
                if let Some(Value::Array(items)) = value {
                    Writer::message(self, number, |e| e.items(1, inner, items));
                }
            }
            (Shape::List(inner), Some(Value::Array(items))) => self.items(number, inner, items),
            (Shape::Map(inner), Some(Value::Object(map))) => {
                for (key, value) in map {
                    Writer::message(self, number, |e| {
                        e.writer.string(1, key);
                        e.value(2, inner, Some(value));
                    });
                }
            }
            (Shape::List(_) | Shape::Map(_), _) => {}
            (_, None) if item.pointer => {}
            (Shape::Bytes, None) => {}
            (_, value) => self.value(number, item, value),
        }
    }

    fn items(&mut self, number: u32, inner: &'c Item, items: &[Value]) {
        for value in items {
            self.value(number, inner, Some(value));
        }
    }

    fn value(&mut self, number: u32, item: &'c Item, value: Option<&Value>) {
        let text = || value.and_then(Value::as_str).unwrap_or_default();
        match &item.shape {
            Shape::String => self.writer.string(number, text()),
            Shape::Bool => self.writer.integer(number, i64::from(value.and_then(Value::as_bool).unwrap_or_default())),
            Shape::Int32 | Shape::Int64 | Shape::Uint32 => self.writer.integer(number, integer(value)),
            Shape::Uint64 => self.writer.integer(number, value.and_then(Value::as_u64).unwrap_or_default() as i64),
            Shape::Float => self.writer.double(number, value.and_then(Value::as_f64).unwrap_or_default()),
            Shape::Bytes => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text()).unwrap_or_default();
                self.writer.bytes(number, &bytes);
            }
            Shape::Quantity => {
                let text = if text().is_empty() { "0" } else { text() };
                Writer::message(self, number, |e| e.writer.string(1, text));
            }
            Shape::Time | Shape::MicroTime => {
                let at = crate::go_time::unix(text());
                let micro = item.shape == Shape::MicroTime;
                Writer::message(self, number, |e| {
                    if let Some((seconds, nanos)) = at {
                        e.writer.integer(1, seconds);
                        e.writer.integer(2, if micro { i64::from(nanos) / 1000 * 1000 } else { 0 });
                    }
                });
            }
            Shape::Duration => {
                let nanos = ferry_semantics::duration::parse(text()).unwrap_or(0);
                Writer::message(self, number, |e| e.writer.integer(1, nanos));
            }
            Shape::IntOrString => {
                let is_text = value.is_some_and(Value::is_string);
                Writer::message(self, number, |e| {
                    e.writer.integer(1, i64::from(is_text));
                    e.writer.integer(2, integer(value));
                    e.writer.string(3, text());
                });
            }
            Shape::Raw | Shape::Fields | Shape::Json | Shape::Any => {
                let raw = value.filter(|v| !v.is_null()).map(|v| crate::encode::encode_raw(&item.shape, v));
                Writer::message(self, number, |e| {
                    if let Some(raw) = raw {
                        e.writer.bytes(1, &raw);
                    }
                });
            }
            Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings => {
                Writer::message(self, number, |e| e.schema_or(&item.shape, value));
            }
            Shape::Struct(id) => {
                let empty = Map::new();
                let map = value.and_then(Value::as_object).unwrap_or(&empty);
                Writer::message(self, number, |e| e.structure(*id, map));
            }
            Shape::List(inner) => {
                if let (true, Some(Value::Array(items))) = (item.wrapped, value) {
                    Writer::message(self, number, |e| e.items(1, inner, items));
                }
            }
            Shape::Map(_) => {}
        }
    }

    fn schema_or(&mut self, shape: &Shape, value: Option<&Value>) {
        let Some(schema) = self.catalogue.id(SCHEMA) else { return };
        match (shape, value) {
            (Shape::SchemaOrArray | Shape::SchemaOrStrings, Some(Value::Object(map))) => {
                Writer::message(self, 1, |e| e.structure(schema, map));
            }
            (Shape::SchemaOrArray, Some(Value::Array(items))) => {
                for map in items.iter().filter_map(Value::as_object) {
                    Writer::message(self, 2, |e| e.structure(schema, map));
                }
            }
            (Shape::SchemaOrStrings, Some(Value::Array(items))) => {
                items.iter().filter_map(Value::as_str).for_each(|text| self.writer.string(2, text));
            }
            (Shape::SchemaOrBool, Some(Value::Object(map))) => {
                self.writer.integer(1, 1);
                Writer::message(self, 2, |e| e.structure(schema, map));
            }
            (Shape::SchemaOrBool, value) => {
                self.writer.integer(1, i64::from(value.and_then(Value::as_bool).unwrap_or_default()));
            }
            _ => {}
        }
    }
}

fn integer(value: Option<&Value>) -> i64 {
    value.and_then(Value::as_i64).unwrap_or_default()
}

//! Values without a type of their own, and the unions of `JSONSchemaProps`, which read themselves.

use ferry_meta::bounds::{ENTRY, ITEM, MAP};
use serde_json::{Map, Number, Value};

use super::typed::{Reader, Segment};
use crate::catalogue::Shape;

impl Reader<'_, '_> {
    /// The whole text as a free-form value.
    pub(crate) fn free_form(&mut self) -> Value {
        self.watches_free_form = true;
        self.any()
    }

    /// A free-form value, as it is.
    pub(super) fn any(&mut self) -> Value {
        match self.peek() {
            b'{' => {
                let mut map = Map::new();
                self.at += 1;
                while self.peek() == b'"' {
                    let key = self.string();
                    self.peek();
                    self.at += 1;
                    if self.watches_free_form && map.contains_key(&key) {
                        self.strict_error("duplicate", &key);
                    }
                    let value = self.nested(Segment::Field(&key), Self::any).unwrap_or_default();
                    self.weigh(if map.is_empty() { MAP + ENTRY } else { ENTRY });
                    map.insert(key, value);
                    if self.peek() == b',' {
                        self.at += 1;
                    }
                }
                self.at += 1;
                Value::Object(map)
            }
            b'[' => {
                let mut items = Vec::new();
                self.at += 1;
                while self.peek() != b']' && self.at < self.input.len() {
                    let value = self.nested(Segment::Item(items.len()), Self::any).unwrap_or_default();
                    items.push(value);
                    self.weigh(ITEM);
                    if self.peek() == b',' {
                        self.at += 1;
                    }
                }
                self.at += 1;
                Value::Array(items)
            }
            b'"' => Value::String(self.string()),
            b't' => {
                self.skip();
                Value::Bool(true)
            }
            b'f' => {
                self.skip();
                Value::Bool(false)
            }
            b'n' => {
                self.skip();
                Value::Null
            }
            _ => serde_json::from_slice::<Number>(self.skip()).map_or(Value::Null, Value::Number),
        }
    }

    /// The unions of `JSONSchemaProps`. Their Go types read themselves, and not strictly.
    pub(super) fn schema_or(&mut self, shape: &Shape) -> Option<Value> {
        let strict = std::mem::replace(&mut self.strict, false);
        let start = self.peek();
        let schema = self.catalogue.id("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        let result = match (shape, start, schema) {
            (_, b'{', Some(id)) => Some(Value::Object(self.object(id, Map::new()))),
            (Shape::SchemaOrArray, b'[', _) | (Shape::SchemaOrStrings, b'[', _) => {
                let mut items = Vec::new();
                self.at += 1;
                while self.peek() != b']' && self.at < self.input.len() {
                    let value = self.nested(Segment::Item(items.len()), |reader| match (reader.peek(), schema) {
                        (b'{', Some(id)) => Value::Object(reader.object(id, Map::new())),
                        _ => reader.any(),
                    });
                    items.extend(value);
                    self.weigh(ITEM);
                    if self.peek() == b',' {
                        self.at += 1;
                    }
                }
                self.at += 1;
                Some(Value::Array(items))
            }
            (Shape::SchemaOrBool, b't' | b'f', _) => {
                self.skip();
                Some(Value::Bool(start == b't'))
            }
            _ => {
                self.skip();
                if *shape == Shape::SchemaOrBool {
                    self.save("boolean or JSON schema expected".to_owned());
                }
                None
            }
        };
        self.strict = strict;
        result
    }
}

//! Lists of type set and map have every item once.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path};
use serde_json::{Map, Value};

use super::Schema;
use crate::catalogue::ListType;

impl Schema {
    /// Items that stand twice where they may not.
    pub fn duplicates(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        walk(self, object, &Path::root(), &mut errors);
        errors
    }
}

fn walk(schema: &Schema, value: &Value, path: &Path, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(of) = schema.at(key) {
                    walk(of, value, &path.child(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    let mut seen = HashSet::new();
                    for (index, item) in items.iter().enumerate().filter(|(_, item)| !seen.insert(*item)) {
                        errors.push(FieldError::duplicate(&path.index(index), item.clone()));
                    }
                }
                ListType::Map => {
                    let mut seen = HashSet::new();
                    for (index, item) in
                        items.iter().enumerate().filter(|(_, item)| !seen.insert(known_by(schema, item)))
                    {
                        errors.push(FieldError::duplicate(&path.index(index), key_of(schema, item)));
                    }
                }
            }
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(of, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// The part of an item that tells it from others.
fn key_of(schema: &Schema, item: &Value) -> Value {
    let mut key = Map::new();
    for name in &schema.list_keys {
        if let Some(value) = item.get(name) {
            key.insert(name.clone(), value.clone());
        }
    }
    Value::Object(key)
}

/// The same, without making anything of it.
pub(super) fn known_by<'v>(schema: &Schema, item: &'v Value) -> Vec<Option<&'v Value>> {
    schema.list_keys.iter().map(|name| item.get(name)).collect()
}

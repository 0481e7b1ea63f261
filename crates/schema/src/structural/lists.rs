//! Lists of type set and map have every item once.

use std::collections::HashMap;
use std::hash::Hash;

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
                    for index in second_times(items.iter()) {
                        errors.push(FieldError::duplicate(&path.index(index), items[index].clone()));
                    }
                }
                ListType::Map => maps(schema, items, path, errors),
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

/// Items of a list with keys: maps alone have some, and nothing else is said where one is none.
fn maps(schema: &Schema, items: &[Value], path: &Path, errors: &mut FieldErrors) {
    let stray = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(index) = stray {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(index), items[index].clone(), detail));
        return;
    }
    for index in second_times(items.iter().map(|item| known_by(schema, item))) {
        errors.push(FieldError::duplicate(&path.index(index), key_of(schema, &items[index])));
    }
}

/// Where something stands for the second time. A third time is not told.
fn second_times<T: Eq + Hash>(items: impl Iterator<Item = T>) -> Vec<usize> {
    let mut seen: HashMap<T, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
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

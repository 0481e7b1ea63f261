//! Pruning and defaulting.

use serde_json::{Map, Value};

use super::{Additional, Schema, is_resource_field};

impl Schema {
    /// Takes out of an object what the schema does not know; the paths of it, in order.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune(self, object, true, "", &mut unknown);
        unknown.sort();
        unknown
    }

    /// Fills in defaults, and takes out nulls where none may be.
    pub fn fill_defaults(&self, object: &mut Value) {
        drop_nulls(self, object);
        self.fill_in(object);
    }

    /// Fills in defaults alone.
    pub fn fill_in(&self, object: &mut Value) {
        if let Value::Object(map) = object {
            // Metadata has no defaults of a definition's.
            fill_map(self, map);
        }
    }
}

fn prune(schema: &Schema, value: &mut Value, resource: bool, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let resource = resource || schema.embedded;
            map.retain(|key, value| {
                if resource && is_resource_field(key) {
                    return true;
                }
                let below = || if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if let Some(of) = schema.at(key) {
                    prune(of, value, false, &below(), unknown);
                    return true;
                }
                let kept = schema.preserve_unknown || matches!(schema.additional, Additional::Anything);
                if !kept {
                    unknown.push(below());
                }
                kept
            });
        }
        Value::Array(items) => {
            let Some(of) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                prune(of, item, false, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let Some(of) = schema.at(key) else { return true };
            if value.is_null() {
                return of.nullable || of.default.is_some();
            }
            drop_nulls(of, value);
            true
        }),
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls(of, item));
            }
        }
        _ => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => fill_map(schema, map),
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                items.iter_mut().for_each(|item| fill_or_default(of, item));
            }
        }
        _ => {}
    }
}

fn fill_map(schema: &Schema, map: &mut Map<String, Value>) {
    for (key, of) in &schema.properties {
        if let Some(default) = &of.default
            && map.get(key).is_none_or(|value| value.is_null() && !of.nullable)
        {
            map.insert(key.clone(), default.clone());
        }
    }
    for (key, value) in map.iter_mut() {
        if let Some(of) = schema.at(key) {
            fill_or_default(of, value);
        }
    }
}

/// An item or a map's value that is null where it may not be takes the default, if there is one.
fn fill_or_default(schema: &Schema, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
    fill(schema, value);
}

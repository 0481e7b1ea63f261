//! Pruning and defaulting.

use ferry_meta::bounds::{ENTRY, Extent, HEAVIEST, MAP};
use serde_json::{Map, Value};

use super::trail::Trail;
use super::{Additional, Schema, is_resource_field};

/// As many unknown fields are told.
const MOST_UNKNOWN: usize = 1000;

impl Schema {
    /// Takes out of an object what the schema does not know; the paths of it, in order.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune(self, object, true, &mut Trail::default(), &mut unknown);
        unknown.sort();
        unknown
    }

    /// Fills in defaults, and takes out nulls where none may be.
    pub fn fill_defaults(&self, object: &mut Value) {
        drop_nulls(self, object);
        self.fill_in(object);
    }

    /// Fills in defaults alone. Each item of a list may get a default that is longer than itself: what would become too large is
    /// left as it is then, for validation to refuse.
    pub fn fill_in(&self, object: &mut Value) {
        if let Value::Object(map) = object {
            // Metadata has no defaults of a definition's.
            fill_map(self, map, &mut Room { left: HEAVIEST });
        }
    }
}

/// What defaults may still add.
struct Room {
    left: usize,
}

impl Room {
    /// The default, if there is room left. The last one may be too much, so that whoever measures the object finds out.
    fn copy(&mut self, default: &Value, entry: usize) -> Option<Value> {
        let copy = (self.left > 0).then(|| default.clone());
        self.left = self.left.saturating_sub(entry + Extent::of(default).weight);
        copy
    }
}

fn prune(schema: &Schema, value: &mut Value, resource: bool, path: &mut Trail, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let resource = resource || schema.embedded;
            map.retain(|key, value| {
                if resource && is_resource_field(key) {
                    return true;
                }
                if let Some(of) = schema.at(key) {
                    path.within_field(key, |path| prune(of, value, false, path, unknown));
                    return true;
                }
                let kept = schema.preserve_unknown || matches!(schema.additional, Additional::Anything);
                if !kept && unknown.len() < MOST_UNKNOWN {
                    path.within_field(key, |path| unknown.push(path.shown()));
                }
                kept
            });
        }
        Value::Array(items) => {
            let Some(of) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                path.within_item(index, |path| prune(of, item, false, path, unknown));
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

fn fill(schema: &Schema, value: &mut Value, room: &mut Room) {
    match value {
        Value::Object(map) => fill_map(schema, map, room),
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                items.iter_mut().for_each(|item| fill_or_default(of, item, room));
            }
        }
        _ => {}
    }
}

fn fill_map(schema: &Schema, map: &mut Map<String, Value>, room: &mut Room) {
    for (key, of) in &schema.properties {
        if let Some(default) = &of.default
            && map.get(key).is_none_or(|value| value.is_null() && !of.nullable)
            && let Some(default) = room.copy(default, key.len() + if map.is_empty() { MAP + ENTRY } else { ENTRY })
        {
            map.insert(key.clone(), default);
        }
    }
    for (key, value) in map.iter_mut() {
        if let Some(of) = schema.at(key) {
            fill_or_default(of, value, room);
        }
    }
}

/// An item or a map's value that is null where it may not be takes the default, if there is one.
fn fill_or_default(schema: &Schema, value: &mut Value, room: &mut Room) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default)
        && let Some(default) = room.copy(default, 0)
    {
        *value = default;
    }
    fill(schema, value, room);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_of_many_items_end_where_an_object_may() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {"list": {"type": "array", "items": {
            "type": "object", "properties": {"text": {"type": "string", "default": "x".repeat(1 << 20)}}}}}}));
        let mut few = json!({"list": [{}, {}]});
        schema.fill_defaults(&mut few);
        assert_eq!(few["list"][1]["text"].as_str().map(str::len), Some(1 << 20));
        let mut many = json!({"list": vec![json!({}); 10_000]});
        schema.fill_defaults(&mut many);
        let weight = Extent::of(&many).weight;
        assert!((HEAVIEST..HEAVIEST + (8 << 20)).contains(&weight), "{weight}");
        assert!(Extent::of(&many).check().is_err());
    }
}

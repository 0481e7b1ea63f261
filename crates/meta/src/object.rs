//! Reading and writing the common parts of an object held as JSON.

use serde_json::{Map, Value};

/// A Kubernetes object as JSON; always a map once it passed the decoder.
pub type Object = Value;

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// The map at a pointer, or an empty one.
pub fn map<'a>(object: &'a Value, pointer: &str) -> &'a Map<String, Value> {
    object.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| &EMPTY)
}

/// The items at a pointer, or none.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub fn labels(object: &Value) -> &Map<String, Value> {
    map(object, "/metadata/labels")
}

pub fn annotations(object: &Value) -> &Map<String, Value> {
    map(object, "/metadata/annotations")
}

pub fn is_being_deleted(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
}

pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/finalizers").iter().filter_map(Value::as_str)
}

/// The map under `key`, made where it is absent or null. A value of another type is replaced.
pub fn child_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(parent) = object else { unreachable!("made an object above") };
    let child = parent.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    let Value::Object(child) = child else { unreachable!("made an object above") };
    child
}

pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

//! Reading and writing the common parts of an object held as JSON.

use serde_json::{Map, Value};

/// A Kubernetes object as JSON; always a map once it passed the decoder.
pub type Object = Value;

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// What stands at a pointer: `/metadata/name`. As `Value::pointer`, which makes two texts for every step.
pub fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    let Some(steps) = pointer.strip_prefix('/') else { return pointer.is_empty().then_some(object) };
    steps.split('/').try_fold(object, |value, step| match value {
        Value::Object(map) => map.get(step),
        // Indexes have rules of their own: no sign, no leading zero.
        Value::Array(items) if step == "0" || !step.starts_with(['0', '+']) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
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
    at(object, pointer).and_then(Value::as_object).unwrap_or_else(|| &EMPTY)
}

/// The items at a pointer, or none.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub fn labels(object: &Value) -> &Map<String, Value> {
    map(object, "/metadata/labels")
}

pub fn annotations(object: &Value) -> &Map<String, Value> {
    map(object, "/metadata/annotations")
}

pub fn is_being_deleted(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pointers_find_what_serde_finds() {
        let object = json!({"a": {"b": [1, {"c": 2}], "": 3, "x/y": 4}, "0": 5});
        for pointer in [
            "", "/", "/a", "/a/", "/a/b", "/a/b/0", "/a/b/1/c", "/a/b/00", "/a/b/+1", "/a/b/-", "/a/b/2", "/a/b/c",
            "/a/x~1y", "/0", "a", "/a/b/0/c",
        ] {
            assert_eq!(at(&object, pointer), object.pointer(pointer), "{pointer}");
        }
    }
}

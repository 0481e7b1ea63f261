//! RFC 6902 patches, with the liberties of upstream's library: `replace` and `copy` of an absent map key succeed, what
//! stands before the first slash of a path is ignored, negative indexes count from the end.

use ferry_meta::bounds::{DEEPEST, Excess, Extent, HEAVIEST, ITEM, LARGEST_BODY};
use serde_json::Value;

use super::PatchError;
use crate::decode::Validation;

/// More operations are refused.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes of JSON that `copy` may add in all, as upstream has it.
const MAX_COPIED: usize = LARGEST_BODY;
/// Bytes that all operations together may move or look at: items that make room in long lists, and values that are moved.
const MAX_MOVED: usize = 1 << 30;
/// As many unknown members are told.
const MAX_UNKNOWN: usize = 100;

/// Applies a list of operations.
pub fn json_patch(document: Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        // No list is an empty one.
        Value::Null => &[],
        other => return Err(PatchError::BadRequest(wrong_patch(other))),
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut patcher = JsonPatcher::new(document);
    for operation in operations {
        patcher.apply(operation)?;
    }
    patcher.finish()
}

/// A document that operations are applied to one by one. No value is put into it, nor copied, before it is known that the document
/// stays within bounds.
pub struct JsonPatcher {
    document: Value,
    /// JSON that was copied.
    copied: usize,
    /// What was added, by weight.
    added: usize,
    moved: usize,
}

impl JsonPatcher {
    pub fn new(document: Value) -> Self {
        Self { document, copied: 0, added: 0, moved: 0 }
    }

    pub fn apply(&mut self, operation: &Value) -> Result<(), PatchError> {
        self.operate(operation).map_err(PatchError::DoesNotApply)
    }

    pub fn finish(self) -> Result<Value, PatchError> {
        // What was there before was within bounds.
        if self.added > HEAVIEST / 4 {
            Extent::of(&self.document).check().map_err(|excess| PatchError::TooLarge(excess.to_string()))?;
        }
        Ok(self.document)
    }

    fn operate(&mut self, operation: &Value) -> Result<(), String> {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let value = operation.get("value").unwrap_or(&NULL);
        let kind = text("op").unwrap_or("unknown");
        let path = text("path").ok_or("missing path")?;
        match kind {
            "add" => {
                self.admit(path, Extent::of(value))?;
                self.add(path, value.clone())
            }
            "remove" => self.remove(path).map(drop),
            "replace" => {
                self.admit(path, Extent::of(value))?;
                replace(&mut self.document, path, value.clone())
            }
            "move" => {
                let from = text("from").ok_or("missing from")?;
                parent(&mut self.document, from).map_err(|_| missing_from(from))?;
                let moved = self.remove(from)?;
                let extent = Extent::of(&moved);
                self.charge(extent.weight)?;
                self.fits(path, extent)?;
                parent(&mut self.document, path).map_err(|_| missing_destination(path))?;
                self.add(path, moved)
            }
            "copy" => {
                let from = text("from").ok_or("missing from")?;
                parent(&mut self.document, from).map_err(|_| missing_from(from))?;
                let found = get(&mut self.document, from)?;
                let (extent, size) = (Extent::of(found), size(found));
                self.copied += size;
                if self.copied > MAX_COPIED {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
                        self.copied
                    ));
                }
                self.admit(path, extent)?;
                let copy = get(&mut self.document, from)?.clone();
                parent(&mut self.document, path).map_err(|_| missing_destination(path))?;
                self.add(path, copy)
            }
            "test" => {
                let found = if path.is_empty() { &self.document } else { get(&mut self.document, path)? };
                if found == value { Ok(()) } else { Err(format!("testing value {path} failed")) }
            }
            other => Err(format!("unexpected kind: {other}")),
        }
    }

    /// Whether a value of this extent may be added under a path.
    fn admit(&mut self, path: &str, extent: Extent) -> Result<(), String> {
        self.added += extent.weight;
        if self.added > 2 * HEAVIEST {
            return Err(Excess::Weight.to_string());
        }
        self.fits(path, extent)
    }

    /// Whether a value of this extent may stand under a path.
    fn fits(&self, path: &str, extent: Extent) -> Result<(), String> {
        // What stands before the first slash is no step.
        let steps = path.matches('/').count();
        if steps + extent.depth > DEEPEST { Err(Excess::Depth.to_string()) } else { Ok(()) }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), String> {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved > MAX_MOVED { Err("the operations move too much".to_owned()) } else { Ok(()) }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), String> {
        let (container, token) = parent(&mut self.document, path).map_err(|_| missing_quoted(path))?;
        match container {
            Value::Object(map) => {
                map.insert(token, value);
                Ok(())
            }
            Value::Array(items) if token == "-" => {
                items.push(value);
                Ok(())
            }
            Value::Array(items) => {
                let at =
                    index(&token, items.len() + 1).ok_or_else(|| format!("unable to access invalid index: {token}"))?;
                let behind = (items.len() - at) * ITEM;
                items.insert(at, value);
                self.charge(behind)
            }
            _ => Err(format!("doc is missing path: {path}")),
        }
    }

    fn remove(&mut self, path: &str) -> Result<Value, String> {
        let (container, token) = parent(&mut self.document, path).map_err(|_| missing_quoted(path))?;
        match container {
            Value::Object(map) => {
                map.remove(&token).ok_or_else(|| format!("unable to remove nonexistent key: {token}"))
            }
            Value::Array(items) => {
                let at =
                    index(&token, items.len()).ok_or_else(|| format!("unable to access invalid index: {token}"))?;
                let behind = (items.len() - at) * ITEM;
                let removed = items.remove(at);
                self.charge(behind)?;
                Ok(removed)
            }
            _ => Err(format!("doc is missing path: {path}")),
        }
    }
}

fn wrong_patch(patch: &Value) -> String {
    let found = match patch {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    format!("error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp")
}

/// The shape of the operations themselves; returns unknown members as upstream words them.
pub(super) fn check_operations(patch: &Value, validation: Validation) -> Result<Vec<String>, PatchError> {
    let mut strict = Vec::new();
    if validation == Validation::Ignore {
        return Ok(strict);
    }
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => return Ok(strict),
        other => return Err(PatchError::BadRequest(wrong_patch(other))),
    };
    for (index, operation) in operations.iter().enumerate() {
        let members = match operation {
            Value::Object(members) => members,
            Value::Null => continue,
            other => {
                let why = wrong_patch(other).replace("[]handlers", "handlers");
                return Err(PatchError::BadRequest(why));
            }
        };
        for (name, value) in members {
            match (&**name, value) {
                ("value", _) | ("op" | "path" | "from", Value::String(_) | Value::Null) => {}
                ("op" | "path" | "from", other) => {
                    let found = match other {
                        Value::Object(_) => "object",
                        Value::Array(_) => "array",
                        Value::Bool(_) => "bool",
                        _ => "number",
                    };
                    return Err(PatchError::BadRequest(format!(
                        "error decoding patch: json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string"
                    )));
                }
                _ if strict.len() < MAX_UNKNOWN => {
                    let name = ferry_meta::bounds::cut(name, 1024);
                    strict.push(format!("json patch unknown field \"[{index}].{name}\""));
                }
                _ => {}
            }
        }
    }
    Ok(strict)
}

/// About as many bytes as the JSON of a value has.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(k, v)| k.len() + 3 + size(v)).sum::<usize>(),
        _ => 8,
    }
}

fn missing_quoted(path: &str) -> String {
    format!("doc is missing path: \"{path}\"")
}

fn missing_destination(path: &str) -> String {
    format!("doc is missing destination path: {path}")
}

fn missing_from(path: &str) -> String {
    format!("doc is missing from path: {path}")
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// The container a path ends in, and its last token.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let missing = || format!("doc is missing path: {path}");
    let (before, last) = path.rsplit_once('/').ok_or_else(missing)?;
    let mut at = document;
    for token in before.split('/').skip(1) {
        let token = unescape(token);
        let next = match at {
            Value::Object(map) => map.get_mut(&token),
            Value::Array(items) => index(&token, items.len()).and_then(|i| items.get_mut(i)),
            _ => None,
        };
        at = next.ok_or_else(missing)?;
    }
    if at.is_object() || at.is_array() { Ok((at, unescape(last))) } else { Err(missing()) }
}

/// An index into a list of this length; -1 is the last.
fn index(token: &str, length: usize) -> Option<usize> {
    let number: i64 = token.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let number = if number < 0 { number + length } else { number };
    if (0..length).contains(&number) { usize::try_from(number).ok() } else { None }
}

static NULL: Value = Value::Null;

fn get<'a>(document: &'a mut Value, path: &str) -> Result<&'a Value, String> {
    let (container, token) = parent(document, path)?;
    match container {
        // Absent reads as null.
        Value::Object(map) => Ok(map.get(&token).unwrap_or(&NULL)),
        Value::Array(items) => {
            let at = index(&token, items.len()).ok_or_else(|| format!("unable to access invalid index: {token}"))?;
            Ok(&items[at])
        }
        _ => Err(format!("doc is missing path: {path}")),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let (container, token) = parent(document, path)?;
    match container {
        Value::Object(map) => {
            map.insert(token, value);
            Ok(())
        }
        Value::Array(items) => {
            let at = index(&token, items.len()).ok_or_else(|| format!("missing key: {path}"))?;
            items[at] = value;
            Ok(())
        }
        _ => Err(format!("doc is missing path: {path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(document: Value, patch: Value, expected: Option<Value>) {
        assert_eq!(json_patch(document, &patch).ok(), expected, "{patch}");
    }

    #[test]
    fn operations_do_what_upstreams_library_does() {
        let document = json!({"a": {"b": 1, "x/y": 2}, "l": [1, 2, 3]});
        for (operation, expected) in [
            (json!({"op": "add", "path": "/a/c", "value": 5}), Some(json!({"b": 1, "x/y": 2, "c": 5}))),
            (json!({"op": "replace", "path": "/a/none", "value": 5}), Some(json!({"b": 1, "x/y": 2, "none": 5}))),
            (json!({"op": "remove", "path": "/a/x~1y"}), Some(json!({"b": 1}))),
            (json!({"op": "remove", "path": "/a/none"}), None),
            (json!({"op": "test", "path": "/a/none", "value": null}), Some(json!({"b": 1, "x/y": 2}))),
            (json!({"op": "test", "path": "/a/b", "value": 2}), None),
            (json!({"op": "move", "from": "/a/b", "path": "/a/d"}), Some(json!({"d": 1, "x/y": 2}))),
            (json!({"op": "add", "path": "/none/deep", "value": 1}), None),
            (json!({"op": "frobnicate", "path": "/a"}), None),
            (json!({"path": "/a/b", "value": 1}), None),
        ] {
            let result = json_patch(document.clone(), &json!([operation])).ok().map(|d| d["a"].clone());
            assert_eq!(result, expected, "{operation}");
        }
    }

    #[test]
    fn indexes_append_insert_and_count_from_the_end() {
        check(json!([1, 2]), json!([{"op": "add", "path": "/-", "value": 3}]), Some(json!([1, 2, 3])));
        check(json!([1, 2]), json!([{"op": "add", "path": "/2", "value": 3}]), Some(json!([1, 2, 3])));
        check(json!([1, 2]), json!([{"op": "add", "path": "/3", "value": 3}]), None);
        check(json!([1, 2]), json!([{"op": "add", "path": "/-1", "value": 3}]), Some(json!([1, 2, 3])));
        check(json!([1, 2]), json!([{"op": "remove", "path": "/-1"}]), Some(json!([1])));
        check(json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {}}]), Some(json!({})));
        check(json!({"a": 1}), json!([{"op": "add", "path": "b/q", "value": 2}]), Some(json!({"a": 1, "q": 2})));
    }

    #[test]
    fn too_many_operations_are_refused() {
        let operation = json!({"op": "test", "path": "/a", "value": 1});
        let error = json_patch(json!({"a": 1}), &Value::Array(vec![operation; 10_001]));
        assert!(matches!(error, Err(PatchError::TooLarge(_))));
    }
}

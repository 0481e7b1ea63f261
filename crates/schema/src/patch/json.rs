//! RFC 6902 patches, with the liberties of upstream's library: `replace` and `copy` of an absent map key succeed, what
//! stands before the first slash of a path is ignored, negative indexes count from the end.

use serde_json::Value;

use super::PatchError;
use crate::decode::Validation;

/// More operations are refused.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that `copy` may add in all; upstream's library has no bound, a server must.
const MAX_COPIED: usize = 64 << 20;

/// Applies a list of operations.
pub fn json_patch(mut document: Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::BadRequest(wrong_patch(patch)));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut copied = 0;
    for operation in operations {
        apply(&mut document, operation, &mut copied).map_err(PatchError::DoesNotApply)?;
    }
    Ok(document)
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
                _ => strict.push(format!("json patch unknown field \"[{index}].{name}\"")),
            }
        }
    }
    Ok(strict)
}

fn apply(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or_default();
    let kind = text("op").unwrap_or("unknown");
    let path = text("path").ok_or("missing path")?;
    match kind {
        "add" => add(document, path, value()),
        "remove" => remove(document, path).map(drop),
        "replace" => replace(document, path, value()),
        "move" => {
            let from = text("from").ok_or("missing from")?;
            let moved = remove(document, from)?;
            add(document, path, moved)
        }
        "copy" => {
            let found = get(document, text("from").ok_or("missing from")?)?.clone();
            *copied += size(&found);
            if *copied > MAX_COPIED {
                return Err("accumulated copy size exceeds the limit".to_owned());
            }
            add(document, path, found)
        }
        "test" => {
            let found = if path.is_empty() { &*document } else { get(document, path)? };
            if *found == value() { Ok(()) } else { Err(format!("testing value {path} failed")) }
        }
        other => Err(format!("unexpected kind: {other}")),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(k, v)| k.len() + 3 + size(v)).sum::<usize>(),
        _ => 8,
    }
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

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (container, token) = parent(document, path)?;
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
            items.insert(at, value);
            Ok(())
        }
        _ => Err(format!("doc is missing path: {path}")),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
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

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    let (container, token) = parent(document, path)?;
    match container {
        Value::Object(map) => map.remove(&token).ok_or_else(|| format!("unable to remove nonexistent key: {token}")),
        Value::Array(items) => {
            let at = index(&token, items.len()).ok_or_else(|| format!("unable to access invalid index: {token}"))?;
            Ok(items.remove(at))
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

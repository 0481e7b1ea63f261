//! RFC 7386 merge patches.

use serde_json::{Map, Value};

use super::PatchError;

/// Merges a patch into an object: null removes, maps merge, everything else is replaced.
pub fn merge_patch(mut target: Value, patch: &Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(patch) => {
            if !target.is_object() {
                target = Value::Object(Map::new());
            }
            if let Value::Object(target) = &mut target {
                merge(target, patch);
            }
            Ok(target)
        }
        Value::Null => Err(PatchError::BadRequest("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::BadRequest(format!("error decoding patch: {}", not_a_map(other)))),
    }
}

/// Go's complaint about a patch that is no object.
pub(super) fn not_a_map(value: &Value) -> String {
    let found = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
}

fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        match (target.get_mut(key), change) {
            (_, Value::Null) => {
                target.remove(key);
            }
            (Some(Value::Object(inner)), Value::Object(change)) => merge(inner, change),
            // Over a map a list or scalar is taken as it is; elsewhere nulls inside of it are dropped.
            (Some(Value::Object(_)), change) => {
                target.insert(key.clone(), change.clone());
            }
            (_, change) => {
                let mut value = change.clone();
                drop_nulls(&mut value);
                target.insert(key.clone(), value);
            }
        }
    }
}

pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merges_follow_the_rfc() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": [1]}), json!({"a": [{"x": null}]}), json!({"a": [{}]})),
        ] {
            assert_eq!(merge_patch(target, &patch), Ok(expected));
        }
        assert!(merge_patch(json!({}), &json!([1])).is_err_and(|e| e.to_string().contains("cannot unmarshal array")));
    }
}

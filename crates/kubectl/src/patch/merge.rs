//! For kinds whose lists are replaced as a whole: a JSON merge patch.

use serde_json::{Map, Value};

/// From what was applied before, what the file says and what the server has.
pub fn three_way(original: &Value, modified: &Value, current: &Value) -> Value {
    let mut patch = removed(original, modified);
    let changes = changed(current, modified);
    join(&mut patch, changes);
    Value::Object(patch)
}

/// From one form of an object to another.
pub fn two_way(from: &Value, to: &Value) -> Value {
    three_way(from, to, from)
}

/// Fields that are gone, as nulls.
fn removed(from: &Value, to: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return patch };
    for (key, before) in from {
        match to.get(key) {
            None => {
                patch.insert(key.clone(), Value::Null);
            }
            Some(after) => {
                let inner = removed(before, after);
                if !inner.is_empty() {
                    patch.insert(key.clone(), inner.into());
                }
            }
        }
    }
    patch
}

/// Fields that are new or other than they were.
fn changed(from: &Value, to: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return patch };
    for (key, after) in to {
        match (from.get(key), after) {
            (Some(before @ Value::Object(_)), Value::Object(_)) => {
                let inner = changed(before, after);
                if !inner.is_empty() {
                    patch.insert(key.clone(), inner.into());
                }
            }
            (Some(before), after) if before == after => {}
            (None, Value::Null) => {}
            _ => {
                patch.insert(key.clone(), after.clone());
            }
        }
    }
    patch
}

pub fn join(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => join(known, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn what_others_added_stays() {
        let original = json!({"spec": {"a": 1, "b": 2, "gone": {"x": 1}}});
        let modified = json!({"spec": {"a": 3, "b": 2, "list": [1]}});
        let current = json!({"spec": {"a": 1, "b": 2, "gone": {"x": 1}, "theirs": true, "list": [2, 1]}});
        assert_eq!(
            super::three_way(&original, &modified, &current),
            json!({"spec": {"a": 3, "gone": null, "list": [1]}})
        );
        assert_eq!(super::three_way(&modified, &modified, &modified), json!({}));
    }
}

//! The patch that turns one status into another, with only what changed.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Map, Value, json};

use crate::pod;

/// A strategic merge patch for `pods/status`; none when both say the same.
///
/// Conditions are merged by type, so that those of others stay. The uid keeps the patch away from another pod of the
/// same name.
pub(crate) fn patch(pod: &Pod, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let (old, new) = (as_map(old)?, as_map(new)?);
    let mut changes = Map::new();
    for (key, value) in &new {
        let before = old.get(key);
        if before == Some(value) {
            continue;
        }
        let change = match key.as_str() {
            "conditions" => changed_items(before, value),
            "podIPs" | "hostIPs" => replaced(value),
            _ => value.clone(),
        };
        changes.insert(key.clone(), change);
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    if changes.is_empty() {
        return None;
    }
    Some(json!({"metadata": {"uid": pod::uid(pod)}, "status": changes}))
}

fn as_map(status: &PodStatus) -> Option<Map<String, Value>> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

fn changed_items(before: Option<&Value>, after: &Value) -> Value {
    let before = before.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let after = after.as_array().map_or(&[][..], Vec::as_slice);
    let find = |kind: &Value| before.iter().find(|c| c["type"] == *kind);
    let changed = after.iter().filter(|c| find(&c["type"]) != Some(c)).map(|c| {
        // A reason that went away has to be said so: merging keeps what is not mentioned.
        let mut item = c.clone();
        for key in ["reason", "message"] {
            if item.get(key).is_none() && find(&c["type"]).is_some_and(|old| old.get(key).is_some()) {
                item[key] = Value::Null;
            }
        }
        item
    });
    Value::Array(changed.collect())
}

/// Lists merged by address would keep the old address.
fn replaced(value: &Value) -> Value {
    let mut items = vec![json!({"$patch": "replace"})];
    items.extend(value.as_array().into_iter().flatten().cloned());
    Value::Array(items)
}

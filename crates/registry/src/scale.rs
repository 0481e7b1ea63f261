//! The `scale` subresource: any workload with replicas as an autoscaling/v1 Scale, and back.

use ferry_meta::{FieldErrors, object};
use serde_json::{Map, Value, json};

use crate::apiextensions::custom::ScalePaths;
use crate::cells;
use crate::cursor::{Cursor, Report, object_at};

/// The Scale of a Deployment, ReplicaSet, StatefulSet or ReplicationController.
pub fn of(workload: &Value) -> Value {
    let at = Cursor::root(workload);
    let (spec, status) = (at.get("spec"), at.get("status"));
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = at.get("metadata").value.get(key) {
            metadata.insert(key.into(), value.clone());
        }
    }
    let selector = spec.get("selector");
    // A ReplicationController's selector is a bare map of labels.
    let bare = selector.value.as_object().is_some_and(|map| map.values().all(Value::is_string) && !map.is_empty());
    let text = if bare { cells::labels(selector.value.as_object()) } else { cells::selector(Some(selector.value)) };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": replicas(spec.number("replicas")),
        "status": {"replicas": status.number("replicas"), "selector": text},
    })
}

/// Go leaves a zero out, so that a patch finds none to take away.
fn replicas(number: i64) -> Value {
    if number == 0 { json!({}) } else { json!({"replicas": number}) }
}

/// The Scale of a custom resource.
pub fn of_custom(parent: &Value, paths: &ScalePaths) -> Value {
    let number = |path: &str| ScalePaths::value(path, parent).and_then(Value::as_i64).unwrap_or_default();
    let mut scale = of(parent);
    scale["spec"] = replicas(number(&paths.spec));
    scale["status"] = json!({"replicas": number(&paths.status)});
    if let Some(text) = ScalePaths::value(&paths.selector, parent).and_then(Value::as_str).filter(|t| !t.is_empty()) {
        scale["status"]["selector"] = text.into();
    }
    scale
}

/// Writes the replicas of a custom resource to where it keeps them.
pub fn set(parent: &mut Value, fields: &[String], replicas: i64) {
    if let Some((last, before)) = fields.split_last() {
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        object_at(parent, &before).insert(last.clone(), replicas.into());
    }
}

/// What a written Scale may not say.
pub fn validate(scale: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let at = Cursor::root(scale);
    let metadata = at.get("metadata");
    if metadata.text("name").is_empty() {
        errors.required(metadata.at("name"), "name or generateName is required");
    }
    let spec = at.get("spec");
    errors.non_negative(spec.at("replicas"), spec.number("replicas"));
    errors
}

/// Writes the replicas of a Scale, and the version it stands on, into the workload.
pub fn apply(workload: &mut Value, scale: &Value) {
    let replicas = Cursor::root(scale).get("spec").number("replicas");
    object_at(workload, &["spec"]).insert("replicas".into(), replicas.into());
    let version = object::resource_version(scale);
    if !version.is_empty() {
        object::metadata_mut(workload).insert("resourceVersion".into(), version.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_scale() {
        let mut workload = json!({
            "metadata": {"name": "a", "resourceVersion": "3", "labels": {}},
            "spec": {"replicas": 2, "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["b", "a"]}]}},
            "status": {"replicas": 1},
        });
        let mut scale = of(&workload);
        assert_eq!(scale["metadata"], json!({"name": "a", "resourceVersion": "3"}));
        assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app in (a,b)"}));
        scale["spec"]["replicas"] = json!(5);
        apply(&mut workload, &scale);
        assert_eq!(workload["spec"]["replicas"], json!(5));
        scale["spec"]["replicas"] = json!(-1);
        assert_eq!(validate(&scale)[0].line(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
        let controller = json!({"spec": {"selector": {"app": "a"}}});
        assert_eq!(of(&controller)["status"]["selector"], json!("app=a"));
        assert_eq!(of(&controller)["spec"], json!({}));
    }
}

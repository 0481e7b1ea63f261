//! Objects for scenarios, from the JSON that matters.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::model::PodInfo;

/// A pod of namespace `default` whose uid is its name.
pub(crate) fn pod(name: &str, spec: Value) -> Arc<PodInfo> {
    pod_with(name, json!({"spec": spec}))
}

/// The same from a whole object; its metadata is completed.
pub(crate) fn pod_with(name: &str, mut object: Value) -> Arc<PodInfo> {
    merge(&mut object, json!({"metadata": {"name": name, "uid": name}}));
    if object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = json!("default");
    }
    if object["spec"]["containers"].is_null() {
        object["spec"]["containers"] = json!([{"name": "c"}]);
    }
    let pod: Pod = serde_json::from_value(object).expect("a pod");
    Arc::new(PodInfo::new(Arc::new(pod)))
}

/// A node with 4 cores, 8 GiB and room for 110 pods, changed by `overlay`.
pub(crate) fn node(name: &str, overlay: Value) -> Arc<Node> {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"}},
    });
    merge(&mut object, overlay);
    Arc::new(serde_json::from_value(object).expect("a node"))
}

fn merge(target: &mut Value, overlay: Value) {
    match (target, overlay) {
        (Value::Object(target), Value::Object(overlay)) => {
            for (key, value) in overlay {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, overlay) => *target = overlay,
    }
}

//! Creating, reading, patching and binding, from 32 callers at once.

use std::sync::Arc;

use crate::kit::{Kit, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";

pub async fn run(count: usize) {
    let kit = Arc::new(Kit::new().await);
    kit.measure("create", count, |n| ("POST", MAPS.into(), JSON, config_map(&format!("load-{n}")))).await;
    kit.measure("get", count, |n| ("GET", format!("{MAPS}/load-{n}"), "", String::new())).await;
    let patch = |n: usize| format!(r#"{{"metadata":{{"annotations":{{"n":"{n}"}}}}}}"#);
    let merge = "application/merge-patch+json";
    kit.measure("patch", count, move |n| ("PATCH", format!("{MAPS}/load-{n}"), merge, patch(n))).await;
    kit.measure("create a pod", count, |n| ("POST", PODS.into(), JSON, pod(&format!("load-{n}"), ""))).await;
    let binding = |n: usize| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"load-{n}"}},"target":{{"kind":"Node","name":"n{}"}}}}"#,
            n % 100
        )
    };
    kit.measure("bind", count, move |n| ("POST", format!("{PODS}/load-{n}/binding"), JSON, binding(n))).await;
}

//! The group versions of other servers in this server's discovery.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Remote;

/// Our own groups with those of others behind them.
pub(crate) fn with_remote(
    mut groups: Vec<(String, Vec<String>)>,
    remotes: &[Arc<Remote>],
) -> Vec<(String, Vec<String>)> {
    for remote in remotes {
        match groups.iter_mut().find(|(group, _)| *group == remote.group) {
            Some((_, versions)) if versions.contains(&remote.version) => {}
            Some((_, versions)) => versions.push(remote.version.clone()),
            None => groups.push((remote.group.clone(), vec![remote.version.clone()])),
        }
    }
    groups
}

/// The resources of a group version that another server answers, in the aggregated form. None when it is our own.
pub(crate) fn aggregated_resources(remotes: &[Arc<Remote>], group: &str, version: &str) -> Option<Value> {
    let remote = remotes.iter().find(|r| r.group == group && r.version == version)?;
    let freshness = if remote.available { "Current" } else { "Stale" };
    let listed = remote.resources.as_ref().and_then(|list| list.get("resources")?.as_array()).cloned();
    let listed = listed.unwrap_or_default();
    let mut resources: Vec<Value> = Vec::new();
    for one in &listed {
        let name = one.get("name").and_then(Value::as_str).unwrap_or_default();
        let kind = response_kind(one, remote);
        let verbs = one.get("verbs").cloned().unwrap_or_else(|| json!([]));
        if let Some((parent, subresource)) = name.split_once('/') {
            let entry = json!({"subresource": subresource, "responseKind": kind, "verbs": verbs});
            if let Some(parent) = resources.iter_mut().find(|r| r["resource"] == parent) {
                match parent.get_mut("subresources").and_then(Value::as_array_mut) {
                    Some(list) => list.push(entry),
                    None => parent["subresources"] = json!([entry]),
                }
            }
            continue;
        }
        let namespaced = one.get("namespaced") == Some(&Value::Bool(true));
        let mut entry = json!({
            "resource": name,
            "responseKind": kind,
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": one.get("singularName").cloned().unwrap_or_else(|| "".into()),
            "verbs": verbs,
        });
        for key in ["shortNames", "categories"] {
            if let Some(list) = one.get(key) {
                entry[key] = list.clone();
            }
        }
        resources.push(entry);
    }
    Some(json!({"version": version, "resources": resources, "freshness": freshness}))
}

fn response_kind(one: &Value, remote: &Remote) -> Value {
    let of = |key: &str, otherwise: &str| {
        one.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(otherwise).to_owned()
    };
    json!({"group": of("group", &remote.group), "version": of("version", &remote.version), "kind": of("kind", "")})
}

//! The status of volume claims: a kubelet that made a volume larger says so, and changes nothing else.

use serde_json::{Map, Value};

use super::{Answer, refuse};
use crate::{Operation, Request};

pub(super) fn status(node: &str, request: &Request<'_>) -> Answer {
    let (Some(claim), Some(old), Operation::Update) = (request.object.as_deref(), request.old, request.operation)
    else {
        return refuse(format!("unexpected operation {:?}", request.operation.as_str()));
    };
    let (new, old) = (rest(claim), rest(old));
    if new == old {
        return Ok(());
    }
    let changed: Vec<String> = new
        .keys()
        .chain(old.keys())
        .filter(|path| new.get(*path) != old.get(*path))
        .map(|path| path.trim_start_matches('.').to_owned())
        .collect();
    let mut changed = changed;
    changed.sort();
    changed.dedup();
    refuse(format!(
        "node {node:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
        changed.join(", ")
    ))
}

/// What a node must leave as it is, by path. What is empty is as if it were absent.
fn rest(claim: &Value) -> Map<String, Value> {
    const OWN: [&str; 6] = [
        ".metadata.resourceVersion",
        ".metadata.managedFields",
        ".status.capacity",
        ".status.conditions",
        ".status.allocatedResources",
        ".status.allocatedResourceStatuses",
    ];
    let mut flat = Map::new();
    let mut open = vec![(String::new(), claim)];
    while let Some((path, value)) = open.pop() {
        match value {
            _ if OWN.contains(&path.as_str()) => {}
            Value::Null => {}
            Value::Object(map) => open.extend(map.iter().map(|(key, value)| (format!("{path}.{key}"), value))),
            Value::Array(list) if list.is_empty() => {}
            other => {
                flat.insert(path, other.clone());
            }
        }
    }
    flat
}

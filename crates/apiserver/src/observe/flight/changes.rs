//! What one write changed of what matters on the way of an object: conditions, containers, counts, endpoints.
//!
//! Of any kind: what a kind does not have is not found. Data, environment and arguments are never told.

use ferry_meta::object;
use serde_json::{Value, json};

/// What is there in `after` that was not in `before`. None before: all of it is new.
pub(super) fn between(before: Option<&Value>, after: &Value) -> Vec<Value> {
    let null = Value::Null;
    let before = before.unwrap_or(&null);
    let mut found = Vec::new();
    for (what, pointer) in [
        ("node", "/spec/nodeName"),
        ("phase", "/status/phase"),
        ("address", "/status/podIP"),
        ("nominated", "/status/nominatedNodeName"),
        ("reason", "/status/reason"),
    ] {
        let new = object::text(after, pointer);
        if !new.is_empty() && new != object::text(before, pointer) {
            found.push(json!({ "what": what, "to": new }));
        }
    }
    let generation = |object: &Value| object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(after) != generation(before) {
        found.push(json!({ "what": "spec", "to": generation(after) }));
    }
    if object::is_being_deleted(after) && !object::is_being_deleted(before) {
        found.push(json!({ "what": "deletion", "to": object::text(after, "/metadata/deletionTimestamp") }));
    }
    let finalizers = |object: &Value| object::finalizers(object).map(str::to_owned).collect::<Vec<_>>();
    if finalizers(before) != finalizers(after) {
        found.push(json!({ "what": "finalizers", "to": finalizers(after) }));
    }
    conditions(before, after, &mut found);
    containers(before, after, &mut found);
    counts(before, after, &mut found);
    endpoints(before, after, &mut found);
    found
}

fn conditions(before: &Value, after: &Value, found: &mut Vec<Value>) {
    let told =
        |condition: &Value| [object::text(condition, "/status"), object::text(condition, "/reason")].map(str::to_owned);
    for condition in object::items(after, "/status/conditions") {
        let name = object::text(condition, "/type");
        let old = object::items(before, "/status/conditions").iter().find(|old| object::text(old, "/type") == name);
        if old.map(told) != Some(told(condition)) {
            found.push(json!({
                "what": "condition", "name": name, "to": object::text(condition, "/status"),
                "reason": object::text(condition, "/reason"), "message": object::text(condition, "/message"),
            }));
        }
    }
}

fn containers(before: &Value, after: &Value, found: &mut Vec<Value>) {
    for list in ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"] {
        for status in object::items(after, list) {
            let name = object::text(status, "/name");
            let old = object::items(before, list).iter().find(|old| object::text(old, "/name") == name);
            let told = |status: &Value| {
                let (state, detail) =
                    object::map(status, "/state").iter().next().map_or(("", &Value::Null), |(k, v)| (&**k, v));
                let number = |pointer: &str| detail.pointer(pointer).and_then(Value::as_i64);
                json!({
                    "what": "container", "name": name, "to": state, "reason": object::text(detail, "/reason"),
                    "message": object::text(detail, "/message"), "exitCode": number("/exitCode"),
                    "restarts": status.pointer("/restartCount").and_then(Value::as_i64).unwrap_or(0),
                    "init": list.contains("init"),
                    "ready": status.get("ready").and_then(Value::as_bool).unwrap_or(false),
                })
            };
            let new = told(status);
            if old.map(told).as_ref() != Some(&new) {
                found.push(new);
            }
        }
    }
}

fn counts(before: &Value, after: &Value, found: &mut Vec<Value>) {
    for name in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "desiredNumberScheduled",
        "numberReady",
        "numberAvailable",
        "active",
        "ready",
        "succeeded",
        "failed",
    ] {
        let count = |object: &Value| object.pointer("/status").and_then(|status| status.get(name)?.as_i64());
        if count(after).is_some() && count(after).unwrap_or(0) != count(before).unwrap_or(0) {
            found.push(json!({ "what": "count", "name": name, "to": count(after) }));
        }
    }
}

/// EndpointSlices: which addresses serve, and whose they are.
fn endpoints(before: &Value, after: &Value, found: &mut Vec<Value>) {
    let state = |endpoint: &Value| {
        let says = |name: &str| endpoint.pointer("/conditions").and_then(|c| c.get(name)?.as_bool());
        match (says("ready"), says("terminating")) {
            (_, Some(true)) => "terminating",
            (Some(false), _) => "not ready",
            _ => "ready",
        }
    };
    let address = |endpoint: &Value| object::text(endpoint, "/addresses/0").to_owned();
    // By address, so that a thousand endpoints are no million comparisons.
    let mut old: std::collections::HashMap<String, &str> =
        object::items(before, "/endpoints").iter().map(|endpoint| (address(endpoint), state(endpoint))).collect();
    for endpoint in object::items(after, "/endpoints") {
        let (address, state) = (address(endpoint), state(endpoint));
        if old.remove(&address) != Some(state) {
            let name = object::text(endpoint, "/targetRef/name");
            found.push(json!({ "what": "endpoint", "name": name, "address": address, "to": state }));
        }
    }
    found.extend(old.into_keys().map(|address| json!({ "what": "endpoint", "address": address, "to": "gone" })));
}

//! Plays recorded exchanges against the strategies alone: create and update of built-in kinds, without server or admission.
//!
//! `FERRY_ORACLE_ONLY=kind-pod` plays the matching ones and also shows where accepted objects differ.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_meta::{ApiError, UserInfo, object, time};
use ferry_registry::{Context, Resource, ResourceTable, object_meta};
use ferry_schema::{Validation, decode_value, normalize, patch};
use ferry_testkit::data::exchanges;
use serde_json::{Value, json};

/// Steps whose answer comes from another part of the server (admission, policies, patches), not from a strategy.
const NOT_OURS: [&str; 14] = [
    "admit-",
    "apply-",
    "rbac-",
    "auth-",
    "proto-",
    "watch-",
    "list-",
    "http-",
    // Schemas and CEL are judged by other crates.
    "crd-invalid-s",
    "crd-invalid-cel",
    "crd-cel",
    "crd-list-types",
    "policy-vap-invalid",
    // The server turns a stored object into the version of the request.
    "kind-event-update-versions",
];

/// Refusals of the request's options, of patches and of addresses that are taken, none of which a strategy gives.
const NOT_A_STRATEGYS: [&str; 5] = [
    "Options.meta.k8s.io \"\" is invalid",
    " \"\" is invalid: patch: ",
    "metadata.resourceVersion: Invalid value: 0",
    "failed to allocate IP",
    "selectableFields",
];

struct Server {
    table: ResourceTable,
    objects: HashMap<(String, String, String), Value>,
}

struct Target {
    row: Arc<Resource>,
    namespace: String,
    name: String,
    subresource: String,
}

impl Server {
    fn target(&self, path: &str) -> Option<Target> {
        let path = path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if self.table.find(group, version, plural).is_some_and(|r| r.namespaced) =>
            {
                (*namespace, [&[*plural], rest].concat())
            }
            other => ("", other.to_vec()),
        };
        let mut rest = rest.into_iter();
        let row = self.table.find(group, version, rest.next()?)?.clone();
        let (name, subresource) = (rest.next().unwrap_or_default(), rest.next().unwrap_or_default());
        Some(Target { row, namespace: namespace.into(), name: name.into(), subresource: subresource.into() })
    }

    fn key(&self, target: &Target, name: &str) -> (String, String, String) {
        (target.row.plural.clone(), target.namespace.clone(), name.to_owned())
    }

    /// The answer of a step, or None where the strategies alone cannot give one.
    fn play(
        &mut self,
        method: &str,
        target: &Target,
        body: &Value,
        headers: &Value,
        dry: bool,
    ) -> Option<Result<Value, ApiError>> {
        let row = &target.row;
        if !row.stored {
            return None;
        }
        let kind = ferry_schema::builtin().kind(&row.gvk)?;
        let user = UserInfo::new("admin", &["system:masters"]);
        let context = Context {
            user: &user,
            subresource: &target.subresource,
            dry_run: dry,
            patch: method == "PATCH",
            reader: None,
        };
        if method == "POST" {
            if !target.name.is_empty() || body.is_null() {
                return None;
            }
            let mut new = decode_value(&kind, body, Validation::Ignore).ok()?.object;
            self.take_generated_name(&mut new);
            if row.namespaced {
                object::metadata_mut(&mut new).insert("namespace".into(), target.namespace.clone().into());
            }
            object_meta::remove_duplicate_owners(&mut new);
            object_meta::prepare_create(&mut new, "u", &time::time(time::now()));
            row.strategy.default(&mut new);
            row.strategy.prepare_create(&context, &mut new);
            admit(row, &mut new);
            normalize(&kind, &mut new);
            let errors = row.validate_create(&context, &new);
            if !errors.is_empty() {
                return Some(Err(row.refusal(&new, errors)));
            }
            object::metadata_mut(&mut new).insert("resourceVersion".into(), "1".into());
            let key = self.key(target, object::name(&new));
            if self.objects.contains_key(&key) {
                return None;
            }
            if !dry {
                self.objects.insert(key, new.clone());
            }
            return Some(Ok(new));
        }
        let key = self.key(target, &target.name);
        let old = self.objects.get(&key)?.clone();
        let mut new = match method {
            "PUT" => decode_value(&kind, body, Validation::Ignore).ok()?.object,
            "PATCH" => {
                let media = headers["Content-Type"].as_str().unwrap_or_default();
                let patch_kind = patch::PatchKind::of_media_type(media)?;
                patch::apply(patch_kind, &kind, &old, body.to_string().as_bytes(), Validation::Ignore).ok()?.object
            }
            "DELETE" => {
                self.objects.remove(&key);
                return None;
            }
            _ => return None,
        };
        if !["", "status", "ephemeralcontainers", "resize"].contains(&target.subresource.as_str()) {
            return None;
        }
        let metadata = object::metadata_mut(&mut new);
        metadata.insert("name".into(), target.name.clone().into());
        if row.namespaced {
            metadata.insert("namespace".into(), target.namespace.clone().into());
        }
        metadata.insert("resourceVersion".into(), "1".into());
        row.strategy.default(&mut new);
        normalize(&kind, &mut new);
        object_meta::prepare_update(&mut new, &old);
        row.strategy.prepare_update(&context, &mut new, &old);
        if row.gvk.kind == "Pod" && target.subresource.is_empty() {
            admit(row, &mut new);
        }
        normalize(&kind, &mut new);
        let errors = row.validate_update(&context, &new, &old);
        if !errors.is_empty() {
            return Some(Err(row.refusal(&new, errors)));
        }
        self.objects.insert(key, new.clone());
        Some(Ok(new))
    }

    fn take_generated_name(&self, new: &mut Value) {
        let base = object::text(new, "/metadata/generateName").to_owned();
        if object::name(new).is_empty() && !base.is_empty() {
            let name = object_meta::generated_name(&base, "bcdfg");
            object::metadata_mut(new).insert("name".into(), name.into());
        }
    }
}

/// What admission adds to every pod and node, so that later updates of the whole object change nothing by leaving it in; and
/// the address a Service is given.
fn admit(row: &Resource, object: &mut Value) {
    match row.gvk.kind.as_str() {
        "Pod" => {
            let spec = &mut object["spec"];
            spec["serviceAccountName"] = json!("default");
            spec["serviceAccount"] = json!("default");
            spec["priority"] = json!(0);
            spec["preemptionPolicy"] = json!("PreemptLowerPriority");
            let keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
            let mut list = spec["tolerations"].as_array().cloned().unwrap_or_default();
            let known: Vec<String> = list.iter().filter_map(|t| t["key"].as_str().map(str::to_owned)).collect();
            let missing = keys.iter().filter(|key| !known.iter().any(|k| k == *key));
            list.extend(
                missing.map(
                    |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
                ),
            );
            spec["tolerations"] = Value::Array(list);
        }
        "Service" => {
            ferry_registry::core::service::default_families(object, None, &["IPv4"]);
        }
        _ => {}
    }
}

fn fill(text: &str) -> String {
    text.replace("{ns}", "ns-test")
}

/// Ids and times are marks in the recordings.
fn marked(text: &str) -> String {
    let uid = regex::Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a pattern");
    uid.replace_all(text, "<uid>").into_owned()
}

#[test]
fn refusals_read_as_recorded() {
    let only = std::env::var("FERRY_ORACLE_ONLY").unwrap_or_default();
    let (mut played, mut wrong) = (0, Vec::new());
    for exchange in exchanges() {
        let name = &exchange.name;
        if NOT_OURS.iter().any(|prefix| name.starts_with(prefix)) || !name.contains(&only) {
            continue;
        }
        let mut server = Server { table: ResourceTable::builtin(), objects: HashMap::new() };
        for step in exchange.values() {
            let path = fill(step["path"].as_str().unwrap_or_default());
            let body: Value = serde_json::from_str(&fill(&step["body"].to_string())).expect("JSON");
            let Some(target) = server.target(&path) else { continue };
            let dry = path.contains("dryRun");
            let method = step["method"].as_str().unwrap_or_default();
            let answer = server.play(method, &target, &body, &step["headers"], dry);
            let want: Value = serde_json::from_str(&fill(&step["want"].to_string())).expect("JSON");
            let (Some(answer), Some(code)) = (answer, want["code"].as_u64()) else { continue };
            let message = want["body"]["message"].as_str().unwrap_or_default();
            if NOT_A_STRATEGYS.iter().any(|text| message.contains(text)) {
                continue;
            }
            played += 1;
            let id = format!("{name}/{}", step["id"].as_str().unwrap_or_default());
            match answer {
                Ok(object) if code < 300 && !only.is_empty() => show_difference(&id, &object, &want["body"]),
                Err(error) if code == 422 && message.contains(" is invalid: ") => {
                    let ours = marked(&error.0.message);
                    if ours != message {
                        wrong.push(format!("{id}\n  ours:   {ours}\n  theirs: {message}"));
                    }
                }
                Ok(_) if code == 422 && message.contains(" is invalid: ") => {
                    wrong.push(format!("{id}\n  ours:   accepted\n  theirs: {message}"));
                }
                Err(error) if code < 300 => {
                    wrong.push(format!("{id}\n  ours:   {}\n  theirs: {code}", error.0.message))
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {played} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!only.is_empty() || played == 818, "{played} were played");
}

fn show_difference(id: &str, ours: &Value, theirs: &Value) {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("metadata");
        }
        value
    };
    let mut found = Vec::new();
    compare("", &strip(ours), &strip(theirs), &mut found);
    let generation = |v: &Value| v.pointer("/metadata/generation").cloned();
    if theirs.get("metadata").is_some() && generation(ours) != generation(theirs) {
        found.push(format!("generation {:?} != {:?}", generation(ours), generation(theirs)));
    }
    if !found.is_empty() && theirs.get("kind").is_some() {
        println!("{id}: {}", found.join("; "));
    }
}

fn compare(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                compare(
                    &format!("{path}.{key}"),
                    &a.get(key).cloned().unwrap_or(json!("<absent>")),
                    &b.get(key).cloned().unwrap_or(json!("<absent>")),
                    found,
                );
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{index}]"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a} != {b}")),
    }
}

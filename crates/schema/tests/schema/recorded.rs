//! What the schema engine alone can answer of the exchanges that were recorded from upstream.

use ferry_schema::decode::type_meta;
use ferry_schema::{Format, Validation, decode};
use serde_json::Value;

/// Every step of every exchange, as `exchange/step`.
fn steps() -> impl Iterator<Item = (String, Value)> {
    ferry_testkit::data::exchanges().into_iter().flat_map(|exchange| {
        let steps = exchange.values().into_iter();
        steps.map(move |step| (format!("{}/{}", exchange.name, step["id"]), step))
    })
}

/// Every POST and PUT with its body.
fn writes() -> impl Iterator<Item = (String, Value, Vec<u8>)> {
    steps().filter(|(_, step)| matches!(step["method"].as_str(), Some("POST" | "PUT"))).filter_map(|(name, step)| {
        let body = match (step.get("raw"), step.get("body")) {
            (Some(Value::String(raw)), _) => raw.clone().into_bytes(),
            (_, Some(body)) if !body.is_null() => body.to_string().into_bytes(),
            _ => return None,
        };
        Some((name, step, body))
    })
}

#[test]
fn bodies_are_refused_and_warned_about_as_recorded() {
    let mut failures = Vec::new();
    let (mut refused, mut accepted) = (0, 0);
    for (name, step, body) in writes() {
        let content_type = step.pointer("/headers/Content-Type").and_then(Value::as_str).unwrap_or("application/json");
        let format = match content_type {
            "application/json" => Format::Json,
            "application/yaml" => Format::Yaml,
            _ => continue,
        };
        let Ok(meta) = type_meta(&body, format) else { continue };
        let (group, version) = meta.api_version.split_once('/').unwrap_or(("", &meta.api_version));
        let gvk = ferry_meta::GroupVersionKind::new(group, version, &*meta.kind);
        let Some(ty) = ferry_schema::builtin().kind(&gvk) else { continue };
        let path = step["path"].as_str().unwrap_or_default();
        let validation = match path.split_once("fieldValidation=").map(|(_, v)| v.split('&').next().unwrap_or_default())
        {
            Some("Strict") => Validation::Strict,
            Some("Ignore") => Validation::Ignore,
            _ => Validation::Warn,
        };
        let message = step.pointer("/want/body/message").and_then(Value::as_str).unwrap_or_default();
        let ours = decode(&ty, &body, format, validation);
        match &ours {
            Err(error) => {
                refused += 1;
                let text = error.message(&gvk.kind, &gvk.version, &gvk.kind, &body);
                // Bodies that were recorded as values have lost the order of their fields, and so have these complaints.
                let sorted = |text: &str| {
                    let mut parts: Vec<String> = text.split([' ', ',']).map(str::to_owned).collect();
                    parts.sort();
                    parts
                };
                if !message.is_empty() && sorted(&text) != sorted(message) {
                    failures.push(format!("{name}: ours {text:?}, theirs {message:?}"));
                }
            }
            Ok(_) if message.contains("cannot be handled as a") && !message.contains("conversion") => {
                failures.push(format!("{name}: accepted, theirs {message:?}"));
            }
            Ok(decoded) => {
                accepted += 1;
                let theirs: Vec<String> = step
                    .pointer("/want/warnings")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(|w| {
                        w.as_str()?.strip_prefix("299 - \"")?.strip_suffix('"').map(|w| w.replace("\\\"", "\""))
                    })
                    .filter(|w| w.contains(" field \"") || w.contains("already set in map"))
                    .collect();
                let mut ours = decoded.warnings.clone();
                ours.sort();
                if step.pointer("/want/warnings").is_some() && ours != theirs {
                    failures.push(format!("{name}: warnings {ours:?}, theirs {theirs:?}"));
                }
            }
        }
    }
    assert_eq!(failures, Vec::<String>::new(), "{} failures", failures.len());
    assert_eq!((refused, accepted), (31, 1230));
}

/// Recordings have `<time>` for every time.
fn with_times(value: &mut Value, key: &str) {
    match value {
        Value::String(text) if text == "<time>" => {
            let micro = matches!(key, "acquireTime" | "renewTime" | "eventTime" | "lastObservedTime" | "pingTime");
            *text = if micro { "2024-01-02T03:04:05.000006Z" } else { "2024-01-02T03:04:05Z" }.to_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(|v| with_times(v, key)),
        Value::Object(map) => map.iter_mut().for_each(|(k, v)| with_times(v, k)),
        _ => {}
    }
}

#[test]
fn recorded_answers_come_back_as_they_are() {
    let mut failures = Vec::new();
    let mut checked = 0;
    for (name, step) in steps() {
        let ignored = step.get("ignore").and_then(Value::as_array).cloned().unwrap_or_default();
        if step.get("only").is_some() || ignored.iter().any(|path| path != "metadata.managedFields") {
            continue; // a part of the answer
        }
        let Some(mut answer) = step.pointer("/want/body").filter(|b| b.is_object()).cloned() else { continue };
        with_times(&mut answer, "");
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = ferry_meta::GroupVersionKind::new(group, version, &*kind);
        let Some(ty) = ferry_schema::builtin().kind(&gvk) else { continue };
        if matches!(&*kind, "Table" | "Status") {
            continue;
        }
        checked += 1;
        match decode(&ty, answer.to_string().as_bytes(), Format::Json, Validation::Strict) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok(decoded) => {
                let ours: Value =
                    serde_json::from_slice(&ferry_schema::encode_json(&ty, &decoded.object)).expect("JSON");
                let (a, b) = (serde_json::to_string_pretty(&ours), serde_json::to_string_pretty(&answer));
                let (a, b) = (a.expect("JSON"), b.expect("JSON"));
                if let Some(at) = a.lines().zip(b.lines()).find(|(a, b)| a != b) {
                    failures.push(format!("{name}: {at:?}"));
                }
                let protobuf = ferry_schema::proto::encode(&ty, &decoded.object);
                // An empty list and none are the same to protobuf.
                let back =
                    ferry_schema::proto::decode(&ty, &protobuf).map(|object| ferry_schema::proto::encode(&ty, &object));
                if back.as_ref() != Ok(&protobuf) {
                    failures.push(format!("{name}: not the same through protobuf"));
                }
            }
        }
    }
    assert_eq!(failures, Vec::<String>::new(), "{} failures of {checked}", failures.len());
    assert_eq!(checked, 440);
}

/// The answer with every time the same, so that only whether there is one is compared.
fn managed_fields(object: &Value) -> Value {
    let mut fields = object.pointer("/metadata/managedFields").cloned().unwrap_or_default();
    for entry in fields.as_array_mut().into_iter().flatten() {
        if let Some(time) = entry.get_mut("time") {
            *time = "t".into();
        }
    }
    // Recordings are in the order of their times, which they do not tell.
    if let Value::Array(entries) = &mut fields {
        entries.sort_by_key(Value::to_string);
    }
    fields
}

#[test]
fn applies_own_what_is_recorded() {
    let mut objects: std::collections::HashMap<String, Value> = std::collections::HashMap::new();
    let mut failures = Vec::new();
    let mut checked = 0;
    for (name, step) in steps() {
        let case = name.split('/').next().unwrap_or_default();
        if matches!(case, "apply-hpa-versions" | "apply-hpa-withdrawn") {
            continue; // versions are turned into each other by the API server
        }
        let path = step["path"].as_str().unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let option =
            |key: &str| query.split('&').find_map(|q| q.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
        let key = format!("{case} {path}");
        let is_apply = step.pointer("/headers/Content-Type").is_some_and(|t| t == "application/apply-patch+yaml");
        let mut answer = step.pointer("/want/body").cloned().unwrap_or_default();
        with_times(&mut answer, "");
        let answered =
            answer.pointer("/metadata/managedFields").is_some() || answer.get("metadata.managedFields").is_some();
        let subresource = path.ends_with("/status") || path.ends_with("/scale");
        if is_apply && answered && !subresource && step["body"].is_object() {
            let config = &step["body"];
            let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (version, kind) = (text("apiVersion"), text("kind"));
            let (group, version) = version.split_once('/').unwrap_or(("", &version));
            let gvk = ferry_meta::GroupVersionKind::new(group, version, &*kind);
            let live = objects.get(&key);
            let created = step.pointer("/want/code").is_some_and(|c| c == 201);
            if let (Some(ty), true) = (ferry_schema::builtin().kind(&gvk), created || live.is_some()) {
                let write = ferry_schema::managed::Write {
                    gvk: &gvk,
                    manager: option("fieldManager"),
                    subresource: "",
                    reset: &["status"],
                    now: jiff::Timestamp::UNIX_EPOCH,
                    versions: None,
                };
                let force = option("force") == "true";
                let live = if created { None } else { live };
                let expected = match answer.get("metadata.managedFields") {
                    Some(fields) => serde_json::json!({"metadata": {"managedFields": fields}}),
                    None => answer.clone(),
                };
                checked += 1;
                match ferry_schema::managed::apply(&ty, &write, live, config, force) {
                    Ok(ours) if managed_fields(&ours) == managed_fields(&expected) => {}
                    Ok(ours) => {
                        failures.push(format!("{name}: {} theirs {}", managed_fields(&ours), managed_fields(&expected)))
                    }
                    Err(error) => failures.push(format!("{name}: {error}")),
                }
            }
        }
        if subresource || step["method"] == "DELETE" {
            objects.remove(key.trim_end_matches("/status").trim_end_matches("/scale"));
        } else if answer.pointer("/metadata/managedFields").is_some() {
            let place = if step["method"] == "POST" {
                format!("{key}/{}", answer["metadata"]["name"].as_str().unwrap_or_default())
            } else {
                key
            };
            objects.insert(place, answer);
        } else if matches!(step["method"].as_str(), Some("PATCH" | "PUT"))
            && step.pointer("/want/code").and_then(Value::as_u64).is_none_or(|code| code < 300)
        {
            objects.remove(&key); // changed in a way that was not recorded
        }
    }
    assert_eq!(failures, Vec::<String>::new(), "{} failures of {checked}", failures.len());
    assert_eq!(checked, 28);
}

//! ConfigMaps and Secrets of literals and files.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::Digest;

use super::change::set;
use super::{Item, Result, file, pairs, texts};

pub fn all(root: &Path, kustomization: &Value, items: &mut Vec<Item>) -> Result<()> {
    for (field, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
        for generator in kustomization[field].as_array().into_iter().flatten() {
            let made = one(root, kind, generator, &kustomization["generatorOptions"])?;
            place(made, generator["behavior"].as_str().unwrap_or("create"), items)?;
        }
    }
    Ok(())
}

fn one(root: &Path, kind: &str, generator: &Value, shared: &Value) -> Result<Item> {
    let name = generator["name"].as_str().unwrap_or_default();
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = generator["namespace"].as_str() {
        object["metadata"]["namespace"] = namespace.into();
    }
    let (mut data, mut binary) = (Map::new(), Map::new());
    let mut add = |key: &str, bytes: Vec<u8>| match (kind, String::from_utf8(bytes)) {
        ("Secret", Ok(text)) => drop(data.insert(key.to_owned(), STANDARD.encode(text).into())),
        ("Secret", Err(error)) => drop(data.insert(key.to_owned(), STANDARD.encode(error.as_bytes()).into())),
        (_, Ok(text)) => drop(data.insert(key.to_owned(), text.into())),
        (_, Err(error)) => drop(binary.insert(key.to_owned(), STANDARD.encode(error.as_bytes()).into())),
    };
    for path in texts(&generator["envs"]).chain(generator["env"].as_str()) {
        let text = file(root, path)?;
        let lines = String::from_utf8_lossy(&text).into_owned();
        for line in lines.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            add(key, value.as_bytes().to_vec());
        }
    }
    for word in texts(&generator["files"]) {
        let (key, path) = match word.split_once('=') {
            Some(pair) => pair,
            None => (word.rsplit('/').next().unwrap_or(word), word),
        };
        add(key, file(root, path)?);
    }
    for word in texts(&generator["literals"]) {
        let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(format!("invalid literal source {word}, expected key=value"));
        };
        let quoted = |mark: char| value.strip_prefix(mark).and_then(|value| value.strip_suffix(mark));
        add(key, quoted('"').or_else(|| quoted('\'')).unwrap_or(value).as_bytes().to_vec());
    }
    if !data.is_empty() {
        object["data"] = data.into();
    }
    if !binary.is_empty() {
        object["binaryData"] = binary.into();
    }
    if kind == "Secret" {
        object["type"] = generator["type"].as_str().unwrap_or("Opaque").into();
    }
    let own = &generator["options"];
    for options in [shared, own] {
        for field in ["labels", "annotations"] {
            for (key, value) in pairs(&options[field]) {
                object["metadata"][field][key] = value.clone();
            }
        }
    }
    let option = |field: &str| own[field].as_bool().or(shared[field].as_bool()).unwrap_or(false);
    if option("immutable") {
        object["immutable"] = true.into();
    }
    let mut item = Item::new(object);
    item.hashed = !option("disableNameSuffixHash");
    Ok(item)
}

/// A new object, or more of one that is there.
fn place(made: Item, behavior: &str, items: &mut Vec<Item>) -> Result<()> {
    let known = items.iter_mut().find(|item| item.kind() == made.kind() && item.has_name(made.name()));
    match (behavior, known) {
        ("merge", Some(known)) => {
            for field in ["data", "binaryData"] {
                for (key, value) in pairs(&made.object[field]) {
                    set(&mut known.object, field, key, value);
                }
            }
            for field in ["labels", "annotations"] {
                for (key, value) in pairs(&made.object["metadata"][field]) {
                    set(&mut known.object["metadata"], field, key, value);
                }
            }
            Ok(())
        }
        ("replace", Some(known)) => {
            let old = std::mem::replace(&mut known.object, made.object);
            known.object["metadata"]["name"] = old["metadata"]["name"].clone();
            // What was said of the old object is said of the new one, unless it says otherwise.
            for field in ["labels", "annotations"] {
                for (key, value) in pairs(&old["metadata"][field]) {
                    if known.object["metadata"][field][key.as_str()].is_null() {
                        set(&mut known.object["metadata"], field, key, value);
                    }
                }
            }
            Ok(())
        }
        ("merge" | "replace", None) => {
            Err(format!("merging from generator: id {} does not exist; cannot merge or replace", made.id()))
        }
        _ => {
            items.push(made);
            Ok(())
        }
    }
}

/// Ten letters of what is in it, as kustomize makes them.
pub fn hash(object: &Value) -> String {
    let of = |field: &str| Some(&object[field]).filter(|value| !value.is_null()).cloned().unwrap_or("".into());
    let mut told = json!({"kind": object["kind"], "name": "", "data": of("data")});
    match object["kind"].as_str() {
        Some("Secret") => told["type"] = of("type"),
        _ if object["binaryData"].is_object() => told["binaryData"] = of("binaryData"),
        _ => {}
    }
    letters(&told)
}

/// The same as kubectl makes them, which tells no data from empty data and knows the name.
pub fn typed_hash(object: &Value, name: &str) -> String {
    let mut told = json!({"kind": object["kind"], "name": name, "data": object["data"]});
    // Both are made with a map, if only an empty one.
    if told["data"].is_null() {
        told["data"] = json!({});
    }
    if object["kind"] == "Secret" {
        told["type"] = object["type"].as_str().unwrap_or_default().into();
    } else if object["binaryData"].is_object() {
        told["binaryData"] = object["binaryData"].clone();
    }
    letters(&told)
}

fn letters(told: &Value) -> String {
    let digest = sha2::Sha256::digest(crate::print::compact(told));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let letter = |c: char| match c {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        other => other,
    };
    hex.chars().take(10).map(letter).collect()
}

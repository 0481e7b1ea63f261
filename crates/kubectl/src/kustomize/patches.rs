//! Patches of a kustomization: strategic ones, which name their object or are told it, and JSON patches.

use std::path::Path;

use ferry_schema::patch::{json_patch, strategic_merge};
use serde_json::Value;

use super::{Item, Result, change, checked, file, parse, texts};
use crate::commands::merge;

pub fn all(root: &Path, kustomization: &Value, items: &mut Vec<Item>) -> Result<()> {
    for name in texts(&kustomization["patchesStrategicMerge"]) {
        // A text with lines in it is the patch itself.
        let text = if name.contains('\n') { name.as_bytes().to_vec() } else { file(root, name)? };
        one(&parse(&text, Path::new(name))?, &Value::Null, items)?;
    }
    for field in ["patches", "patchesJson6902"] {
        for patch in kustomization[field].as_array().into_iter().flatten() {
            let (text, source) = match (patch["path"].as_str(), patch["patch"].as_str()) {
                (Some(path), None) => (file(root, path)?, path),
                (None, Some(text)) => (text.as_bytes().to_vec(), "patch"),
                _ => return Err("must specify one of patch and path for each patch".to_owned()),
            };
            one(&parse(&text, Path::new(source))?, &patch["target"], items)?;
        }
    }
    Ok(())
}

fn one(documents: &[Value], target: &Value, items: &mut Vec<Item>) -> Result<()> {
    for patch in documents {
        let wanted: Vec<usize> = match target {
            Value::Null => named(patch, items)?,
            target => {
                let mut found = Vec::new();
                for (at, item) in items.iter().enumerate() {
                    if selected(item, target)? {
                        found.push(at);
                    }
                }
                found
            }
        };
        for at in wanted.into_iter().rev() {
            if patch["$patch"] == "delete" {
                items.remove(at);
            } else {
                patched(&mut items[at], patch)?;
            }
        }
    }
    Ok(())
}

/// The object that a patch names itself.
fn named(patch: &Value, items: &[Item]) -> Result<Vec<usize>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&patch["kind"]), text(&patch["metadata"]["name"]));
    let group = |object: &Value| text(&object["apiVersion"]).rsplit_once('/').map(|(group, _)| group.to_owned());
    let is_it = |item: &Item| item.kind() == kind && item.has_name(&name) && group(&item.object) == group(patch);
    match items.iter().position(is_it) {
        Some(at) => Ok(vec![at]),
        None => Err(format!("no resource matches strategic merge patch {:?}", Item::new(patch.clone()).id())),
    }
}

/// Whether the fields that a selector has are the object's own.
pub fn is_exactly(item: &Item, selector: &Value) -> bool {
    let api_version = item.object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is = |field: &str, own: &str| selector[field].as_str().is_none_or(|wanted| wanted.is_empty() || wanted == own);
    let name = selector["name"].as_str().unwrap_or_default();
    is("group", group)
        && is("version", version)
        && is("kind", item.kind())
        && (name.is_empty() || item.has_name(name))
        && is("namespace", item.object["metadata"]["namespace"].as_str().unwrap_or("default"))
}

/// Names and kinds of a target are patterns.
pub fn selected(item: &Item, target: &Value) -> Result<bool> {
    let api_version = item.object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let fits = |field: &str, values: &[&str]| match target[field].as_str().filter(|text| !text.is_empty()) {
        None => Ok(true),
        Some(pattern) => match regex::Regex::new(&format!("^(?:{pattern})$")) {
            Ok(pattern) => Ok(values.iter().any(|value| pattern.is_match(value))),
            Err(error) => Err(format!("invalid pattern {pattern:?} of a patch's target: {error}")),
        },
    };
    let mut names: Vec<&str> = item.names.iter().map(String::as_str).collect();
    names.push(item.name());
    let namespace = item.object["metadata"]["namespace"].as_str().unwrap_or("default");
    if !(fits("group", &[group])?
        && fits("version", &[version])?
        && fits("kind", &[item.kind()])?
        && fits("name", &names)?
        && fits("namespace", &[namespace])?)
    {
        return Ok(false);
    }
    for (field, marks) in [("labelSelector", "labels"), ("annotationSelector", "annotations")] {
        if let Some(text) = target[field].as_str().filter(|text| !text.is_empty()) {
            let selector = ferry_meta::selector::LabelSelector::parse(text)?;
            if !selector.matches(ferry_meta::object::map(&item.object, &format!("/metadata/{marks}"))) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn patched(item: &mut Item, patch: &Value) -> Result<()> {
    let (name, namespace) = (item.object["metadata"]["name"].clone(), item.object["metadata"]["namespace"].clone());
    if patch.is_array() {
        let done = json_patch(item.object.take(), patch);
        let object = done.map_err(|error| format!("a JSON patch does not fit: {error}"))?;
        item.object = checked(object, "a JSON patch")?.object;
        return Ok(());
    }
    match change::ty(item) {
        Some(ty) => {
            let id = item.id();
            let done = strategic_merge(&ty, item.object.take(), patch);
            item.object = done.map_err(|error| format!("{id}: {error}"))?;
        }
        None => merge(&mut item.object, patch),
    }
    item.object = checked(item.object.take(), "a patch")?.object;
    // A patch says which object it means, not what it is to be called.
    item.object["metadata"]["name"] = name;
    if !namespace.is_null() {
        item.object["metadata"]["namespace"] = namespace;
    }
    Ok(())
}

//! Replacements: a value of one object, or a given one, written into fields of others.

use std::path::Path;

use serde_json::Value;

use super::{Item, Result, file, parse, patches, texts};

/// Fields that a path with `*` may name.
const MOST: usize = 10_000;
const NAME: &str = "metadata.name";

pub fn all(root: &Path, kustomization: &Value, items: &mut [Item]) -> Result<()> {
    for entry in kustomization["replacements"].as_array().into_iter().flatten() {
        match entry["path"].as_str() {
            None => one(entry, items)?,
            Some(path) => {
                let whole = parse(&file(root, path)?, Path::new(path))?;
                let lists = whole.iter().flat_map(|document| match document {
                    Value::Array(list) => list.iter().collect::<Vec<_>>(),
                    other => vec![other],
                });
                lists.into_iter().try_for_each(|entry| one(entry, items))?;
            }
        }
    }
    Ok(())
}

fn one(entry: &Value, items: &mut [Item]) -> Result<()> {
    let targets = entry["targets"].as_array().filter(|targets| !targets.is_empty());
    let value = match (&entry["source"], &entry["sourceValue"]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, value) => Some(value.clone()),
        (source, Value::Null) => Some(source_value(source, items)?),
        _ => return Err("value and resource selectors are mutually exclusive".into()),
    };
    let (Some(targets), Some(value)) = (targets, value) else {
        return Err("replacements must specify a source and at least one target".into());
    };
    for target in targets {
        if !target["select"].is_object() {
            return Err("target must specify resources to select".into());
        }
        let written: Vec<&str> = texts(&target["fieldPaths"]).collect();
        let fields = if written.is_empty() { vec![NAME] } else { written };
        for item in items.iter_mut() {
            if !patches::selected(item, &target["select"])? || rejected(item, &target["reject"])? {
                continue;
            }
            for field in &fields {
                write(item, field, &value, &target["options"])?;
            }
        }
    }
    Ok(())
}

fn rejected(item: &Item, rejects: &Value) -> Result<bool> {
    for reject in rejects.as_array().into_iter().flatten() {
        if reject.as_object().is_some_and(|fields| !fields.is_empty()) && patches::selected(item, reject)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn source_value(source: &Value, items: &[Item]) -> Result<Value> {
    let shown = || {
        let of = |field: &str, none: &str| source[field].as_str().unwrap_or(none).to_owned();
        format!(
            "{}.{}.{}/{}.{}",
            of("kind", "[noKind]"),
            of("version", "[noVer]"),
            of("group", "[noGrp]"),
            of("name", "[noName]"),
            of("namespace", "[noNs]")
        )
    };
    let mut found = Vec::new();
    for item in items {
        if patches::is_exactly(item, source) {
            found.push(item);
        }
    }
    let path = source["fieldPath"].as_str().filter(|path| !path.is_empty()).unwrap_or(NAME);
    let item = match &*found {
        [] => return Err(format!("nothing selected by {}:{path}", shown())),
        [item] => item,
        _ => return Err(format!("multiple matches for selector {}:{path}", shown())),
    };
    let parts = split(path);
    let mut values = Vec::new();
    find(&item.object, &parts, &mut Vec::new(), &mut values)?;
    let value = values.first().and_then(|pointer| item.object.pointer(pointer));
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Err(format!("fieldPath `{path}` is missing for replacement source {}", shown()));
    };
    let Some(delimiter) = source["options"]["delimiter"].as_str().filter(|text| !text.is_empty()) else {
        return Ok(value.clone());
    };
    let text = scalar(value).ok_or("delimiter option can only be used with scalar nodes")?;
    let index = source["options"]["index"].as_i64().unwrap_or(0);
    let part = usize::try_from(index).ok().and_then(|index| text.split(delimiter).nth(index));
    part.map(Value::from).ok_or_else(|| format!("options.index {index} is out of bounds for value {text}"))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// `spec.containers.[name=web].image`; a dot in `\.` or brackets is none.
fn split(path: &str) -> Vec<String> {
    let (mut parts, mut part, mut inside) = (Vec::new(), String::new(), false);
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => part.extend(letters.next()),
            '[' => {
                inside = true;
                part.push(letter);
            }
            ']' => {
                inside = false;
                part.push(letter);
            }
            '.' if !inside => parts.push(std::mem::take(&mut part)),
            letter => part.push(letter),
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

fn escaped(part: &str) -> String {
    part.replace('~', "~0").replace('/', "~1")
}

/// The JSON pointers of all fields that the path names.
fn find(value: &Value, parts: &[String], at: &mut Vec<String>, found: &mut Vec<String>) -> Result<()> {
    if found.len() >= MOST {
        return Err("a field path names too many fields".into());
    }
    let Some((part, rest)) = parts.split_first() else {
        found.push(at.iter().map(|part| format!("/{}", escaped(part))).collect());
        return Ok(());
    };
    for name in names(value, part) {
        let below = match value {
            Value::Object(map) => map.get(&name),
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        };
        if let Some(below) = below {
            at.push(name);
            find(below, rest, at, found)?;
            at.pop();
        }
    }
    Ok(())
}

/// Which entries of a map or a list one part of a path means.
fn names(value: &Value, part: &str) -> Vec<String> {
    match value {
        Value::Object(map) if part == "*" => map.keys().cloned().collect(),
        Value::Object(_) => vec![part.to_owned()],
        Value::Array(items) => {
            let all = 0..items.len();
            if part == "*" {
                return all.map(|index| index.to_string()).collect();
            }
            let Some(inner) = part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) else {
                return vec![part.to_owned()];
            };
            let Some((key, wanted)) = inner.split_once('=') else { return Vec::new() };
            let is_it = |index: &usize| match key {
                "" => scalar(&items[*index]).as_deref() == Some(wanted),
                key => scalar(&items[*index][key]).as_deref() == Some(wanted),
            };
            all.filter(is_it).map(|index| index.to_string()).collect()
        }
        _ => Vec::new(),
    }
}

fn write(item: &mut Item, field: &str, value: &Value, options: &Value) -> Result<()> {
    let parts = split(field);
    let create = options["create"] == true;
    let mut pointers = Vec::new();
    find(&item.object, &parts, &mut Vec::new(), &mut pointers)?;
    if pointers.is_empty() && create {
        created(&mut item.object, &parts);
        find(&item.object, &parts, &mut Vec::new(), &mut pointers)?;
    }
    if pointers.is_empty() {
        let what = if create { "find or create" } else { "find" };
        return Err(format!("unable to {what} field {field:?} in replacement target"));
    }
    for pointer in pointers {
        let new = match item.object.pointer(&pointer) {
            // Labels and annotations are texts.
            Some(old) if pointer.starts_with("/metadata/labels/") || pointer.starts_with("/metadata/annotations/") => {
                let new = replaced(old, value, options)?;
                scalar(&new).map_or(new, Value::from)
            }
            Some(old) => replaced(old, value, options)?,
            None => continue,
        };
        if pointer == "/metadata/name"
            && let Some(name) = new.as_str()
        {
            item.rename(name.to_owned());
        } else if let Some(place) = item.object.pointer_mut(&pointer) {
            *place = new;
        }
    }
    Ok(())
}

/// Maps on the way to a field that is not there. Lists are not made.
fn created(mut value: &mut Value, parts: &[String]) {
    for part in parts {
        if value.is_null() {
            *value = Value::Object(serde_json::Map::new());
        }
        let name = match value {
            Value::Object(_) if part != "*" && !part.starts_with('[') => part.clone(),
            _ => names(value, part).into_iter().next().unwrap_or_default(),
        };
        let next = match value {
            Value::Object(map) if !name.is_empty() => Some(map.entry(name).or_insert(Value::Null)),
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get_mut(index)),
            _ => None,
        };
        let Some(next) = next else { return };
        value = next;
    }
}

fn replaced(old: &Value, new: &Value, options: &Value) -> Result<Value> {
    let mut new = new.clone();
    if let Some(delimiter) = options["delimiter"].as_str().filter(|text| !text.is_empty()) {
        let not_scalar = "delimiter option can only be used with scalar nodes";
        let text = scalar(old).or_else(|| old.is_null().then(String::new)).ok_or(not_scalar)?;
        let part = scalar(&new).ok_or(not_scalar)?;
        let mut parts: Vec<&str> = text.split(delimiter).collect();
        match usize::try_from(options["index"].as_i64().unwrap_or(0)) {
            Err(_) => parts.insert(0, &part),
            Ok(index) if index >= parts.len() => parts.push(&part),
            Ok(index) => parts[index] = &part,
        }
        new = parts.join(delimiter).into();
    }
    // A field keeps its type where the text can be read as it.
    Ok(match (old, scalar(&new)) {
        (Value::String(_), Some(text)) => text.into(),
        (Value::Number(_) | Value::Bool(_), Some(text)) => {
            serde_json::from_str::<Value>(&text).ok().filter(|value| !value.is_object()).unwrap_or(new)
        }
        _ => new,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<Item> {
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a", "image": "web:1"}, {"name": "b", "image": "web:1", "ports": [{"containerPort": 1}]}]}});
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
            "data": {"tag": "7", "port": "80", "a.b": "x"}});
        vec![Item::new(pod), Item::new(map)]
    }

    fn run(text: &str) -> Result<Vec<Item>> {
        let (entry, _) = ferry_schema::yaml::parse_value(text.as_bytes()).unwrap();
        let mut items = items();
        one(&entry, &mut items).map(|()| items)
    }

    #[test]
    fn values_go_where_the_paths_lead() {
        let tag = "{source: {kind: ConfigMap, fieldPath: data.tag}, targets: [{select: {kind: Pod}, \
                   fieldPaths: ['spec.containers.*.image'], options: {delimiter: ':', index: 1}}]}";
        let pod = &run(tag).unwrap()[0].object;
        assert_eq!(
            (&pod["spec"]["containers"][0]["image"], &pod["spec"]["containers"][1]["image"]),
            (&"web:7".into(), &"web:7".into())
        );
        let port = "{source: {name: m, fieldPath: data.port}, targets: [{select: {name: p}, \
                    fieldPaths: ['spec.containers.[name=b].ports.0.containerPort']}]}";
        assert_eq!(run(port).unwrap()[0].object["spec"]["containers"][1]["ports"][0]["containerPort"], 80);
        let made = "{source: {name: m, fieldPath: 'data.a\\.b'}, targets: [{select: {name: p}, \
                    fieldPaths: ['metadata.labels.x'], options: {create: true}}]}";
        assert_eq!(run(made).unwrap()[0].object["metadata"]["labels"]["x"], "x");
        let text = "{source: {kind: Pod, fieldPath: 'spec.containers.1.ports.0.containerPort'}, targets: [{select: {name: m}, \
                    fieldPaths: ['metadata.annotations.port'], options: {create: true}}]}";
        assert_eq!(run(text).unwrap()[1].object["metadata"]["annotations"]["port"], "1");
    }

    #[test]
    fn what_is_not_there_is_told() {
        for (text, why) in [
            ("{source: {kind: Nope}, targets: [{select: {}}]}", "nothing selected by"),
            ("{source: {}, targets: [{select: {}}]}", "multiple matches"),
            (
                "{source: {kind: Pod, fieldPath: spec.nope}, targets: [{select: {kind: Pod}}]}",
                "is missing for replacement",
            ),
            (
                "{source: {kind: Pod}, targets: [{select: {kind: ConfigMap}, fieldPaths: [data.nope]}]}",
                "unable to find field",
            ),
            ("{source: {kind: Pod}}", "at least one target"),
        ] {
            let said = run(text).map(|_| ()).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}

//! Objects of files, folders, addresses and standard input.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Info;
use crate::config::file::go_error;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::session::Context;
use crate::text::quote;

const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// The objects, what could not be read, and whether all of them come from one file.
pub async fn read(context: &Context, names: &[String], recursive: bool) -> Result<(Vec<Info>, Vec<Error>, bool)> {
    let (mut infos, mut errors) = (Vec::new(), Vec::new());
    if let Some(folder) = context.flags.given("kustomize") {
        for object in crate::kustomize::build(folder, crate::kustomize::Asked::default()).await? {
            match info(context, object, folder).await {
                Ok(info) => infos.push(info),
                Err(error) => errors.push(error),
            }
        }
    }
    let mut one_file = names.len() == 1;
    // Files that are not there are told before anything is read.
    let (mut sources, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match name == "-" || crate::fetch::is_url(name) {
            true => sources.push((name, Vec::new())),
            false => match expand(name, recursive) {
                Ok(paths) => sources.push((name, paths)),
                Err(error) => missing.push(error),
            },
        }
    }
    Error::all(missing)?;
    for (name, paths) in sources {
        if name == "-" {
            let mut body = Vec::new();
            std::io::stdin().read_to_end(&mut body).map_err(|error| Error::say(error.to_string()))?;
            one_file = false;
            objects(context, &body, "STDIN", &mut infos, &mut errors).await;
        } else if crate::fetch::is_url(name) {
            one_file = false;
            match crate::fetch::get(name).await {
                Ok(body) => objects(context, &body, name, &mut infos, &mut errors).await,
                Err(error) => errors.push(error),
            }
        }
        for path in paths {
            one_file &= path == Path::new(name);
            match std::fs::read(&path) {
                Ok(body) => objects(context, &body, &path.display().to_string(), &mut infos, &mut errors).await,
                Err(error) => errors.push(Error::say(go_error("open", &path, &error))),
            }
        }
    }
    if infos.is_empty() {
        Error::all(errors)?;
        let command = context.path.rsplit(' ').next().unwrap_or_default();
        return Err(Error::say(format!("no objects passed to {command}")));
    }
    Ok((infos, errors, one_file))
}

/// The objects of a text, and what could not be read of it.
pub async fn parse(context: &Context, body: &[u8], source: &str) -> (Vec<Info>, Vec<Error>) {
    let (mut infos, mut errors) = (Vec::new(), Vec::new());
    objects(context, body, source, &mut infos, &mut errors).await;
    (infos, errors)
}

fn expand(name: &str, recursive: bool) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    if !path.exists() {
        // A pattern may name files.
        let matches = glob(name);
        if !matches.is_empty() {
            return Ok(matches);
        }
        return Err(Error::say(format!("the path {} does not exist", quote(name))));
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    walk(path, recursive, &mut found)?;
    if found.is_empty() {
        return Err(Error::say(format!("error reading [{name}]: recognized file extensions are [.json .yaml .yml]")));
    }
    Ok(found)
}

fn walk(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<()> {
    let listing = std::fs::read_dir(folder).map_err(|error| Error::say(go_error("open", folder, &error)))?;
    let mut entries: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if recursive {
                walk(&path, recursive, found)?;
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|ending| ENDINGS.contains(&ending)) {
            found.push(path);
        }
    }
    Ok(())
}

/// `*` and `?` in the last part of a path.
fn glob(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let (Some(last), folder) = (path.file_name().and_then(|n| n.to_str()), path.parent().unwrap_or(Path::new("")))
    else {
        return Vec::new();
    };
    if !last.contains(['*', '?']) {
        return Vec::new();
    }
    let expression: String = last
        .chars()
        .map(|c| match c {
            '*' => ".*".to_owned(),
            '?' => ".".to_owned(),
            c => regex::escape(&c.to_string()),
        })
        .collect();
    let Ok(expression) = regex::Regex::new(&format!("^{expression}$")) else { return Vec::new() };
    let folder_read = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(folder_read) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> =
        names.filter(|name| expression.is_match(name)).map(|name| folder.join(name)).collect();
    found.sort();
    found
}

/// The documents of a text: JSON values one behind the other, or YAML between lines of `---`.
pub fn documents(body: &[u8]) -> Result<Vec<Value>, String> {
    match documents_until_wrong(body) {
        (documents, None) => Ok(documents),
        (_, Some(why)) => Err(why),
    }
}

/// The documents before the first that cannot be read, and why it cannot.
fn documents_until_wrong(body: &[u8]) -> (Vec<Value>, Option<String>) {
    let start = body.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(body.len());
    let mut values = Vec::new();
    let mut rest = body;
    if body.get(start) == Some(&b'{') {
        let mut found = Vec::new();
        let mut stream = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
        loop {
            let behind = stream.byte_offset();
            match stream.next() {
                Some(Ok(value)) => found.push(value),
                Some(Err(error)) if error.is_eof() => return (found, Some("unexpected EOF".to_owned())),
                Some(Err(_)) if found.is_empty() => break,
                // JSON documents may stand between the lines that stand between YAML documents.
                Some(Err(_)) if body[behind..].trim_ascii_start().starts_with(b"---") => {
                    values = found;
                    rest = &body[behind..];
                    break;
                }
                Some(Err(error)) => return (found, Some(error.to_string())),
                None => return (found, None),
            }
        }
    }
    let text = String::from_utf8_lossy(rest);
    let mut parts = Vec::new();
    let mut part = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push_str(line);
        }
    }
    parts.push(part);
    for part in parts {
        match ferry_schema::yaml::parse_value(part.as_bytes()) {
            Ok((Value::Null, _)) => {}
            Ok((value, _)) => values.push(value),
            Err(error) => return (values, Some(format!("error converting YAML to JSON: {error}"))),
        }
    }
    (values, None)
}

async fn objects(context: &Context, body: &[u8], source: &str, infos: &mut Vec<Info>, errors: &mut Vec<Error>) {
    let (documents, wrong) = documents_until_wrong(body);
    for document in documents.into_iter().flat_map(flattened) {
        match info(context, document, source).await {
            Ok(info) => infos.push(info),
            Err(error) => errors.push(error),
        }
    }
    errors.extend(wrong.map(|why| Error::say(format!("error parsing {source}: {why}"))));
}

/// The items of a list, or the one object.
pub fn flattened(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(items) => {
            document["items"] = items;
            vec![document]
        }
        None => vec![document],
    }
}

/// An object of a file, of the namespace that is meant.
async fn info(context: &Context, mut object: Value, source: &str) -> Result<Info> {
    let unable = |why: String| Error::say(format!("unable to decode {}: {why}", quote(source)));
    if !object.is_object() {
        if !matches!(context.flags.text("validate"), "" | "false" | "ignore") {
            return Err(Error::say(format!(
                "error validating {}: error validating data: invalid object to validate; if you choose to ignore these errors, turn validation off with --validate=false",
                quote(source)
            )));
        }
        return Err(unable("json: cannot unmarshal into Go value of type struct".into()));
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let missing: Vec<&str> = [("apiVersion", &api_version), ("kind", &kind)]
        .iter()
        .filter(|(_, value)| value.is_empty())
        .map(|(field, _)| *field)
        .collect();
    if !missing.is_empty() && !matches!(context.flags.text("validate"), "" | "false" | "ignore") {
        let all: Vec<String> = missing.iter().map(|field| format!("{field} not set")).collect();
        let all = if all.len() == 1 { all.join("") } else { format!("[{}]", all.join(", ")) };
        return Err(Error::say(format!(
            "error validating {}: error validating data: {all}; if you choose to ignore these errors, turn validation off with --validate=false",
            quote(source)
        )));
    }
    if kind.is_empty() {
        return Err(unable(format!("Object 'Kind' is missing in '{}'", compact(&object))));
    }
    if api_version.is_empty() {
        return Err(unable(format!("Object 'apiVersion' is missing in '{}'", compact(&object))));
    }
    if object["metadata"].is_null() {
        object["metadata"] = serde_json::json!({});
    }
    if !object["metadata"].is_object() {
        return Err(unable("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta".into()));
    }
    for (field, values) in ["annotations", "labels"].map(|field| (field, &object["metadata"][field])) {
        let wrong = values.as_object().into_iter().flat_map(|map| map.values()).find_map(|value| match value {
            Value::String(_) | Value::Null => None,
            Value::Bool(_) => Some("bool"),
            Value::Number(_) => Some("number"),
            Value::Array(_) => Some("array"),
            Value::Object(_) => Some("object"),
        });
        if let Some(found) = wrong {
            return Err(unable(format!(
                "json: cannot unmarshal {found} into Go struct field ObjectMeta.metadata.{field} of type string"
            )));
        }
    }
    if needs_go_type(&context.path) && !is_built_in(&api_version, &kind) {
        let (kind, version) = (quote(&kind), quote(&api_version));
        return Err(unable(format!(
            "no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if context.flags.is("local") {
        let resource = without_server(&api_version, &kind, &object);
        let namespace = if resource.namespaced { Some(settle(context, &mut object).await?) } else { None };
        return Ok(Info { resource, namespace, name, object, source: source.to_owned() });
    }
    let resource = context
        .with_mapper(|mapper| {
            mapper.kind(&api_version, &kind).cloned().ok_or_else(|| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
                Error::say(format!(
                    "resource mapping not found for name: {} namespace: {} from {}: no matches for kind {} in version {}\nensure CRDs are installed first",
                    quote(name),
                    quote(namespace),
                    quote(source),
                    quote(&kind),
                    quote(&api_version)
                ))
            })
        })
        .await?;
    let namespace = if resource.namespaced { Some(settle(context, &mut object).await?) } else { None };
    Ok(Info { resource, namespace, name, object, source: source.to_owned() })
}

/// Commands that read files into Go's types, and so know no others.
fn needs_go_type(path: &str) -> bool {
    path == "kubectl exec" || ["kubectl set ", "kubectl rollout "].iter().any(|group| path.starts_with(group))
}

fn is_built_in(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ferry_schema::builtin().kind(&ferry_meta::GroupVersionKind::new(group, version, kind)).is_some()
}

/// What an object says of itself where nobody may be asked: it is in a namespace if it names one.
fn without_server(api_version: &str, kind: &str, object: &Value) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: kind.to_lowercase(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        namespaced: object["metadata"]["namespace"].as_str().is_some_and(|name| !name.is_empty()),
        ..Resource::default()
    }
}

fn compact(object: &Value) -> String {
    String::from_utf8(ferry_schema::encode::encode_any(object, false)).unwrap_or_default()
}

async fn settle(context: &Context, object: &mut Value) -> Result<String> {
    let wanted = context.namespace().await?;
    let written = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    if written.is_empty() {
        if !object["metadata"].is_object() {
            object["metadata"] = serde_json::json!({});
        }
        object["metadata"]["namespace"] = wanted.clone().into();
        return Ok(wanted);
    }
    if context.namespace_is_explicit() && written != wanted {
        return Err(Error::say(format!(
            "the namespace from the provided object {} does not match the namespace {}. You must pass '--namespace={written}' to perform this operation.",
            quote(&written),
            quote(&wanted)
        )));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_may_stand_in_one_file() {
        let read = |text: &str| {
            let (values, wrong) = documents_until_wrong(text.as_bytes());
            (values.iter().map(|value| value["a"].to_string()).collect::<Vec<_>>().join(" "), wrong)
        };
        for (text, found, wrong) in [
            ("{\"a\":1}\n{\"a\":2}", "1 2", None),
            ("{\"a\":1}\n---\na: 2\n---\n{\"a\":3}\n", "1 2 3", None),
            ("{a: 1}\n---\na: 2\n", "1 2", None),
            ("{\"a\":1}\n{\"a\":", "1", Some("unexpected EOF")),
            ("{\"a\":", "", Some("unexpected EOF")),
        ] {
            assert_eq!(read(text), (found.to_owned(), wrong.map(str::to_owned)), "{text}");
        }
        assert!(read("{\"a\":1}\nnonsense").1.is_some());
    }
}

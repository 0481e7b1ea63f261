//! One kubeconfig file: read, and written by `config`.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};

pub fn read(path: &Path) -> Result<Value> {
    let body = std::fs::read(path).map_err(|error| {
        // A folder can be opened, and not read.
        let operation = if error.kind() == std::io::ErrorKind::IsADirectory { "read" } else { "open" };
        Error::say(format!(
            "error loading config file {:?}: {}",
            path.display().to_string(),
            go_error(operation, path, &error)
        ))
    })?;
    let (value, _) = ferry_schema::yaml::parse_value(&body)
        .map_err(|error| Error::say(format!("error loading config file {:?}: {error}", path.display().to_string())))?;
    match value {
        Value::Null => Ok(json!({})),
        value if value.is_object() => known(path, &value).map(|()| value),
        other => {
            let what = match other {
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            Err(Error::say(format!(
                "error loading config file {:?}: couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                path.display().to_string()
            )))
        }
    }
}

/// A file that says what it is must be a kubeconfig.
fn known(path: &Path, value: &Value) -> Result<()> {
    let of = |field: &str| value[field].as_str().unwrap_or_default();
    let (kind, version) = (of("kind"), of("apiVersion"));
    if matches!(kind, "" | "Config") && matches!(version, "" | "v1") {
        return Ok(());
    }
    let kind = if kind.is_empty() { "Config" } else { kind };
    let version = if version.is_empty() { "v1" } else { version };
    Err(Error::say(format!(
        "error loading config file {:?}: no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"",
        path.display().to_string()
    )))
}

/// How Go names what the system refused.
pub fn go_error(operation: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{operation} {}: {}", path.display(), go_reason(error))
}

/// The reason alone.
pub fn go_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        std::io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => "cannot assign requested address".to_owned(),
        _ => error.to_string(),
    }
}

/// Paths in a file are meant from where it is. A plug-in without a slash is looked for in PATH.
pub fn make_absolute(config: &mut Value, folder: &Path) {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let here = std::path::absolute(folder);
    let folder = here.as_deref().unwrap_or(folder);
    for (list, part, fields) in [
        ("clusters", "cluster", &["certificate-authority"][..]),
        ("users", "user", &["client-certificate", "client-key", "tokenFile"]),
    ] {
        for entry in config[list].as_array_mut().into_iter().flatten() {
            for field in fields {
                let Some(path) = entry[part][*field].as_str().filter(|path| !path.is_empty()) else { continue };
                if Path::new(path).is_relative() {
                    entry[part][*field] = joined(folder, path).into();
                }
            }
            let command = entry[part]["exec"]["command"].as_str().unwrap_or_default();
            if command.contains('/') && Path::new(command).is_relative() {
                entry[part]["exec"]["command"] = joined(folder, command).into();
            }
        }
    }
}

/// A path of a folder, without what means nothing in it.
fn joined(folder: &Path, path: &str) -> String {
    crate::preferences::cleaned(&folder.join(path).display().to_string())
}

/// As kubectl writes it: what must be there, and nothing that is empty.
pub fn normalized(config: &Value) -> Value {
    let mut config = config.clone();
    let empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    for (list, part, always) in [
        ("clusters", "cluster", &["server"][..]),
        ("contexts", "context", &["cluster", "user"]),
        ("users", "user", &[]),
    ] {
        let Some(entries) = config[list].as_array_mut().filter(|entries| !entries.is_empty()) else {
            config[list] = Value::Null;
            continue;
        };
        entries.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned());
        for entry in entries {
            if !entry[part].is_object() {
                entry[part] = json!({});
            }
            entry[part].as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !empty(value)));
            for field in always.iter().filter(|field| entry[part][**field].is_null()).collect::<Vec<_>>() {
                entry[part][*field] = "".into();
            }
        }
    }
    for field in ["preferences", "extensions"] {
        config.as_object_mut().into_iter().for_each(|map| {
            if map.get(field).is_some_and(empty) {
                map.remove(field);
            }
        });
    }
    config
}

/// Written beside and renamed, readable by its owner alone.
pub fn write(path: &Path, config: &Value) -> Result<()> {
    let config = &normalized(config);
    // A link stays one.
    let real = path.canonicalize();
    let path = real.as_deref().unwrap_or(path);
    let fail = |error: std::io::Error| Error::say(go_error("open", path, &error));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(fail)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    file.write_all(ferry_schema::yaml::to_yaml(config).as_bytes()).map_err(fail)?;
    file.persist(path).map_err(|error| fail(error.error))?;
    Ok(())
}

//! One kubeconfig file: read, and written by `config`.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};

pub fn read(path: &Path) -> Result<Value> {
    let body = std::fs::read(path).map_err(|error| {
        Error::say(format!(
            "error loading config file {:?}: {}",
            path.display().to_string(),
            go_error("open", path, &error)
        ))
    })?;
    let (value, _) = ferry_schema::yaml::parse_value(&body)
        .map_err(|error| Error::say(format!("error loading config file {:?}: {error}", path.display().to_string())))?;
    match value {
        Value::Null => Ok(json!({})),
        value if value.is_object() => Ok(value),
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

/// Paths in a file are meant from where it is.
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
                    entry[part][*field] = folder.join(path).display().to_string().into();
                }
            }
        }
    }
}

/// Written beside and renamed, readable by its owner alone.
pub fn write(path: &Path, config: &Value) -> Result<()> {
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

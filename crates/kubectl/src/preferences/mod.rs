//! kuberc: a user's defaults for flags, aliases of commands, and which credential plug-ins may run.

mod apply;
mod plugins;

pub use apply::apply;
pub use plugins::{Policy, cleaned};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::file::go_error;
use crate::text::{quote, warn};

const GROUP: &str = "kubectl.config.k8s.io";
pub const API_VERSION: &str = "kubectl.config.k8s.io/v1beta1";

/// In the form of v1beta1, which is also what is written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preference {
    pub kind: String,
    pub api_version: String,
    pub defaults: Option<Vec<Defaults>>,
    pub aliases: Option<Vec<Alias>>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub credential_plugin_policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_plugin_allowlist: Option<Vec<Allowed>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Defaults {
    #[serde(default)]
    pub command: String,
    pub options: Option<Vec<OptionDefault>>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alias {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub command: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepend_args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<OptionDefault>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OptionDefault {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub default: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Allowed {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Preference {
    pub fn empty() -> Self {
        Self {
            api_version: API_VERSION.into(),
            kind: "Preference".into(),
            defaults: None,
            aliases: None,
            credential_plugin_policy: String::new(),
            credential_plugin_allowlist: None,
        }
    }
}

/// The file that counts, and whether somebody named it. None where kuberc is off.
pub fn file(flag: &str) -> Result<Option<(PathBuf, bool)>, String> {
    let variable = std::env::var("KUBERC").unwrap_or_default();
    if variable == "off" {
        return match flag {
            "" => Ok(None),
            _ => Err("disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive".into()),
        };
    }
    let usual = crate::config::home().unwrap_or_default().join(".kube/kuberc");
    Ok(Some(match (flag, &*variable) {
        ("", "") => (usual, false),
        ("", named) | (named, _) => (PathBuf::from(named), true),
    }))
}

pub enum Unread {
    Missing(String),
    Broken(String),
}

impl Unread {
    pub fn text(&self) -> &str {
        match self {
            Self::Missing(why) | Self::Broken(why) => why,
        }
    }
}

/// The first document of the file that is one, and what is unknown in it.
pub fn read(path: &std::path::Path) -> Result<Option<(Preference, Option<String>)>, Unread> {
    let body = std::fs::read(path).map_err(|error| {
        let why = go_error("open", path, &error);
        match error.kind() {
            std::io::ErrorKind::NotFound => Unread::Missing(why),
            _ => Unread::Broken(why),
        }
    })?;
    let text = String::from_utf8_lossy(&body);
    let mut any = false;
    for part in text.split("\n---") {
        if part.trim().trim_start_matches("---").trim().is_empty() {
            continue;
        }
        any = true;
        let Ok((value, _)) = ferry_schema::yaml::parse_value(part.trim_start_matches("---").as_bytes()) else {
            continue;
        };
        if let Some(found) = decode(value) {
            return Ok(Some(found));
        }
    }
    match any {
        true => {
            Err(Unread::Broken(format!("no valid preferences found in {}, use --v=5 to see details", path.display())))
        }
        false => Ok(None),
    }
}

fn decode(mut value: Value) -> Option<(Preference, Option<String>)> {
    let version = value["apiVersion"].as_str()?.strip_prefix(GROUP)?.strip_prefix('/')?.to_owned();
    if value["kind"] != "Preference" || !matches!(&*version, "v1alpha1" | "v1beta1") {
        return None;
    }
    let alpha = version == "v1alpha1";
    drop_nulls(&mut value);
    let unknown = unknown_fields(&value, alpha);
    if alpha {
        to_beta(&mut value);
    }
    let mut found: Preference = serde_json::from_value(value).ok()?;
    found.api_version = API_VERSION.into();
    for entry in found.credential_plugin_allowlist.iter_mut().flatten() {
        // The name is the command's former name; two that differ mean nothing.
        match (entry.name.is_empty(), entry.command.is_empty()) {
            (false, true) => entry.command = entry.name.clone(),
            (false, false) if entry.name != entry.command => return None,
            _ => {}
        }
    }
    Some((found, unknown))
}

/// A field without a value is as one that is not there.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// `overrides` and `flags` have other names since.
fn to_beta(value: &mut Value) {
    fn rename(value: &mut Value, from: &str, to: &str) {
        if let Some(map) = value.as_object_mut()
            && let Some(found) = map.remove(from)
        {
            map.insert(to.to_owned(), found);
        }
    }
    rename(value, "overrides", "defaults");
    for list in ["defaults", "aliases"] {
        for entry in value[list].as_array_mut().into_iter().flatten() {
            rename(entry, "flags", "options");
        }
    }
}

/// What a strict reader complains about.
fn unknown_fields(value: &Value, alpha: bool) -> Option<String> {
    let options = if alpha { "flags" } else { "options" };
    let defaults = if alpha { "overrides" } else { "defaults" };
    let mut top = vec!["apiVersion", "kind", "aliases", defaults];
    if !alpha {
        top.extend(["credentialPluginPolicy", "credentialPluginAllowlist"]);
    }
    let mut unknown = Vec::new();
    let mut check = |value: &Value, path: &str, known: &[&str]| {
        for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
            if !known.contains(&&**name) {
                unknown.push(format!("unknown field {}", quote(&format!("{path}{name}"))));
            }
        }
    };
    check(value, "", &top);
    for (list, known) in [
        (defaults, &["command", options][..]),
        ("aliases", &["name", "command", "prependArgs", "appendArgs", options]),
        ("credentialPluginAllowlist", &["name", "command"]),
    ] {
        for (at, entry) in value[list].as_array().into_iter().flatten().enumerate() {
            check(entry, &format!("{list}[{at}]."), known);
            for (option_at, option) in entry[options].as_array().into_iter().flatten().enumerate() {
                check(option, &format!("{list}[{at}].{options}[{option_at}]."), &["name", "default"]);
            }
        }
    }
    (!unknown.is_empty()).then(|| format!("strict decoding error: {}", unknown.join(", ")))
}

/// What one line has to follow. A file that nobody named and that cannot be read is told, and is no error.
fn load(flag: &str) -> Result<Option<Preference>, String> {
    let Some((path, named)) = file(flag)? else { return Ok(None) };
    match read(&path) {
        Ok(None) => Ok(None),
        Ok(Some((found, None))) => Ok(Some(found)),
        Ok(Some((found, Some(unknown)))) => {
            warn(format!("kuberc: ignoring strict decoding error in {}: {unknown}", path.display()));
            Ok(Some(found))
        }
        Err(error) if named => Err(format!("kuberc: {}", error.text())),
        Err(Unread::Missing(_)) => Ok(None),
        Err(Unread::Broken(why)) => {
            warn(format!("kuberc: no preferences loaded from {}: {why}", path.display()));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Option<(Preference, Option<String>)> {
        decode(ferry_schema::yaml::parse_value(text.as_bytes()).unwrap().0)
    }

    #[test]
    fn both_versions_mean_the_same() {
        let alpha = "{apiVersion: kubectl.config.k8s.io/v1alpha1, kind: Preference, \
                     overrides: [{command: get, flags: [{name: output, default: wide}]}]}";
        let beta = alpha.replace("v1alpha1", "v1beta1").replace("overrides", "defaults").replace("flags", "options");
        for text in [alpha, &beta] {
            let (found, unknown) = decoded(text).unwrap();
            assert_eq!(unknown, None);
            let first = &found.defaults.unwrap()[0];
            assert_eq!((&*first.command, &*first.options.as_ref().unwrap()[0].default), ("get", "wide"));
        }
    }

    #[test]
    fn a_field_without_a_value_is_as_none() {
        let text = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\naliases:\n- name: g\n  command: get\n  \
                    prependArgs:\n  options:\n  - name: output\n    default:\ndefaults:\n";
        let (found, unknown) = decoded(text).unwrap();
        assert_eq!((unknown, found.defaults.is_none()), (None, true));
        let alias = &found.aliases.unwrap()[0];
        assert_eq!((&*alias.options[0].name, &*alias.options[0].default), ("output", ""));
    }

    #[test]
    fn what_is_unknown_is_told_and_what_is_wrong_is_nothing() {
        let head = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n";
        let (_, unknown) = decoded(&format!("{head}aliases: [{{name: a, flags: []}}]\n")).unwrap();
        assert_eq!(unknown.as_deref(), Some(r#"strict decoding error: unknown field "aliases[0].flags""#));
        assert!(decoded(&format!("{head}aliases: 3\n")).is_none());
        assert!(decoded(&head.replace("v1beta1", "v9")).is_none());
        assert!(decoded(&format!("{head}credentialPluginAllowlist: [{{name: a, command: b}}]")).is_none());
    }
}

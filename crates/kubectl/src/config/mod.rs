//! Where the cluster is and who asks: kubeconfig files, the environment, flags.

pub mod ask;
mod check;
pub mod connect;
pub mod exec;
pub mod file;
pub mod proxy;
mod through;
#[cfg(test)]
mod through_tests;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::flags::Parsed;

/// All files that count, as one document.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub merged: Value,
}

impl Loaded {
    /// The names of all contexts.
    pub fn contexts(&self) -> Vec<String> {
        let all = self.merged["contexts"].as_array().into_iter().flatten();
        all.filter_map(|context| context["name"].as_str()).map(str::to_owned).collect()
    }
}

/// What one command uses of it.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub cluster: Value,
    pub user: Value,
    pub namespace: String,
    /// There is no cluster anywhere: the pod's own, or localhost.
    pub empty: bool,
}

/// The files in the order in which they count; the first is the one that is written.
pub fn paths(flags: &Parsed) -> Vec<PathBuf> {
    if let Some(path) = flags.global("kubeconfig") {
        return vec![PathBuf::from(path)];
    }
    match std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        Some(list) => {
            let mut paths: Vec<PathBuf> = Vec::new();
            for path in std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
            paths
        }
        None => home().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

pub fn load(flags: &Parsed) -> Result<Loaded> {
    load_with(flags, true)
}

/// As the files have it: paths stay as they are written.
pub fn as_written(flags: &Parsed) -> Result<Loaded> {
    load_with(flags, false)
}

fn load_with(flags: &Parsed, absolute: bool) -> Result<Loaded> {
    let explicit = flags.global("kubeconfig").is_some();
    let mut merged = json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "users": []});
    for path in paths(flags) {
        if !path.exists() {
            if explicit {
                return Err(Error::say(format!("stat {}: no such file or directory", path.display())));
            }
            continue;
        }
        let mut next = file::read(&path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        if absolute {
            file::make_absolute(&mut next, folder);
        }
        merge(&mut merged, &next);
    }
    Ok(Loaded { merged })
}

/// What an earlier file says stays.
fn merge(into: &mut Value, next: &Value) {
    for list in ["clusters", "contexts", "users"] {
        for entry in next[list].as_array().into_iter().flatten() {
            let Some(entries) = into[list].as_array_mut() else { continue };
            if !entries.iter().any(|known| known["name"] == entry["name"]) {
                entries.push(entry.clone());
            }
        }
    }
    for field in ["current-context", "preferences", "extensions"] {
        let missing = into[field].is_null() || into[field].as_str() == Some("");
        if missing && !next[field].is_null() {
            into[field] = next[field].clone();
        }
    }
}

pub fn entry<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    config[list].as_array()?.iter().find(|entry| entry["name"] == name)
}

impl Loaded {
    pub fn current_context(&self, flags: &Parsed) -> String {
        match flags.global("context") {
            Some(name) => name.to_owned(),
            None => self.merged["current-context"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// The cluster, the user and the namespace of the context, with what the flags say instead.
    pub fn choose(&self, flags: &Parsed) -> Result<Chosen> {
        let name = self.current_context(flags);
        let context = entry(&self.merged, "contexts", &name).map(|entry| entry["context"].clone());
        if !name.is_empty() && context.is_none() {
            return Err(Error::Configuration(format!("context was not found for specified context: {name}")));
        }
        let context = context.unwrap_or(Value::Null);
        let of = |flag: &str, field: &str| match flags.global(flag) {
            Some(name) => name.to_owned(),
            None => context[field].as_str().unwrap_or_default().to_owned(),
        };
        let (cluster_name, user_name) = (of("cluster", "cluster"), of("user", "user"));
        let known = |list: &str, name: &str| entry(&self.merged, list, name);
        if flags.global("cluster").is_some() && known("clusters", &cluster_name).is_none() {
            return Err(Error::say(format!("no server found for cluster {}", crate::text::quote(&cluster_name))));
        }
        if flags.global("user").is_some() && known("users", &user_name).is_none() {
            return Err(Error::say(format!("auth info {} does not exist", crate::text::quote(&user_name))));
        }
        let part = |list: &str, name: &str, field: &str| {
            known(list, name).map(|entry| entry[field].clone()).filter(Value::is_object).unwrap_or_else(|| json!({}))
        };
        let mut cluster = part("clusters", &cluster_name, "cluster");
        let mut user = part("users", &user_name, "user");
        overlay(flags, &mut cluster, &mut user)?;
        check::readable(&cluster_name, &cluster, &user_name, &user)?;
        let namespace = context["namespace"].as_str().filter(|name| !name.is_empty());
        let empty = cluster["server"].as_str().is_none_or(str::is_empty);
        let namespace = match flags.global("namespace").or(namespace) {
            Some(name) => name.to_owned(),
            None if empty => connect::pod_namespace().unwrap_or_else(|| "default".into()),
            None => "default".to_owned(),
        };
        Ok(Chosen { cluster, user, namespace, empty })
    }
}

fn overlay(flags: &Parsed, cluster: &mut Value, user: &mut Value) -> Result<()> {
    for (flag, field) in [("server", "server"), ("tls-server-name", "tls-server-name")] {
        if let Some(value) = flags.global(flag) {
            cluster[field] = value.into();
        }
    }
    // A false one is as none: what the file says stays.
    if flags.is("insecure-skip-tls-verify") && !flags.shadowed.contains(&"insecure-skip-tls-verify") {
        if flags.global("certificate-authority").is_some() {
            return Err(Error::say("specifying a root certificates file with the insecure flag is not allowed"));
        }
        cluster["insecure-skip-tls-verify"] = true.into();
        remove(cluster, &["certificate-authority", "certificate-authority-data"]);
    }
    if let Some(path) = flags.global("certificate-authority") {
        remove(cluster, &["certificate-authority-data"]);
        cluster["certificate-authority"] = path.into();
    }
    for (flag, field) in [
        ("token", "token"),
        ("username", "username"),
        ("password", "password"),
        ("client-certificate", "client-certificate"),
        ("client-key", "client-key"),
        ("as", "as"),
        ("as-uid", "as-uid"),
    ] {
        if let Some(value) = flags.global(flag) {
            user[field] = value.into();
            remove(user, &[&format!("{field}-data")]);
        }
    }
    if flags.global("token").is_some() {
        remove(user, &["tokenFile", "exec", "auth-provider"]);
    }
    let groups = flags.list("as-group");
    if !groups.is_empty() {
        user["as-groups"] = groups.into();
    }
    for extra in flags.list("as-user-extra") {
        let Some((key, value)) = extra.split_once('=') else { continue };
        if !user["as-user-extra"][key].is_array() {
            user["as-user-extra"][key] = json!([]);
        }
        if let Some(values) = user["as-user-extra"][key].as_array_mut() {
            values.push(value.into());
        }
    }
    Ok(())
}

fn remove(object: &mut Value, fields: &[&str]) {
    if let Some(map) = object.as_object_mut() {
        for field in fields {
            map.remove(*field);
        }
    }
}

//! `kubectl config`: looks at kubeconfig files and changes them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::config_entries::{cluster_flags, context_flags, set_cluster, set_context, set_user, user_flags};
use super::config_set::{SET, UNSET};
use super::config_view::{view, view_flags};
use super::{Command, group, leaf};
use crate::config::{entry, file, paths};
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::print;
use crate::session::Context;
use crate::text::{line, print as out, quote, warn};

pub const COMMAND: Command = group(
    "config",
    "Modify kubeconfig files",
    &[
        leaf("current-context", "[flags]", "Display the current-context", Vec::new, |c| Box::pin(current(c))),
        leaf("delete-cluster", "NAME", "Delete the specified cluster from the kubeconfig", Vec::new, |c| {
            Box::pin(delete(c, "clusters", "cluster"))
        }),
        leaf("delete-context", "NAME", "Delete the specified context from the kubeconfig", Vec::new, |c| {
            Box::pin(delete(c, "contexts", "context"))
        }),
        leaf("delete-user", "NAME", "Delete the specified user from the kubeconfig", Vec::new, |c| {
            Box::pin(delete(c, "users", "user"))
        }),
        leaf("get-clusters", "[flags]", "Display clusters defined in the kubeconfig", Vec::new, |c| {
            Box::pin(names(c, "clusters"))
        }),
        leaf("get-contexts", "[(-o|--output=)name)]", "Describe one or many contexts", contexts_flags, |c| {
            Box::pin(contexts(c))
        }),
        leaf("get-users", "[flags]", "Display users defined in the kubeconfig", Vec::new, |c| {
            Box::pin(names(c, "users"))
        }),
        leaf("rename-context", "CONTEXT_NAME NEW_NAME", "Rename a context from the kubeconfig file", Vec::new, |c| {
            Box::pin(rename(c))
        }),
        SET,
        leaf(
            "set-cluster",
            "NAME [--server=server] [--certificate-authority=path/to/certificate/authority] [--insecure-skip-tls-verify=true] [--tls-server-name=example.com]",
            "Set a cluster entry in kubeconfig",
            cluster_flags,
            |c| Box::pin(set_cluster(c)),
        ),
        leaf(
            "set-context",
            "[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace]",
            "Set a context entry in kubeconfig",
            context_flags,
            |c| Box::pin(set_context(c)),
        ),
        leaf(
            "set-credentials",
            "NAME [--client-certificate=path/to/certfile] [--client-key=path/to/keyfile] [--token=bearer_token] [--username=basic_user] [--password=basic_password] [--auth-provider=provider_name] [--auth-provider-arg=key=value] [--exec-command=exec_command] [--exec-api-version=exec_api_version] [--exec-arg=arg] [--exec-env=key=value]",
            "Set a user entry in kubeconfig",
            user_flags,
            |c| Box::pin(set_user(c)),
        ),
        UNSET,
        leaf("use-context", "CONTEXT_NAME", "Set the current-context in a kubeconfig file", Vec::new, |c| {
            Box::pin(switch_to(c))
        })
        .aliases(&["use"]),
        leaf("view", "[flags]", "Display merged kubeconfig settings or a specified kubeconfig file", view_flags, |c| {
            Box::pin(view(c))
        }),
    ],
);

/// The file that a change goes to: the one that has the entry, or the first.
pub fn place(context: &Context, list: &str, name: &str) -> PathBuf {
    let all = paths(&context.flags);
    let has = |path: &&PathBuf| file::read(path).is_ok_and(|config| entry(&config, list, name).is_some());
    all.iter().find(has).cloned().unwrap_or_else(|| usual(context))
}

/// The first file that there is, or the last that there is not.
fn usual(context: &Context) -> PathBuf {
    let all = paths(&context.flags);
    let found = all.iter().find(|path| path.exists()).or(all.last());
    found.cloned().unwrap_or_else(|| PathBuf::from("config"))
}

pub fn read(path: &Path) -> Result<Value> {
    let mut config = if path.exists() { file::read(path)? } else { json!({}) };
    for (field, value) in [("apiVersion", json!("v1")), ("kind", json!("Config"))] {
        config[field] = value;
    }
    for list in ["clusters", "contexts", "users"] {
        if !config[list].is_array() {
            config[list] = json!([]);
        }
    }
    if !config["current-context"].is_string() {
        config["current-context"] = "".into();
    }
    Ok(config)
}

pub fn one_name(context: &Context) -> Result<String> {
    match context.words() {
        [name] => Ok(name.clone()),
        _ => Err(misused(context)),
    }
}

/// Words that do not fit: the help on standard output, and what does not.
pub fn misused(context: &Context) -> Error {
    crate::help::of_path(&context.path);
    Error::say(format!("Unexpected args: [{}]", context.words().join(" ")))
}

async fn current(context: &Context) -> Result<()> {
    let loaded = context.loaded().await?;
    let name = loaded.current_context(&context.flags);
    match name.is_empty() {
        true => Err(Error::say("current-context is not set")),
        false => {
            line(name);
            Ok(())
        }
    }
}

async fn names(context: &Context, list: &str) -> Result<()> {
    let loaded = context.loaded().await?;
    line("NAME");
    let mut names: Vec<&str> =
        loaded.merged[list].as_array().into_iter().flatten().filter_map(|e| e["name"].as_str()).collect();
    names.sort_unstable();
    names.iter().for_each(line);
    Ok(())
}

fn contexts_flags() -> Vec<Flag> {
    vec![text("output", "name, or nothing.").short('o'), switch("no-headers", "Print no headers.")]
}

async fn contexts(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let loaded = context.loaded().await?;
    let output = flags.text("output");
    if !matches!(output, "" | "name") {
        return Err(Error::say(format!(
            "--output {output} is not available in kubectl config get-contexts; resetting to default output format"
        )));
    }
    let current = loaded.current_context(flags);
    let all = loaded.merged["contexts"].as_array().cloned().unwrap_or_default();
    let mut errors = Vec::new();
    let mut chosen: Vec<&Value> = Vec::new();
    match context.words() {
        [] => chosen.extend(all.iter()),
        words => {
            for name in words {
                match all.iter().find(|entry| entry["name"] == *name.as_str()) {
                    Some(entry) => chosen.push(entry),
                    None => errors.push(Error::say(format!("context {name} not found"))),
                }
            }
        }
    }
    chosen.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned());
    let mut table = String::new();
    if output.is_empty() && !flags.is("no-headers") {
        table.push_str("CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n");
    }
    for entry in chosen {
        let name = entry["name"].as_str().unwrap_or_default();
        if output == "name" {
            table.push_str(&format!("{name}\n"));
            continue;
        }
        let of = |field: &str| entry["context"][field].as_str().unwrap_or_default();
        let mark = if name == current { "*" } else { "" };
        table.push_str(&format!("{mark}\t{name}\t{}\t{}\t{}\n", of("cluster"), of("user"), of("namespace")));
    }
    out(print::tabs::align(&table, 6, 3));
    Error::all(errors)
}

async fn switch_to(context: &Context) -> Result<()> {
    let name = one_name(context)?;
    let loaded = context.loaded().await?;
    if entry(&loaded.merged, "contexts", &name).is_none() {
        return Err(Error::say(format!("no context exists with the name: {}", quote(&name))));
    }
    let all = paths(&context.flags);
    let has = |path: &&PathBuf| {
        file::read(path).is_ok_and(|config| config["current-context"].as_str().is_some_and(|c| !c.is_empty()))
    };
    let path = all.iter().find(has).cloned().unwrap_or_else(|| place(context, "contexts", &name));
    let mut config = read(&path)?;
    config["current-context"] = name.clone().into();
    file::write(&path, &config)?;
    line(format!("Switched to context {}.", quote(&name)));
    Ok(())
}

async fn delete(context: &Context, list: &str, kind: &str) -> Result<()> {
    let name = match context.words() {
        [name] => name.clone(),
        _ if list == "users" => return Err(context.usage("user to delete is required")),
        _ => {
            crate::help::of_path(&context.path);
            return Ok(());
        }
    };
    // kubectl names the file that would get what is new, whichever has what goes.
    let shown = usual(context);
    let path = place(context, list, &name);
    let mut config = read(&path)?;
    let Some(entries) = config[list].as_array_mut() else { return Ok(()) };
    let before = entries.len();
    entries.retain(|entry| entry["name"] != *name.as_str());
    if entries.len() == before {
        return Err(Error::say(format!("cannot delete {kind} {name}, not in {}", shown.display())));
    }
    if list == "contexts" && context.loaded().await?.merged["current-context"] == *name.as_str() {
        warn("warning: this removed your active context, use \"kubectl config use-context\" to select a different one");
    }
    file::write(&path, &config)?;
    line(format!("deleted {kind} {name} from {}", shown.display()));
    Ok(())
}

async fn rename(context: &Context) -> Result<()> {
    let [old, new] = context.words() else {
        return Err(misused(context));
    };
    let loaded = context.loaded().await?;
    if entry(&loaded.merged, "contexts", old).is_none() {
        return Err(Error::say(format!(
            "cannot rename the context {}, it's not in {}",
            quote(old),
            usual(context).display()
        )));
    }
    if entry(&loaded.merged, "contexts", new).is_some() {
        return Err(Error::say(format!(
            "cannot rename the context {}, the context {} already exists in {}",
            quote(old),
            quote(new),
            place(context, "contexts", new).display()
        )));
    }
    let path = place(context, "contexts", old);
    let mut config = read(&path)?;
    for entry in config["contexts"].as_array_mut().into_iter().flatten() {
        if entry["name"] == **old {
            entry["name"] = new.clone().into();
        }
    }
    if config["current-context"] == **old {
        config["current-context"] = new.clone().into();
    }
    file::write(&path, &config)?;
    line(format!("Context {} renamed to {}.", quote(old), quote(new)));
    Ok(())
}

const PATHS: [&str; 3] = ["certificate-authority", "client-certificate", "client-key"];

/// Changes one entry, or adds it; tells whether it was there.
pub fn change(context: &Context, list: &str, part: &str, name: &str, fields: &[(&str, Value)]) -> Result<bool> {
    let path = place(context, list, name);
    let folder = std::path::absolute(&path).ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let mut config = read(&path)?;
    let there = entry(&config, list, name).is_some();
    let Some(entries) = config[list].as_array_mut() else { return Ok(false) };
    if !there {
        entries.push(json!({"name": name, part: {}}));
    }
    for entry in entries.iter_mut().filter(|entry| entry["name"] == name) {
        for (field, value) in fields {
            match value {
                Value::Null => {
                    if let Some(map) = entry[part].as_object_mut() {
                        map.remove(*field);
                    }
                }
                // A file beside or below the configuration is meant from there.
                Value::String(text) if PATHS.contains(field) => {
                    let below = folder.as_deref().and_then(|folder| Path::new(text).strip_prefix(folder).ok());
                    let shown = below.map_or_else(|| text.clone(), |below| below.display().to_string());
                    entry[part][*field] = shown.into();
                }
                value => entry[part][*field] = value.clone(),
            }
        }
    }
    file::write(&path, &config)?;
    Ok(there)
}

//! `kubectl config`: looks at kubeconfig files and changes them.

use std::path::{Path, PathBuf};

use base64::Engine;
use serde_json::{Value, json};

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
        leaf("current-context", "", "Display the current-context", Vec::new, |c| Box::pin(current(c))),
        leaf("delete-cluster", "NAME", "Delete the specified cluster from the kubeconfig", Vec::new, |c| {
            Box::pin(delete(c, "clusters", "cluster"))
        }),
        leaf("delete-context", "NAME", "Delete the specified context from the kubeconfig", Vec::new, |c| {
            Box::pin(delete(c, "contexts", "context"))
        }),
        leaf("delete-user", "NAME", "Delete the specified user from the kubeconfig", Vec::new, |c| {
            Box::pin(delete(c, "users", "user"))
        }),
        leaf("get-clusters", "", "Display clusters defined in the kubeconfig", Vec::new, |c| {
            Box::pin(names(c, "clusters"))
        }),
        leaf("get-contexts", "[(-o|--output=)name]", "Describe one or many contexts", contexts_flags, |c| {
            Box::pin(contexts(c))
        }),
        leaf("get-users", "", "Display users defined in the kubeconfig", Vec::new, |c| Box::pin(names(c, "users"))),
        leaf("rename-context", "CONTEXT_NAME NEW_NAME", "Rename a context from the kubeconfig file", Vec::new, |c| {
            Box::pin(rename(c))
        }),
        SET,
        leaf("set-cluster", "NAME [--server=server]", "Set a cluster entry in kubeconfig", cluster_flags, |c| {
            Box::pin(set_cluster(c))
        }),
        leaf("set-context", "[NAME | --current]", "Set a context entry in kubeconfig", context_flags, |c| {
            Box::pin(set_context(c))
        }),
        leaf("set-credentials", "NAME", "Set a user entry in kubeconfig", user_flags, |c| Box::pin(set_user(c))),
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
    let found = all.iter().find(has).or_else(|| all.iter().find(|path| path.exists())).or(all.last());
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

fn one_name(context: &Context) -> Result<String> {
    match context.words() {
        [name] => Ok(name.clone()),
        words => Err(context.usage(format!("Unexpected args: [{}]", words.join(" ")))),
    }
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
        return Err(Error::say(format!("output must be one of '' or 'name': {output}")));
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
    let name = one_name(context)?;
    let path = place(context, list, &name);
    let mut config = read(&path)?;
    let Some(entries) = config[list].as_array_mut() else { return Ok(()) };
    let before = entries.len();
    entries.retain(|entry| entry["name"] != *name.as_str());
    if entries.len() == before {
        return Err(Error::say(format!("cannot delete {kind} {name}, not in {}", path.display())));
    }
    if list == "contexts" && config["current-context"] == *name.as_str() {
        warn("warning: this removed your active context, use \"kubectl config use-context\" to select a different one");
    }
    file::write(&path, &config)?;
    line(format!("deleted {kind} {name} from {}", path.display()));
    Ok(())
}

async fn rename(context: &Context) -> Result<()> {
    let [old, new] = context.words() else {
        return Err(context.usage(format!("Unexpected args: [{}]", context.words().join(" "))));
    };
    let loaded = context.loaded().await?;
    if entry(&loaded.merged, "contexts", old).is_none() {
        return Err(Error::say(format!(
            "cannot rename the context {}, it's not in {}",
            quote(old),
            place(context, "contexts", old).display()
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

/// Changes one entry, or adds it; tells whether it was there.
pub fn change(context: &Context, list: &str, part: &str, name: &str, fields: &[(&str, Value)]) -> Result<bool> {
    let path = place(context, list, name);
    let mut config = read(&path)?;
    let there = entry(&config, list, name).is_some();
    let Some(entries) = config[list].as_array_mut() else { return Ok(false) };
    if !there {
        entries.push(json!({"name": name, part: {}}));
        entries.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned());
    }
    for entry in entries.iter_mut().filter(|entry| entry["name"] == name) {
        for (field, value) in fields {
            match value {
                Value::Null => {
                    if let Some(map) = entry[part].as_object_mut() {
                        map.remove(*field);
                    }
                }
                value => entry[part][*field] = value.clone(),
            }
        }
    }
    file::write(&path, &config)?;
    Ok(there)
}

/// A path as it is, or what the file has, for `--embed-certs`.
fn certificate(
    context: &Context,
    flag: &str,
    fields: &mut Vec<(&'static str, Value)>,
    plain: &'static str,
    data: &'static str,
) -> Result<()> {
    let Some(path) = context.flags.given(flag) else { return Ok(()) };
    if context.flags.is("embed-certs") {
        let body = std::fs::read(path).map_err(|error| {
            Error::say(format!(
                "could not read {flag} data from {path}: {}",
                file::go_error("open", path.as_ref(), &error)
            ))
        })?;
        fields.push((data, base64::engine::general_purpose::STANDARD.encode(body).into()));
        fields.push((plain, Value::Null));
    } else {
        let whole = std::path::absolute(path).map_err(|error| Error::say(error.to_string()))?;
        fields.push((plain, whole.display().to_string().into()));
        fields.push((data, Value::Null));
    }
    Ok(())
}

fn cluster_flags() -> Vec<Flag> {
    vec![
        text("server", "The address of the API server.").short('s'),
        text("tls-server-name", "The name the server's certificate must have."),
        switch("insecure-skip-tls-verify", "Do not check the server's certificate."),
        text("certificate-authority", "Path to the certificates of the authority."),
        switch("embed-certs", "Keep the certificates in the kubeconfig."),
        text("proxy-url", "A proxy for the cluster."),
    ]
}

async fn set_cluster(context: &Context) -> Result<()> {
    let (flags, name) = (&context.flags, one_name(context)?);
    let mut fields: Vec<(&'static str, Value)> = Vec::new();
    for field in ["server", "tls-server-name", "proxy-url"] {
        if flags.changed(field) {
            fields.push((field, flags.text(field).into()));
        }
    }
    if flags.changed("insecure-skip-tls-verify") {
        let on = flags.is("insecure-skip-tls-verify");
        fields.push(("insecure-skip-tls-verify", if on { json!(true) } else { Value::Null }));
        if on {
            fields.push(("certificate-authority", Value::Null));
            fields.push(("certificate-authority-data", Value::Null));
        }
    }
    certificate(context, "certificate-authority", &mut fields, "certificate-authority", "certificate-authority-data")?;
    change(context, "clusters", "cluster", &name, &fields)?;
    line(format!("Cluster {} set.", quote(&name)));
    Ok(())
}

fn context_flags() -> Vec<Flag> {
    vec![
        switch("current", "Modify the current context."),
        text("cluster", "The cluster of the context."),
        text("user", "The user of the context."),
        text("namespace", "The namespace of the context.").short('n'),
    ]
}

async fn set_context(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = match (flags.is("current"), context.words()) {
        (true, []) => {
            let name = context.loaded().await?.merged["current-context"].as_str().unwrap_or_default().to_owned();
            if name.is_empty() {
                return Err(Error::say("no current context is set"));
            }
            name
        }
        (false, [name]) => name.clone(),
        (true, _) => return Err(Error::say("you cannot specify both a context name and --current")),
        (false, _) => return Err(Error::say("you must specify a non-empty context name or --current")),
    };
    let given = ["cluster", "user", "namespace"].into_iter().filter(|field| flags.changed(field));
    let mut fields: Vec<(&str, Value)> = given.map(|field| (field, flags.text(field).into())).collect();
    if entry(&context.loaded().await?.merged, "contexts", &name).is_none() {
        for field in ["cluster", "user"] {
            if !flags.changed(field) {
                fields.push((field, "".into()));
            }
        }
    }
    let there = change(context, "contexts", "context", &name, &fields)?;
    line(format!("Context {} {}.", quote(&name), if there { "modified" } else { "created" }));
    Ok(())
}

fn user_flags() -> Vec<Flag> {
    vec![
        text("client-certificate", "Path to a client certificate."),
        text("client-key", "Path to the key of it."),
        switch("embed-certs", "Keep the certificates in the kubeconfig."),
        text("token", "A bearer token."),
        text("username", "The name for basic authentication."),
        text("password", "The password for basic authentication."),
        text("exec-command", "The program of an exec credential plug-in."),
        text("exec-api-version", "The version it speaks."),
        crate::flags::array("exec-arg", "Its arguments."),
        crate::flags::array("exec-env", "Its environment, as key=value."),
    ]
}

async fn set_user(context: &Context) -> Result<()> {
    let (flags, name) = (&context.flags, one_name(context)?);
    if flags.given("token").is_some() && (flags.given("username").is_some() || flags.given("password").is_some()) {
        return Err(Error::say(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        ));
    }
    let mut fields: Vec<(&'static str, Value)> = Vec::new();
    for field in ["token", "username", "password"] {
        if flags.changed(field) {
            fields.push((field, flags.text(field).into()));
        }
    }
    certificate(context, "client-certificate", &mut fields, "client-certificate", "client-certificate-data")?;
    certificate(context, "client-key", &mut fields, "client-key", "client-key-data")?;
    if let Some(command) = flags.given("exec-command") {
        let environment: Vec<Value> = flags
            .list("exec-env")
            .iter()
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| json!({"name": key, "value": value}))
            .collect();
        fields.push((
            "exec",
            json!({"command": command, "apiVersion": flags.text("exec-api-version"), "args": flags.list("exec-arg"),
                "env": environment, "interactiveMode": "IfAvailable", "provideClusterInfo": false}),
        ));
    }
    change(context, "users", "user", &name, &fields)?;
    line(format!("User {} set.", quote(&name)));
    Ok(())
}

//! `kubectl config set-cluster`, `set-context` and `set-credentials`: entries of a kubeconfig.

use base64::Engine;
use serde_json::{Value, json};

use super::config::{change, misused, one_name};
use crate::config::{as_written, entry, file};
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::session::Context;
use crate::text::{line, quote};

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
            let why = file::go_error("stat", path.as_ref(), &error);
            Error::say(format!("could not stat {flag} file {path}: {why}"))
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

pub fn cluster_flags() -> Vec<Flag> {
    vec![
        text("server", "The address of the API server."),
        text("tls-server-name", "The name the server's certificate must have."),
        switch("insecure-skip-tls-verify", "Do not check the server's certificate."),
        text("certificate-authority", "Path to the certificates of the authority."),
        switch("embed-certs", "Keep the certificates in the kubeconfig."),
        text("proxy-url", "A proxy for the cluster."),
    ]
}

pub async fn set_cluster(context: &Context) -> Result<()> {
    let (flags, name) = (&context.flags, one_name(context)?);
    if flags.is("insecure-skip-tls-verify") && flags.given("certificate-authority").is_some() {
        return Err(Error::say("you cannot specify a certificate authority and insecure mode at the same time"));
    }
    if flags.is("embed-certs") && flags.given("certificate-authority").is_none() {
        return Err(Error::say("you must specify a --certificate-authority to embed"));
    }
    let mut fields: Vec<(&'static str, Value)> = Vec::new();
    for field in ["server", "tls-server-name", "proxy-url"] {
        // The name that a certificate must have was meant for another server.
        if field == "tls-server-name" && flags.changed("server") {
            fields.push((field, Value::Null));
        }
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
    // One of them is enough.
    if flags.given("certificate-authority").is_some() {
        fields.push(("insecure-skip-tls-verify", Value::Null));
    }
    certificate(context, "certificate-authority", &mut fields, "certificate-authority", "certificate-authority-data")?;
    change(context, "clusters", "cluster", &name, &fields)?;
    line(format!("Cluster {} set.", quote(&name)));
    Ok(())
}

pub fn context_flags() -> Vec<Flag> {
    vec![
        switch("current", "Modify the current context."),
        text("cluster", "The cluster of the context."),
        text("user", "The user of the context."),
        text("namespace", "The namespace of the context.").short('n'),
    ]
}

pub async fn set_context(context: &Context) -> Result<()> {
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
        (false, [_, ..]) => return Err(misused(context)),
        (false, []) => return Err(Error::say("you must specify a non-empty context name or --current")),
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

pub fn user_flags() -> Vec<Flag> {
    vec![
        text("client-certificate", "Path to a client certificate."),
        text("client-key", "Path to the key of it."),
        switch("embed-certs", "Keep the certificates in the kubeconfig."),
        text("token", "A bearer token."),
        text("username", "The name for basic authentication."),
        text("password", "The password for basic authentication."),
        text("exec-command", "The program of an exec credential plug-in."),
        text("exec-api-version", "The version it speaks."),
        crate::flags::slice("exec-arg", "Its arguments."),
        crate::flags::array("exec-env", "Its environment, as key=value."),
        text("exec-interactive-mode", "Whether it may ask: Never, IfAvailable or Always."),
        switch("exec-provide-cluster-info", "Whether it is told of the cluster."),
        text("auth-provider", "An authentication provider."),
        crate::flags::slice("auth-provider-arg", "Its configuration: key=value, or key- to remove it."),
    ]
}

pub async fn set_user(context: &Context) -> Result<()> {
    let (flags, name) = (&context.flags, one_name(context)?);
    if flags.given("token").is_some() && (flags.given("username").is_some() || flags.given("password").is_some()) {
        return Err(Error::say(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        ));
    }
    if flags.is("embed-certs") && flags.given("client-certificate").is_none() && flags.given("client-key").is_none() {
        return Err(Error::say("you must specify a --client-certificate or --client-key to embed"));
    }
    let mode = flags.text("exec-interactive-mode");
    if flags.changed("exec-interactive-mode") && !matches!(mode, "IfAvailable" | "Always" | "Never") {
        return Err(Error::say("invalid interactive mode type, can be only IfAvailable, Never, Always"));
    }
    let mut fields: Vec<(&'static str, Value)> = Vec::new();
    for field in ["token", "username", "password"] {
        if flags.changed(field) {
            fields.push((field, flags.text(field).into()));
        }
    }
    // One way to sign in takes the place of the other.
    if flags.given("token").is_some() {
        fields.extend([("username", Value::Null), ("password", Value::Null)]);
    } else if flags.given("username").is_some() || flags.given("password").is_some() {
        fields.push(("token", Value::Null));
    }
    certificate(context, "client-certificate", &mut fields, "client-certificate", "client-certificate-data")?;
    certificate(context, "client-key", &mut fields, "client-key", "client-key-data")?;
    if let Some(exec) = exec(context, &name).await? {
        fields.push(("exec", exec));
    }
    if let Some(provider) = provider(context, &name).await? {
        fields.push(("auth-provider", provider));
    }
    change(context, "users", "user", &name, &fields)?;
    line(format!("User {} set.", quote(&name)));
    Ok(())
}

/// The plug-in with what the flags change of it. A new command takes no arguments of the old one.
async fn exec(context: &Context, name: &str) -> Result<Option<Value>> {
    let flags = &context.flags;
    let known = as_written(flags)?.merged;
    let known = entry(&known, "users", name).map(|user| user["user"]["exec"].clone()).filter(Value::is_object);
    let mut exec = match (known, flags.given("exec-command")) {
        (None, None) => return Ok(None),
        (Some(known), None) => known,
        (known, Some(command)) => {
            let mut exec = known.unwrap_or_else(|| json!({"provideClusterInfo": false, "env": null}));
            (exec["command"], exec["args"]) = (command.into(), Value::Null);
            exec
        }
    };
    if flags.changed("exec-arg") {
        exec["args"] = flags.list("exec-arg").into();
    }
    if flags.changed("exec-api-version") {
        exec["apiVersion"] = flags.text("exec-api-version").into();
    }
    if flags.changed("exec-interactive-mode") {
        exec["interactiveMode"] = flags.text("exec-interactive-mode").into();
    }
    if flags.changed("exec-provide-cluster-info") {
        exec["provideClusterInfo"] = flags.is("exec-provide-cluster-info").into();
    }
    for pair in flags.list("exec-env") {
        let mut all = exec["env"].as_array().cloned().unwrap_or_default();
        match (pair.split_once('='), pair.strip_suffix('-')) {
            (Some((key, value)), _) => match all.iter_mut().find(|one| one["name"] == key) {
                Some(one) => one["value"] = value.into(),
                None => all.push(json!({"name": key, "value": value})),
            },
            (None, Some(key)) => all.retain(|one| one["name"] != key),
            (None, None) => {}
        }
        exec["env"] = all.into();
    }
    Ok(Some(exec))
}

/// The authentication provider with what the flags change of it.
async fn provider(context: &Context, name: &str) -> Result<Option<Value>> {
    let flags = &context.flags;
    let arguments = flags.list("auth-provider-arg");
    if flags.given("auth-provider").is_none() && arguments.is_empty() {
        return Ok(None);
    }
    let known = entry(&context.loaded().await?.merged, "users", name).map(|user| user["user"]["auth-provider"].clone());
    let mut provider = known.filter(Value::is_object).unwrap_or_else(|| json!({"config": {}, "name": ""}));
    if let Some(name) = flags.given("auth-provider") {
        provider["name"] = name.into();
    }
    if provider["name"] == "" {
        return Ok(None);
    }
    for argument in &arguments {
        match (argument.split_once('='), argument.strip_suffix('-')) {
            (Some((key, value)), _) => provider["config"][key] = value.into(),
            (None, Some(key)) => {
                provider["config"].as_object_mut().into_iter().for_each(|config| drop(config.remove(key)));
            }
            (None, None) => {}
        }
    }
    Ok(Some(provider))
}

//! `kubectl config set-cluster`, `set-context` and `set-credentials`: entries of a kubeconfig.

use base64::Engine;
use serde_json::{Value, json};

use super::config::{change, misused, one_name};
use crate::config::{entry, file};
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

pub fn cluster_flags() -> Vec<Flag> {
    vec![
        text("server", "The address of the API server.").short('s'),
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
        crate::flags::array("exec-arg", "Its arguments."),
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
        let mut exec = json!({"command": command, "apiVersion": flags.text("exec-api-version"),
            "args": flags.list("exec-arg"), "env": environment,
            "provideClusterInfo": flags.is("exec-provide-cluster-info")});
        if let Some(mode) = flags.given("exec-interactive-mode") {
            exec["interactiveMode"] = mode.into();
        }
        fields.push(("exec", exec));
    }
    if let Some(provider) = provider(context, &name).await? {
        fields.push(("auth-provider", provider));
    }
    change(context, "users", "user", &name, &fields)?;
    line(format!("User {} set.", quote(&name)));
    Ok(())
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

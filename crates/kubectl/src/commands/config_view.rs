//! `kubectl config view`.

use serde_json::{Value, json};

use crate::config::entry;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::print::Format;
use crate::session::Context;
use crate::text::print as out;

pub fn view_flags() -> Vec<Flag> {
    vec![
        Flag::new("output", Kind::Text, "yaml", "Output format.").short('o'),
        text("template", "A template."),
        switch("show-managed-fields", ""),
        Flag::new("allow-missing-template-keys", Kind::Bool, "true", ""),
        switch("raw", "Show certificates and tokens."),
        switch("flatten", "Put certificates into the output."),
        switch("minify", "Only what the current context uses."),
        Flag::new("merge", Kind::Bool, "true", "Merge all files."),
    ]
}

pub async fn view(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.words().is_empty() {
        return Err(context.usage(format!("unexpected arguments: [{}]", context.words().join(" "))));
    }
    if !flags.is("merge") && flags.global("kubeconfig").is_none() {
        return Err(Error::say("if merge==false a precise file must be specified"));
    }
    let mut config = context.loaded().await?.merged.clone();
    let current = context.loaded().await?.current_context(flags);
    if flags.is("minify") {
        let Some(chosen) = entry(&config, "contexts", &current).cloned() else {
            return Err(Error::say(match current.is_empty() {
                true => "current-context must exist in order to minify".to_owned(),
                false => format!("cannot locate context {current}"),
            }));
        };
        for (list, field) in [("clusters", "cluster"), ("users", "user")] {
            let wanted = chosen["context"][field].clone();
            if let Some(entries) = config[list].as_array_mut() {
                entries.retain(|entry| entry["name"] == wanted);
            }
        }
        config["contexts"] = json!([chosen]);
    }
    for list in ["clusters", "contexts", "users"] {
        match config[list].as_array_mut().filter(|entries| !entries.is_empty()) {
            Some(entries) => entries.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned()),
            None => config[list] = Value::Null,
        }
    }
    config["current-context"] = current.into();
    for entry in config["contexts"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = entry["context"].as_object_mut() {
            fields.retain(|_, value| value.as_str() != Some(""));
        }
    }
    if !flags.is("raw") && !flags.is("flatten") {
        redact(&mut config);
    }
    out(match Format::for_reading(flags)? {
        Format::Human { .. } => ferry_schema::yaml::to_yaml(&config),
        Format::Json { .. } => crate::print::in_order(&config, &ORDERS, 0, 4) + "\n",
        Format::Name => "config/<unknown>\n".to_owned(),
        format => format.object(&config, true)?,
    });
    Ok(())
}

/// The fields of a kubeconfig as kubectl's JSON has them: the file, its entries, what is in them.
const ORDERS: [&[&str]; 4] = [
    &["kind", "apiVersion", "preferences", "clusters", "users", "contexts", "current-context", "extensions"],
    &["name"],
    &[
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority",
        "certificate-authority-data",
        "proxy-url",
        "disable-compression",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "token",
        "tokenFile",
        "username",
        "password",
        "auth-provider",
        "exec",
        "cluster",
        "user",
        "namespace",
    ],
    &["command", "args", "env", "apiVersion", "provideClusterInfo", "interactiveMode"],
];

fn redact(config: &mut Value) {
    for (list, part) in [("clusters", "cluster"), ("users", "user")] {
        for entry in config[list].as_array_mut().into_iter().flatten() {
            for (field, instead) in [
                ("certificate-authority-data", "DATA+OMITTED"),
                ("client-certificate-data", "DATA+OMITTED"),
                ("client-key-data", "DATA+OMITTED"),
                ("token", "REDACTED"),
                ("password", "REDACTED"),
            ] {
                if entry[part][field].as_str().is_some_and(|value| !value.is_empty()) {
                    entry[part][field] = instead.into();
                }
            }
        }
    }
}

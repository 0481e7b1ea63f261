//! `kubectl config view`.

use base64::Engine;
use serde_json::{Value, json};

use crate::config::{as_written, entry, file};
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
    // What is put into the output is read from where the files say that it is.
    let loaded = if flags.is("flatten") { context.loaded().await?.clone() } else { as_written(flags)? };
    let current = loaded.current_context(flags);
    let mut config = loaded.merged;
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
    if flags.is("flatten") {
        flatten(&mut config)?;
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
            // These two have a line even where they name nothing.
            for field in ["cluster", "user"] {
                fields.entry(field).or_insert_with(|| "".into());
            }
            fields.retain(|field, value| value.as_str() != Some("") || matches!(&**field, "cluster" | "user"));
        }
    }
    if !flags.is("raw") && !flags.is("flatten") {
        redact(&mut config);
    }
    out(match Format::for_writing(flags)? {
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
        "as",
        "as-uid",
        "as-groups",
        "as-user-extra",
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

/// Certificates and keys instead of the paths of their files.
fn flatten(config: &mut Value) -> Result<()> {
    for (list, part, fields) in [
        ("users", "user", &["client-certificate", "client-key"][..]),
        ("clusters", "cluster", &["certificate-authority"]),
    ] {
        for entry in config[list].as_array_mut().into_iter().flatten() {
            for field in fields {
                let Some(path) = entry[part][*field].as_str().filter(|path| !path.is_empty()).map(str::to_owned) else {
                    continue;
                };
                let data = format!("{field}-data");
                if entry[part][&*data].as_str().is_none_or(str::is_empty) {
                    let body = std::fs::read(&path)
                        .map_err(|error| Error::say(file::go_error("open", path.as_ref(), &error)))?;
                    entry[part][&*data] = base64::engine::general_purpose::STANDARD.encode(body).into();
                }
                entry[part].as_object_mut().into_iter().for_each(|fields| drop(fields.remove(*field)));
            }
        }
    }
    Ok(())
}

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

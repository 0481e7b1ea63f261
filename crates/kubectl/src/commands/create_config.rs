//! `create configmap` and `create secret`.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Command, generate, group, leaf};
use crate::config::file::go_error;
use crate::error::{Error, Result};
use crate::flags::{Flag, array, switch, text};
use crate::session::Context;
use crate::text::quote;

const SOURCES: [Flag; 4] = [
    array("from-file", "File or folder, or key=file; may be given several times."),
    array("from-literal", "key=value; may be given several times."),
    array("from-env-file", "File of lines of key=value."),
    switch("append-hash", "Append a hash of the data to the name."),
];

pub const CONFIG_MAP: Command = leaf(
    "configmap",
    "NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    "Create a config map from a local file, directory or literal value",
    || generate::flags(&SOURCES),
    |c| Box::pin(config_map(c)),
)
.aliases(&["cm"]);

pub const SECRET: Command = group(
    "secret",
    "Create a secret using a specified subcommand",
    &[
        leaf(
            "docker-registry",
            "NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] [--from-file=[key=]source] [--dry-run=server|client|none]",
            "Create a secret for use with a Docker registry",
            registry_flags,
            |c| Box::pin(registry(c)),
        ),
        leaf(
            "generic",
            "NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
            "Create a secret from a local file, directory, or literal value",
            || {
                let mut own = SOURCES.to_vec();
                own.push(text("type", "The type of secret to create."));
                generate::flags(&own)
            },
            |c| Box::pin(generic(c)),
        ),
        leaf(
            "tls",
            "NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none]",
            "Create a TLS secret",
            || {
                generate::flags(&[
                    text("cert", "Path to a PEM encoded certificate."),
                    text("key", "Path to the private key of it."),
                    SOURCES[3],
                ])
            },
            |c| Box::pin(tls(c)),
        ),
    ],
)
.usage("(docker-registry | generic | tls)");

fn read(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let why = go_error("open", Path::new(path), &error);
        let why = why.strip_prefix(&format!("open {path}: ")).unwrap_or(&why).to_owned();
        Error::say(format!("error reading {path}: {why}"))
    })
}

fn check_key(key: &str, of_secret: bool) -> Result<()> {
    let reasons = ferry_meta::names::config_key(key);
    let (key, reasons) = (quote(key), reasons.join(","));
    match reasons.is_empty() {
        true => Ok(()),
        false if of_secret => Err(Error::say(format!("{key} is not valid key name for a Secret {reasons}"))),
        false => Err(Error::say(format!("{key} is not a valid key name for a ConfigMap: {reasons}"))),
    }
}

/// A name of a file of variables: stricter than those of containers are.
fn check_variable(name: &str) -> Result<()> {
    let known = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if name.bytes().all(known) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit()) {
        return Ok(());
    }
    let reason = ferry_meta::names::regex_reason(
        "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
        "[-._a-zA-Z][-._a-zA-Z0-9]*",
        &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
    );
    Err(Error::say(format!("{} is not a valid key name: {reason}", quote(name))))
}

/// Keys and contents, in the order in which they are given.
fn collect(context: &Context, of_secret: bool) -> Result<Vec<(String, Vec<u8>)>> {
    let flags = &context.flags;
    let (files, literals, env) = (flags.list("from-file"), flags.list("from-literal"), flags.list("from-env-file"));
    if !env.is_empty() && (!files.is_empty() || !literals.is_empty()) {
        return Err(Error::say("from-env-file cannot be combined with from-file or from-literal"));
    }
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |key: String, value: Vec<u8>| -> Result<()> {
        check_key(&key, of_secret)?;
        if found.iter().any(|(known, _)| *known == key) {
            if of_secret {
                return Err(Error::say(format!("cannot add key {key}, another key by that name already exists")));
            }
            return Err(Error::say(format!(
                "cannot add key {}, another key by that name already exists in Data for ConfigMap {}",
                quote(&key),
                quote(context.words().first().map_or("", String::as_str))
            )));
        }
        found.push((key, value));
        Ok(())
    };
    for source in &files {
        match source.split_once('=') {
            Some(("", path)) => return Err(Error::say(format!("key name for file path {path} missing"))),
            Some((key, "")) => return Err(Error::say(format!("file path for key name {key} missing"))),
            Some((_, path)) if path.contains('=') => {
                return Err(Error::say("key names or file paths cannot contain '='"));
            }
            Some((_, path)) if Path::new(path).is_dir() => {
                return Err(Error::say("cannot give a key name for a directory path"));
            }
            Some((key, path)) => add(key.to_owned(), read(path)?)?,
            None => {
                let path = Path::new(source);
                if path.is_dir() {
                    let entries = std::fs::read_dir(path).map_err(|e| Error::say(go_error("open", path, &e)))?;
                    let mut entries: Vec<_> =
                        entries.flatten().map(|entry| entry.path()).filter(|p| p.is_file()).collect();
                    entries.sort();
                    for entry in entries {
                        let key = entry.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                        add(key, read(&entry.display().to_string())?)?;
                    }
                } else {
                    let key = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                    add(key, read(source)?)?;
                }
            }
        }
    }
    for literal in &literals {
        let (key, value) = literal
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| Error::say(format!("invalid literal source {literal}, expected key=value")))?;
        add(key.to_owned(), value.as_bytes().to_vec())?;
    }
    for path in &env {
        if Path::new(path).is_dir() {
            let kind = if of_secret { "secret" } else { "config" };
            return Err(Error::say(format!("env {kind} file cannot be a directory")));
        }
        for line in String::from_utf8_lossy(&read(path)?).lines() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = line.split_once('=').map_or(line, |(key, _)| key);
            check_variable(key)?;
            match line.split_once('=') {
                Some((key, value)) => add(key.to_owned(), value.as_bytes().to_vec())?,
                None => add(line.to_owned(), std::env::var(line).unwrap_or_default().into_bytes())?,
            }
        }
    }
    Ok(found)
}

async fn config_map(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (key, value) in collect(context, false)? {
        match String::from_utf8(value) {
            Ok(text) => data.insert(key, text.into()),
            Err(error) => binary.insert(key, STANDARD.encode(error.as_bytes()).into()),
        };
    }
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for (field, map) in [("data", data), ("binaryData", binary)] {
        if !map.is_empty() {
            object[field] = map.into();
        }
    }
    finish(context, object).await
}

/// With a hash of what is in it at the end of its name, where that is asked for.
async fn finish(context: &Context, mut object: Value) -> Result<()> {
    if context.flags.is("append-hash") {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        object["metadata"]["name"] = format!("{name}-{}", crate::kustomize::typed_hash(&object, &name)).into();
    }
    generate::finish(context, object).await
}

fn secret(name: &str, kind: &str, data: Vec<(String, Vec<u8>)>) -> Value {
    let data: Map<String, Value> = data.into_iter().map(|(key, value)| (key, STANDARD.encode(value).into())).collect();
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    if !data.is_empty() {
        object["data"] = data.into();
    }
    if !kind.is_empty() {
        object["type"] = kind.into();
    }
    object
}

async fn generic(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    let data = collect(context, true)?;
    finish(context, secret(&name, context.flags.text("type"), data)).await
}

async fn tls(context: &Context) -> Result<()> {
    let name = generate::name(context)?;
    let (cert, key) = (context.flags.text("cert"), context.flags.text("key"));
    if cert.is_empty() || key.is_empty() {
        return Err(Error::say("key and cert must be specified"));
    }
    let (certificate, private) = (read_plain(cert)?, read_plain(key)?);
    if !certificate.windows(11).any(|window| window == b"-----BEGIN ") {
        return Err(Error::say("tls: failed to find any PEM data in certificate input"));
    }
    if !private.windows(11).any(|window| window == b"-----BEGIN ") {
        return Err(Error::say("tls: failed to find any PEM data in key input"));
    }
    pair(&certificate, &private)?;
    let data = vec![("tls.crt".to_owned(), certificate), ("tls.key".to_owned(), private)];
    finish(context, secret(&name, "kubernetes.io/tls", data)).await
}

/// A certificate and the key of it, each where it belongs.
fn pair(certificate: &[u8], key: &[u8]) -> Result<()> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use x509_parser::prelude::FromDer;
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate).flatten().collect();
    let is_key = |text: &[u8]| PrivateKeyDer::from_pem_slice(text).is_ok();
    if certificates.is_empty() {
        return Err(Error::say(match is_key(certificate) {
            true => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
            }
            false => {
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: []"
            }
        }));
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(key) else {
        return Err(Error::say(match CertificateDer::from_pem_slice(key).is_ok() {
            true => "tls: found a certificate rather than a key in the PEM for the private key",
            false => "tls: failed to parse private key",
        }));
    };
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let Ok(signing) = provider.key_provider.load_private_key(key) else {
        return Err(Error::say("tls: failed to parse private key"));
    };
    let parsed = x509_parser::parse_x509_certificate(&certificates[0]);
    let own = parsed.as_ref().map(|(_, certificate)| certificate.public_key().raw);
    match (own, signing.public_key()) {
        (Ok(own), Some(public)) if own != public.as_ref() => {
            // The kind of the key stands before the key.
            let kind = |key: &[u8]| {
                x509_parser::x509::SubjectPublicKeyInfo::from_der(key)
                    .map(|(_, key)| key.algorithm.algorithm.to_id_string())
                    .ok()
            };
            Err(Error::say(match kind(own) == kind(public.as_ref()) {
                true => "tls: private key does not match public key",
                false => "tls: private key type does not match public key type",
            }))
        }
        _ => Ok(()),
    }
}

fn read_plain(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Error::say(format!("Cannot read file {path}, {}", go_error("open", Path::new(path), &error))))
}

fn registry_flags() -> Vec<Flag> {
    generate::flags(&[
        Flag::new(
            "docker-server",
            crate::flags::Kind::Text,
            "https://index.docker.io/v1/",
            "Server location of the registry.",
        ),
        text("docker-username", "Username for the registry."),
        text("docker-password", "Password for the registry."),
        text("docker-email", "Email for the registry."),
        array("from-file", "A docker configuration file."),
        SOURCES[3],
    ])
}

async fn registry(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let name = generate::name(context)?;
    let config = match flags.list("from-file").first() {
        Some(path) => read(path.split_once('=').map_or(path, |(_, path)| path))?,
        None => {
            let (user, password) = (flags.text("docker-username"), flags.text("docker-password"));
            if user.is_empty() || password.is_empty() {
                return Err(Error::say(
                    "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required",
                ));
            }
            let mut entry = format!("\"username\":{},\"password\":{}", Value::from(user), Value::from(password));
            if let Some(email) = flags.given("docker-email") {
                entry.push_str(&format!(",\"email\":{}", Value::from(email)));
            }
            entry.push_str(&format!(",\"auth\":{}", Value::from(STANDARD.encode(format!("{user}:{password}")))));
            format!("{{\"auths\":{{{}:{{{entry}}}}}}}", Value::from(flags.text("docker-server"))).into_bytes()
        }
    };
    let data = vec![(".dockerconfigjson".to_owned(), config)];
    finish(context, secret(&name, "kubernetes.io/dockerconfigjson", data)).await
}

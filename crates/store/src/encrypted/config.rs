//! The `EncryptionConfiguration` file: which resources are encrypted, with which keys, in which order.

use base64::Engine;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ResourceOf;
use super::providers::Provider;

const SEALED: &[u8] = b"k8s:enc:";

/// Whether somebody encrypted a value; JSON and protobuf never start like this.
pub(crate) fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(SEALED)
}

#[derive(Debug)]
pub struct ConfigError(String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the encryption configuration cannot be used: {}", self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Checked and ready for use. The first provider of a resource writes, all of them read.
pub struct EncryptionConfig {
    rules: Vec<Rule>,
}

struct Rule {
    resources: Vec<String>,
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    resources: Vec<FileRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileRule {
    resources: Vec<String>,
    providers: Vec<FileProvider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileProvider {
    aesgcm: Option<FileKeys>,
    aescbc: Option<FileKeys>,
    secretbox: Option<FileKeys>,
    identity: Option<Value>,
    kms: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKeys {
    keys: Vec<FileKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKey {
    name: String,
    secret: String,
}

impl EncryptionConfig {
    /// From the file's content.
    pub fn parse(file: &Value) -> Result<Self, ConfigError> {
        let file = File::deserialize(file).map_err(|error| ConfigError(error.to_string()))?;
        if file.api_version != "apiserver.config.k8s.io/v1" || file.kind != "EncryptionConfiguration" {
            let have = format!("{} {}", file.api_version, file.kind);
            return Err(ConfigError(format!(
                "it is a {have}, not an apiserver.config.k8s.io/v1 EncryptionConfiguration"
            )));
        }
        if file.resources.is_empty() {
            return Err(ConfigError("resources: at least one item is required".into()));
        }
        let mut rules = Vec::new();
        for (index, rule) in file.resources.into_iter().enumerate() {
            let at = |why: String| ConfigError(format!("resources[{index}]: {why}"));
            if rule.resources.is_empty() || rule.providers.is_empty() {
                return Err(at("at least one resource and one provider are required".into()));
            }
            for resource in &rule.resources {
                check_resource(resource).map_err(at)?;
            }
            let mut providers = Vec::new();
            for provider in rule.providers {
                providers.extend(read_provider(provider).map_err(at)?);
            }
            rules.push(Rule { resources: rule.resources, providers });
        }
        Ok(Self { rules })
    }

    /// A fresh secret for a key.
    pub fn new_key() -> Result<Vec<u8>, ConfigError> {
        let mut secret = vec![0; 32];
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| ConfigError("the system has no randomness for a key".into()))?;
        Ok(secret)
    }

    /// A file's content that encrypts Secrets with the first of these keys. Each is a name and 32 bytes.
    pub fn document(keys: &[(String, Vec<u8>)]) -> Value {
        let keys: Vec<Value> = keys
            .iter()
            .map(|(name, secret)| {
                json!({"name": name, "secret": base64::engine::general_purpose::STANDARD.encode(secret)})
            })
            .collect();
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": [{"aesgcm": {"keys": keys}}, {"identity": {}}]}],
        })
    }

    fn rule(&self, resource_of: &ResourceOf, key: &str) -> Option<&Rule> {
        let (group, resource) = resource_of(key)?;
        self.rules.iter().find(|rule| rule.resources.iter().any(|pattern| fits(pattern, &group, &resource)))
    }

    pub(super) fn concerns(&self, resource_of: &ResourceOf, key: &str) -> bool {
        self.rule(resource_of, key).is_some()
    }

    pub(super) fn seal(&self, resource_of: &ResourceOf, key: &str, value: &Bytes) -> Result<Bytes, String> {
        match self.rule(resource_of, key).and_then(|rule| rule.providers.first()) {
            Some(provider) => provider.seal(key, value),
            None => Ok(value.clone()),
        }
    }

    /// By whichever key the value says it was written with.
    pub(super) fn open(&self, key: &str, value: &Bytes) -> Result<Bytes, String> {
        if !is_sealed(value) {
            return Ok(value.clone());
        }
        let mut failure = None;
        for provider in self.rules.iter().flat_map(|rule| &rule.providers) {
            if let Some(rest) = provider.recognizes(value) {
                match provider.open(key, rest) {
                    Ok(opened) => return Ok(opened),
                    Err(why) => failure = Some(why),
                }
            }
        }
        Err(failure.unwrap_or_else(|| "no configured key fits the one it was written with".into()))
    }

    pub(super) fn is_stale(&self, resource_of: &ResourceOf, key: &str, value: &[u8]) -> bool {
        let Some(provider) = self.rule(resource_of, key).and_then(|rule| rule.providers.first()) else {
            return false;
        };
        match provider {
            Provider::Identity => is_sealed(value),
            _ => provider.recognizes(value).is_none(),
        }
    }
}

/// `secrets`, `deployments.apps`, `*.apps`, `*.` for the core group, `*.*` for everything.
fn fits(pattern: &str, group: &str, resource: &str) -> bool {
    match pattern.split_once('.') {
        None => group.is_empty() && pattern == resource,
        Some(("*", "*")) => true,
        Some(("*", of)) => of == group,
        Some((name, of)) => name == resource && of == group,
    }
}

fn check_resource(resource: &str) -> Result<(), String> {
    if resource.is_empty() || resource == "*" || resource.contains('/') || resource.chars().any(char::is_uppercase) {
        let why = "write it like secrets, deployments.apps, *.apps, *. or *.*";
        return Err(format!("{resource:?} is no resource; {why}"));
    }
    Ok(())
}

fn read_provider(file: FileProvider) -> Result<Vec<Provider>, String> {
    let FileProvider { aesgcm, aescbc, secretbox, identity, kms } = file;
    if secretbox.is_some() || kms.is_some() {
        return Err("the providers secretbox and kms are not supported; use aesgcm".into());
    }
    match (aesgcm, aescbc, identity) {
        (Some(keys), None, None) => read_keys(keys)?.iter().map(|(name, key)| Provider::gcm(name, key)).collect(),
        (None, Some(keys), None) => read_keys(keys)?.iter().map(|(name, key)| Provider::cbc(name, key)).collect(),
        (None, None, Some(_)) => Ok(vec![Provider::Identity]),
        _ => Err("a provider is exactly one of aesgcm, aescbc and identity".into()),
    }
}

fn read_keys(file: FileKeys) -> Result<Vec<(String, Vec<u8>)>, String> {
    if file.keys.is_empty() {
        return Err("keys: at least one is required".into());
    }
    let mut keys: Vec<(String, Vec<u8>)> = Vec::new();
    for key in file.keys {
        if key.name.is_empty() || key.name.contains(':') {
            return Err(format!("key {:?}: a name is required, and no colon may stand in it", key.name));
        }
        if keys.iter().any(|(name, _)| *name == key.name) {
            return Err(format!("key {:?}: the name is there twice", key.name));
        }
        let secret = base64::engine::general_purpose::STANDARD
            .decode(&key.secret)
            .map_err(|_| format!("key {:?}: the secret is no base64", key.name))?;
        keys.push((key.name, secret));
    }
    Ok(keys)
}

//! The `EncryptionConfiguration` file: which resources are encrypted, with which keys, in which order.

use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use ferry_tasks::Tasks;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ResourceOf;
use super::kms::Kms;
use super::providers::{Failure, Provider};

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
    /// Those that ask key management services how they are.
    probes: OnceLock<Tasks>,
}

impl Drop for EncryptionConfig {
    fn drop(&mut self) {
        if let Some(probes) = self.probes.get() {
            probes.stopping().cancel();
        }
    }
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
    kms: Option<FileKms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileKms {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    name: String,
    /// Of the first version of the protocol.
    #[serde(default, rename = "cachesize")]
    cache_size: Option<i64>,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    timeout: Option<String>,
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
        let (mut rules, mut names) = (Vec::new(), Vec::new());
        for (index, rule) in file.resources.into_iter().enumerate() {
            let at = |why: String| ConfigError(format!("resources[{index}]: {why}"));
            if rule.resources.is_empty() || rule.providers.is_empty() {
                return Err(at("at least one resource and one provider are required".into()));
            }
            check_overlap(&rule.resources)
                .map_err(|why| at(format!("resources: Invalid value: {:?}: {why}", rule.resources)))?;
            for (place, resource) in rule.resources.iter().enumerate() {
                let named = |why: &str| at(format!("resources[{place}]: Invalid value: {resource:?}: {why}"));
                check_resource(resource).map_err(named)?;
            }
            let mut providers = Vec::new();
            for provider in rule.providers {
                let name = provider.kms.as_ref().map(|kms| kms.name.clone());
                if let Some(name) = name {
                    if names.contains(&name) {
                        return Err(at(format!("invalid provider name {name}, must be unique")));
                    }
                    names.push(name);
                }
                providers.extend(read_provider(provider).map_err(at)?);
            }
            rules.push(Rule { resources: rule.resources, providers });
        }
        Ok(Self { rules, probes: OnceLock::new() })
    }

    fn services(&self) -> impl Iterator<Item = &Kms> {
        let providers = self.rules.iter().flat_map(|rule| &rule.providers);
        providers.filter_map(|provider| match provider {
            Provider::Kms(kms) => Some(kms),
            _ => None,
        })
    }

    /// Asks the key management services from now on, until this configuration is dropped, and waits until each has a key.
    pub async fn start(&self, tasks: &Tasks, patience: Duration) -> Result<(), ConfigError> {
        let probes = self.probes.get_or_init(|| tasks.child("key management"));
        for kms in self.services() {
            kms.start(probes);
        }
        for kms in self.services() {
            kms.ready(patience).await.map_err(ConfigError)?;
        }
        Ok(())
    }

    /// Whether every key management service answers.
    pub(super) fn health(&self) -> Result<(), String> {
        self.services().try_for_each(Kms::health)
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
    pub(super) async fn open(&self, key: &str, value: &Bytes) -> Result<Bytes, Failure> {
        if !is_sealed(value) {
            return Ok(value.clone());
        }
        let mut failure = None;
        for provider in self.rules.iter().flat_map(|rule| &rule.providers) {
            if let Some(rest) = provider.recognizes(value) {
                match provider.open(key, rest).await {
                    Ok(opened) => return Ok(opened),
                    Err(why) => failure = Some(why),
                }
            }
        }
        let unknown = || Failure::Damaged("no configured key fits the one it was written with".into());
        Err(failure.unwrap_or_else(unknown))
    }

    pub(super) fn is_stale(&self, resource_of: &ResourceOf, key: &str, value: &[u8]) -> bool {
        let Some(provider) = self.rule(resource_of, key).and_then(|rule| rule.providers.first()) else {
            return false;
        };
        provider.is_stale(value)
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

/// A list in which one entry masks another says something else than its writer means.
fn check_overlap(resources: &[String]) -> Result<(), &'static str> {
    let split = |text: &str| {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        (resource.to_owned(), group.to_owned())
    };
    let all: Vec<(String, String)> = resources.iter().map(|text| split(text)).collect();
    for (index, one) in all.iter().enumerate() {
        for other in all[..index].iter() {
            if one == other {
                return Err("the same resource cannot be specified multiple times");
            }
            let everything = |entry: &(String, String)| entry.0 == "*" && entry.1 == "*";
            let whole_group = one.1 == other.1 && (one.0 == "*" || other.0 == "*");
            if everything(one) || everything(other) || whole_group {
                return Err(
                    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
                );
            }
        }
    }
    Ok(())
}

fn check_resource(resource: &str) -> Result<(), &'static str> {
    let group = resource.split_once('.').map_or("", |(_, group)| group);
    if resource.chars().any(char::is_uppercase) {
        return Err("resource name should not contain capital letters");
    }
    match resource {
        "*" => return Err("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations" => {
            return Err("resources which do not have REST API/s cannot be encrypted");
        }
        _ => {}
    }
    match group {
        "events.k8s.io" => Err(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        "extensions" => Err("'extensions' group has been removed and cannot be used for encryption"),
        "*" if resource != "*.*" => Err("encrypting the same resource across groups is not supported"),
        _ if resource.is_empty() || resource.starts_with('.') || resource.contains('/') => {
            Err("write it like secrets, deployments.apps, *.apps, *. or *.*")
        }
        _ => Ok(()),
    }
}

fn read_provider(file: FileProvider) -> Result<Vec<Provider>, String> {
    let FileProvider { aesgcm, aescbc, secretbox, identity, kms } = file;
    type Make = fn(&str, &[u8]) -> Result<Provider, String>;
    let of_keys = |keys: FileKeys, make: Make| read_keys(keys)?.iter().map(|(name, key)| make(name, key)).collect();
    match (aesgcm, aescbc, secretbox, identity, kms) {
        (Some(keys), None, None, None, None) => of_keys(keys, Provider::gcm),
        (None, Some(keys), None, None, None) => of_keys(keys, Provider::cbc),
        (None, None, Some(keys), None, None) => of_keys(keys, Provider::secretbox),
        (None, None, None, Some(_), None) => Ok(vec![Provider::Identity]),
        (None, None, None, None, Some(kms)) => Ok(vec![Provider::Kms(read_kms(&kms)?)]),
        _ => Err("a provider is exactly one of aesgcm, aescbc, secretbox, kms and identity".into()),
    }
}

fn read_kms(file: &FileKms) -> Result<Kms, String> {
    if file.api_version != "v2" {
        let have = if file.api_version.is_empty() { "v1" } else { &file.api_version };
        return Err(format!("kms: apiVersion {have} is not supported; use v2"));
    }
    if file.cache_size.is_some() {
        return Err("kms: cachesize is not supported in v2".into());
    }
    if file.name.is_empty() || file.name.contains(':') {
        return Err(format!("kms: invalid name {:?}: a name is required, and no colon may stand in it", file.name));
    }
    let socket = file.endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/'));
    let socket = socket.ok_or_else(|| format!("kms: endpoint {:?} is no unix:///path", file.endpoint))?;
    let timeout = match &file.timeout {
        None => Duration::from_secs(3),
        Some(text) => ferry_semantics::duration::parse_unsigned(text)
            .filter(|timeout| !timeout.is_zero())
            .ok_or_else(|| format!("kms: timeout {text:?} must be a positive duration"))?,
    };
    Ok(Kms::new(&file.name, socket.into(), timeout))
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

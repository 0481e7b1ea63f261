//! Registry credentials from `imagePullSecrets`.

use std::sync::Arc;

use base64::Engine;
use ferry_cri::v1::AuthConfig;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The Secret that credentials come from, and what is in it: a hash, so that no password is written down.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PullSecret {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) credential_hash: String,
}

impl PullSecret {
    fn of(secret: &Secret, auth: &AuthConfig) -> Self {
        let metadata = &secret.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let mut hash = Sha256::new();
        for part in [&auth.username, &auth.password, &auth.auth, &auth.identity_token, &auth.registry_token] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self {
            uid: text(&metadata.uid),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            credential_hash: format!("{:x}", hash.finalize()),
        }
    }

    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

/// What is shown to a registry.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    pub(crate) auth: AuthConfig,
    pub(crate) secret: PullSecret,
}

/// The credentials that fit an image, the most specific first.
pub(crate) fn matching(image: &str, secrets: &[Arc<Secret>]) -> Vec<Credential> {
    let repository = repository(image);
    let mut found: Vec<(usize, Credential)> = Vec::new();
    for secret in secrets {
        let Some(data) = &secret.data else { continue };
        let config = match (data.get(".dockerconfigjson"), data.get(".dockercfg")) {
            (Some(json), _) => serde_json::from_slice::<Value>(&json.0).ok().map(|mut v| v["auths"].take()),
            (None, Some(json)) => serde_json::from_slice::<Value>(&json.0).ok(),
            (None, None) => None,
        };
        for (server, entry) in config.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let pattern = normal(server);
            if fits(&repository, &pattern) {
                let auth = auth(&repository, entry);
                found.push((pattern.len(), Credential { secret: PullSecret::of(secret, &auth), auth }));
            }
        }
    }
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found.into_iter().map(|(_, credential)| credential).collect()
}

/// `nginx:1` is `docker.io/library/nginx`.
fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    let first = name.split('/').next().unwrap_or_default();
    let has_host = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    match (has_host, name.contains('/')) {
        (true, _) => name.to_owned(),
        (false, true) => format!("docker.io/{name}"),
        (false, false) => format!("docker.io/library/{name}"),
    }
}

fn normal(server: &str) -> String {
    let server = server.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    match server {
        "index.docker.io/v1" | "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.trim_end_matches("/v1").trim_end_matches("/v2").to_owned(),
    }
}

/// Whether a repository stands below a pattern: the host may have `*` in place of a label, the path is a prefix.
fn fits(repository: &str, pattern: &str) -> bool {
    let (host, path) = repository.split_once('/').unwrap_or((repository, ""));
    let (wanted_host, wanted_path) = pattern.split_once('/').unwrap_or((pattern, ""));
    let (labels, wanted): (Vec<&str>, Vec<&str>) = (host.split('.').collect(), wanted_host.split('.').collect());
    let same_host = labels.len() == wanted.len() && labels.iter().zip(wanted).all(|(l, w)| w == "*" || *l == w);
    same_host && path.starts_with(wanted_path)
}

/// Where the registry of a repository has its interface. Runtimes show credentials to that host alone, and not to mirrors.
fn address(repository: &str) -> String {
    match repository.split('/').next().unwrap_or_default() {
        "docker.io" => "https://registry-1.docker.io".to_owned(),
        host => format!("https://{host}"),
    }
}

fn auth(repository: &str, entry: &Value) -> AuthConfig {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let (mut username, mut password) = (text("username"), text("password"));
    let packed = base64::engine::general_purpose::STANDARD.decode(text("auth")).ok();
    if let Some((name, secret)) =
        packed.and_then(|b| String::from_utf8(b).ok()).as_deref().and_then(|t| t.split_once(':'))
    {
        username = name.to_owned();
        password = secret.to_owned();
    }
    AuthConfig {
        username,
        password,
        server_address: address(repository),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
        ..AuthConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn credentials_are_found_by_registry() {
        let json = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"},
            "registry.test:5000/team": {"username": "u", "password": "p"}, "*.example.test": {"username": "w"}}}"#;
        let secret = Secret {
            data: Some([(".dockerconfigjson".to_owned(), ByteString(json.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        let secrets = [Arc::new(secret)];
        let user = |image: &str| matching(image, &secrets).first().map(|c| c.auth.username.clone());
        assert_eq!(user("nginx:1").as_deref(), Some("a"));
        assert_eq!(user("registry.test:5000/team/app:1").as_deref(), Some("u"));
        assert_eq!(user("registry.test:5000/other/app:1"), None);
        assert_eq!(user("a.example.test/x").as_deref(), Some("w"));
        let address = |image: &str| matching(image, &secrets).first().map(|c| c.auth.server_address.clone());
        assert_eq!(address("nginx:1").as_deref(), Some("https://registry-1.docker.io"));
        assert_eq!(address("registry.test:5000/team/app:1").as_deref(), Some("https://registry.test:5000"));
    }
}

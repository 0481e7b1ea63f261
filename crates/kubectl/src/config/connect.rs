//! From what was chosen to a client.

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::Chosen;
use crate::error::{Error, Result};

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

pub fn pod_namespace() -> Option<String> {
    in_cluster().then(|| std::fs::read_to_string(NAMESPACE).ok()).flatten().map(|name| name.trim().to_owned())
}

/// The service account of the pod speaks where nothing else is said.
pub fn is_in_cluster(chosen: &Chosen) -> bool {
    chosen.empty && in_cluster()
}

fn in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && std::path::Path::new(TOKEN).exists()
}

/// The address with its scheme, as kubectl completes it.
pub fn server_url(chosen: &Chosen) -> String {
    let server = chosen.cluster["server"].as_str().unwrap_or_default();
    if server.is_empty() {
        return "http://localhost:8080".into();
    }
    let server = server.trim_end_matches('/');
    if server.contains("://") {
        return server.to_owned();
    }
    let secured = chosen.cluster["insecure-skip-tls-verify"] == Value::Bool(true)
        || ["certificate-authority", "certificate-authority-data"]
            .iter()
            .any(|field| chosen.cluster[*field].is_string())
        || ["client-certificate", "client-certificate-data"].iter().any(|field| chosen.user[*field].is_string());
    format!("{}://{server}", if secured { "https" } else { "http" })
}

pub async fn config(chosen: &Chosen, timeout: i64) -> Result<kube::Config> {
    // Several parts of the process bring a provider of their own; the first to ask decides for all.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = if is_in_cluster(chosen) {
        kube::Config::incluster().map_err(|error| Error::Configuration(error.to_string()))?
    } else {
        let mut cluster = chosen.cluster.clone();
        cluster["server"] = server_url(chosen).into();
        let whole = json!({
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": chosen.user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": chosen.namespace}}],
            "current-context": "x",
        });
        let kubeconfig: Kubeconfig = serde_json::from_value(whole)
            .map_err(|error| Error::say(format!("the kubeconfig cannot be used: {error}")))?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|error| Error::say(chain(&error)))?
    };
    config.default_retry = false;
    config.read_timeout = None;
    if timeout > 0 {
        let limit = std::time::Duration::from_nanos(timeout.unsigned_abs());
        config.connect_timeout = Some(limit);
    }
    Ok(config)
}

/// An error with what caused it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = inner.source();
    }
    text
}

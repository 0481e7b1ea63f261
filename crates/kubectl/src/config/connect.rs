//! From what was chosen to a client.

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::proxy::{self, Proxy};
use super::{Chosen, through};
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
    // Who wants TLS says so.
    format!("http://{server}")
}

/// Whom the server may know: in plain text nobody tells a secret.
pub fn is_secure(chosen: &Chosen) -> bool {
    is_in_cluster(chosen) || server_url(chosen).starts_with("https://")
}

/// What is told of the user.
fn told(chosen: &Chosen) -> Value {
    let mut user = chosen.user.clone();
    if !is_secure(chosen) {
        user.as_object_mut().into_iter().for_each(|fields| fields.retain(|field, _| field.starts_with("as")));
    }
    user
}

/// An address that names no host, or a port that there is not.
fn check_address(url: &str) -> Result<()> {
    let unusable = || Error::say(format!("host must be a URL or a host:port pair: {}", crate::text::quote(url)));
    let (_, rest) = url.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).ok_or_else(unusable)?;
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains([' ', '\t', '<', '>', '"']) || host.is_empty() {
        return Err(unusable());
    }
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.contains(']'));
    match port.and_then(|port| port.parse::<u64>().ok()).filter(|port| *port > 65535) {
        Some(port) => Err(Error::Connection {
            host: String::new(),
            refused: false,
            why: format!("dial tcp: address {port}: invalid port"),
        }),
        None => Ok(()),
    }
}

pub async fn config(chosen: &Chosen, timeout: i64) -> Result<kube::Config> {
    // Several parts of the process bring a provider of their own; the first to ask decides for all.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = if is_in_cluster(chosen) {
        kube::Config::incluster().map_err(|error| Error::Configuration(error.to_string()))?
    } else {
        check_address(&server_url(chosen))?;
        // A token that is not there is told before anybody is asked.
        if let Some(path) = chosen.user["tokenFile"].as_str().filter(|path| !path.is_empty() && is_secure(chosen))
            && chosen.user["token"].as_str().is_none_or(str::is_empty)
        {
            std::fs::read(path).map_err(|error| Error::say(super::file::go_error("open", path.as_ref(), &error)))?;
        }
        let mut cluster = chosen.cluster.clone();
        cluster["server"] = server_url(chosen).into();
        // Which proxy there is, is not decided by the library: named here, the environment is not read for it.
        cluster["proxy-url"] = "http://localhost".into();
        let whole = json!({
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": told(chosen)}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": chosen.namespace}}],
            "current-context": "x",
        });
        let kubeconfig: Kubeconfig = serde_json::from_value(whole)
            .map_err(|error| Error::say(format!("the kubeconfig cannot be used: {error}")))?;
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|error| Error::say(chain(&error)))?
    };
    config.proxy_url = None;
    config.default_retry = false;
    config.read_timeout = None;
    if timeout > 0 {
        let limit = std::time::Duration::from_nanos(timeout.unsigned_abs());
        config.connect_timeout = Some(limit);
    }
    Ok(config)
}

/// Who stands between here and the server.
pub fn proxy_of(chosen: &Chosen, config: &kube::Config) -> Result<Option<Proxy>> {
    proxy::of(&chosen.cluster, config.cluster_url.to_string().trim_end_matches('/'))
}

/// For requests, and for connections that are upgraded: a proxy that forwards requests of plain text is asked for a tunnel then.
pub fn clients(config: kube::Config, proxy: Option<Proxy>) -> kube::Result<(kube::Client, kube::Client)> {
    let Some(proxy) = proxy else {
        let client = kube::Client::try_from(config)?;
        return Ok((client.clone(), client));
    };
    Ok((through::client(config.clone(), proxy.clone(), false)?, through::client(config, proxy, true)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_plain_text_no_secret_is_told() {
        let of = |server: &str| Chosen {
            cluster: json!({"server": server, "certificate-authority-data": "YQ=="}),
            user: json!({"token": "t", "exec": {"command": "c"}, "as": "jane", "as-groups": ["g"]}),
            namespace: "default".into(),
            empty: false,
        };
        assert_eq!(told(&of("https://192.0.2.1")), of("").user);
        for plain in ["http://192.0.2.1", "192.0.2.1:6443"] {
            assert_eq!(told(&of(plain)), json!({"as": "jane", "as-groups": ["g"]}), "{plain}");
        }
        assert_eq!(server_url(&of("192.0.2.1:6443/")), "http://192.0.2.1:6443");
    }

    #[test]
    fn an_address_has_a_host_and_a_port_that_there_is() {
        for good in ["https://a", "http://[::1]:80", "https://a:65535/b"] {
            assert!(check_address(good).is_ok(), "{good}");
        }
        for bad in ["://x", "https://", "https://a b", "https://a:65536"] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}

//! A client for a component that runs on its own: from a kubeconfig, or from the pod it runs in.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http::header::USER_AGENT;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::fleet::servers::{Patient, Servers};

/// A connection on which nothing came for so long is asked whether it lives.
const PING_AFTER: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// A node that stays with a server that stands still misses its own lease: it has to have moved on within 40 seconds.
const NODE_PING: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(5));
/// So much of one answer may be under way: a slow reader of one list holds up nobody else.
const WINDOW: u32 = 4 << 20;

/// What API servers are called in their certificates, and nobody else is.
pub const SERVER_NAME: &str = "kubernetes";

/// How to reach the API server; without a path as kubectl finds it, or by the pod's service account.
pub async fn config(path: Option<&Path>) -> Result<Config> {
    // Several parts of this process bring a provider of their own; the first to ask decides for all.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match path {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
        }
        None => Config::infer().await.context("no --kubeconfig is given, and none was found"),
    }
}

pub async fn client(path: Option<&Path>, component: &str) -> Result<Client> {
    connect(introduced(config(path).await?, component)?)
}

/// The name under which writes are told of, in the managed fields of objects and in audit logs: that of upstream's component.
pub fn introduced(mut config: Config, component: &str) -> Result<Config> {
    config.headers.push((USER_AGENT, format!("{component}/v1.37.0").parse()?));
    Ok(config)
}

/// The same, of a server at another address than the kubeconfig says.
pub async fn client_of(path: Option<&Path>, master: Option<&str>, component: &str) -> Result<Client> {
    let mut access = introduced(config(path).await?, component)?;
    if let Some(server) = master {
        access.cluster_url = server.parse().context("--master is not a valid server address")?;
    }
    connect(access)
}

/// As client-go does it: all requests go over one connection where the server speaks HTTP/2, and a server that is gone
/// without a word is noticed.
pub fn connect(config: Config) -> Result<Client> {
    if config.proxy_url.is_some() {
        return Client::try_from(config).context("cannot make a client from the kubeconfig");
    }
    transport(config).context("cannot make a client from the kubeconfig")
}

/// A client of a node: whichever of the servers answers, known by the cluster's CA as `kubernetes`, and the certificate of the
/// moment shown to it.
pub fn connect_to(servers: Servers, tls: &rustls::ClientConfig, component: &str) -> Result<Client> {
    let config = introduced(Config::new("https://kubernetes".parse()?), component)?;
    let mut tls = tls.clone();
    // A resumed session would show the certificate of the one before.
    tls.resumption = rustls::client::Resumption::disabled();
    let secured = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .with_server_name_resolver(FixedServerNameResolver::new(SERVER_NAME.try_into()?));
    let connector = secured.enable_all_versions().wrap_connector(servers.clone());
    client_over(config, Patient::new(connector, servers), NODE_PING)
}

fn transport(config: Config) -> Result<Client> {
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    sockets.set_connect_timeout(config.connect_timeout);
    let mut secured = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        secured = secured.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into()?));
    }
    client_over(config, secured.enable_all_versions().wrap_connector(sockets), (PING_AFTER, ANSWER_WITHIN))
}

/// `ping`: after how long a silent connection is asked whether it lives, and for how long that is waited for.
fn client_over<C>(config: Config, connector: C, ping: (Duration, Duration)) -> Result<Client>
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(ping.0)
        .http2_keep_alive_timeout(ping.1)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(4 * WINDOW)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

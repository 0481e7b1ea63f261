//! What a machine remembers of the cluster it joined, and the node that it runs from that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferry_client::Informers;
use ferry_server::certificate_rotation::Current;
use ferry_server::pki::{Pair, client_tls, server_tls, write_private};
use ferry_tasks::Tasks;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use serde::{Deserialize, Serialize};

use super::certificates::{Certificates, Wanted};
use super::node::{self, Identity};
use super::servers::{self, Servers};
use super::settings::Settings;
use super::told;
use crate::config::NodeConfig;
use crate::folders::read_if_there;
use crate::kubeconfig;

/// A server of an older release approves no certificate for a node's gateway.
const GATEWAY_RETRY: Duration = Duration::from_secs(60);

/// Kept in the data folder; everything else of a node can be made again from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Membership {
    pub node_name: String,
    /// `host:port` of each API server.
    pub servers: Vec<String>,
    /// PEM of the authorities that sign the API servers' certificates.
    pub certificate_authority: String,
    pub settings: Settings,
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("membership.json")
}

impl Membership {
    pub fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = path(data_dir);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        let read = serde_json::from_slice(&text);
        read.map(Some).with_context(|| format!("{} is damaged; join again with `ferry join`", path.display()))
    }

    pub fn write(&self, data_dir: &Path) -> Result<()> {
        write_private(&path(data_dir), &serde_json::to_string_pretty(self)?)
    }

    pub fn forget(data_dir: &Path) -> Result<()> {
        let (path, keys) = (path(data_dir), folder(data_dir));
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        if keys.exists() {
            fs::remove_dir_all(&keys).with_context(|| format!("cannot remove {}", keys.display()))?;
        }
        Ok(())
    }
}

/// Where a node's certificates are.
pub fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("node-pki")
}

/// A client that shows the kubelet's certificate.
pub fn kubelet_client(membership: &Membership, servers: &Servers, pair: &Pair) -> Result<(Client, Arc<Current>)> {
    let current = Current::new(pair)?;
    let tls = client_tls(current.clone(), &membership.certificate_authority)?;
    Ok((kubeconfig::connect_to(servers.clone(), &tls, "kubelet")?, current))
}

/// Runs the node; returns once it is Ready. What it started goes on with the group.
pub async fn start(config: &NodeConfig, membership: &Membership, tasks: &Tasks) -> Result<()> {
    let name = config.node_name.as_str();
    let certificates = Certificates::open(&folder(&config.data_dir))?;
    let data_dir = config.data_dir.clone();
    let servers = Servers::new(membership.servers.clone())
        .noted_by(move || Membership::read(&data_dir).ok().flatten().map(|noted| noted.servers).unwrap_or_default());
    let wanted = Wanted::kubelet_client(name);
    let pair = certificates.have(&wanted, jiff::Timestamp::now()).context(
        "this node's certificate ended or is missing, so that no server knows it; join again with a new token (`ferry join`)",
    )?;
    let (kubelet, current) = kubelet_client(membership, &servers, &pair)?;
    certificates.keep(kubelet.clone(), wanted, current, tasks);

    node::start_runtime(config, tasks).await?;

    // The proxy and DNS have a name of their own, with other rights than the kubelet's.
    let wanted = Wanted::proxy_client(name);
    let pair = match certificates.have(&wanted, jiff::Timestamp::now()) {
        Some(pair) => pair,
        None => certificates.obtain(&kubelet, &wanted).await.context("no certificate for the node's proxy")?,
    };
    let current = Current::new(&pair)?;
    let tls = client_tls(current.clone(), &membership.certificate_authority)?;
    let proxy = kubeconfig::connect_to(servers.clone(), &tls, "kube-proxy")?;
    certificates.keep(kubelet.clone(), wanted, current, tasks);
    let informers = Informers::new(proxy, tasks.clone());

    // Nobody can vouch for the kubelet's addresses before its Node tells them: until then it shows a certificate of its own.
    let serving = Wanted::kubelet_serving(name, config.node_ips.clone());
    let pair = certificates.have(&serving, jiff::Timestamp::now()).map_or_else(|| self_signed(name), Ok)?;
    let current = Current::new(&pair)?;
    let identity = Identity {
        kubelet: kubelet.clone(),
        tls: ferry_kubelet::Tls { server: server_tls(current.clone(), &membership.certificate_authority)? },
        informers: informers.clone(),
        api_port: None,
    };
    let (noted, data_dir) = (membership.clone(), config.data_dir.clone());
    let servers_of_gateway = servers.clone();
    servers::follow(servers, informers.of::<EndpointSlice>(), tasks, move |list| {
        Membership { servers: list.to_vec(), ..noted.clone() }.write(&data_dir)
    });
    node::start(config, identity, tasks).await?;
    certificates.keep(kubelet.clone(), serving, current, tasks);
    serve_gateways(config, membership, (servers_of_gateway, kubelet), &certificates, &informers, tasks);
    Ok(())
}

/// The gateway of the node has a name of its own: it reads routes and keys, which nobody else on the node may.
fn serve_gateways(
    config: &NodeConfig,
    membership: &Membership,
    (servers, kubelet): (Servers, Client),
    certificates: &Certificates,
    informers: &Informers,
    tasks: &Tasks,
) {
    let reports = told::gateway(&config.node_name, kubelet.clone(), tasks);
    // A cluster whose control plane is not Ferry's has nobody who leads.
    let Some(gateway) = config.gateway.clone().filter(|_| membership.settings.network.is_some()) else { return };
    let wanted = Wanted::gateway_client(&config.node_name);
    let (authority, informers) = (membership.certificate_authority.clone(), informers.clone());
    let (certificates, group) = (certificates.clone(), tasks.clone());
    tasks.spawn_until_stopped("certificate of the gateway", async move {
        let pair = loop {
            match certificates.have(&wanted, jiff::Timestamp::now()) {
                Some(pair) => break pair,
                None => match certificates.obtain(&kubelet, &wanted).await {
                    Ok(pair) => break pair,
                    Err(error) => tracing::warn!("this node serves no Gateways: no certificate for that: {error:#}"),
                },
            }
            tokio::time::sleep(GATEWAY_RETRY).await;
        };
        let connected = Current::new(&pair).and_then(|current| {
            let tls = client_tls(current.clone(), &authority)?;
            Ok((kubeconfig::connect_to(servers, &tls, "ferry-gateway")?, current))
        });
        match connected {
            Ok((client, current)) => {
                certificates.keep(kubelet, wanted, current, &group);
                crate::gateway::start_on_node(gateway, client, &informers, reports, &group);
            }
            Err(error) => tracing::error!("this node serves no Gateways: {error:#}"),
        }
    });
}

fn self_signed(name: &str) -> Result<Pair> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).context("cannot make a serving certificate")?;
    Ok(Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() })
}

//! Cluster DNS: names of Services and pods, answered from the informers' caches; everything else is forwarded.
//!
//! `corefile` reads the text of a Corefile, `settings` what it means; what its plug-ins do is in `plugins` and `forward`.
//! `cluster` knows which names exist and `answer` turns a question into records (both pure over the caches). `handler` leads a
//! question through the plug-ins, `server` speaks the protocol over UDP and TCP, `reload` follows the ConfigMap. `fed` is the same
//! server in a process without informers.
//!
//! Must not depend on any server-side crate.

mod answer;
mod cluster;
mod corefile;
mod exchange;
mod fed;
mod forward;
mod handler;
mod message;
mod metrics;
mod observe;
mod plugins;
mod prepared;
mod reload;
mod server;
mod settings;
mod shares;
mod upstreams;

#[cfg(test)]
mod specification;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use ferry_client::Informers;
use ferry_tasks::Tasks;
use serde::{Deserialize, Serialize};

pub use fed::{Fed, Feeder};

use cluster::Cluster;
use metrics::Metrics;
use reload::Live;
use server::Sockets;
use settings::Surroundings;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Addresses of this node, each served over UDP and TCP. Port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// The cluster's domain, without a trailing dot.
    pub zone: String,
    /// Where other names are resolved.
    pub upstreams: Upstreams,
    /// What `ns.dns.<zone>` resolves to: the ClusterIPs under which pods know this server.
    pub service_addresses: Vec<IpAddr>,
    /// What is in force where the cluster has no Corefile; [`usual_corefile`] where nothing is given.
    pub corefile: Option<String>,
}

/// The Corefile of a cluster where nobody wrote another one.
pub fn usual_corefile(zone: &str) -> String {
    settings::usual(zone)
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Upstreams {
    /// The `nameserver` lines of a file in the form of `/etc/resolv.conf`, which is followed.
    File(PathBuf),
    These(Vec<SocketAddr>),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            zone: "cluster.local".into(),
            upstreams: Upstreams::File("/etc/resolv.conf".into()),
            service_addresses: Vec::new(),
            corefile: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("{0:?} is not a domain name the cluster can have")]
    Zone(String),
    #[error("DNS cannot listen on {address} (is another DNS server running there?): {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("DNS has no address to listen on")]
    NoAddress,
    #[error("the Corefile cannot be read: {0}")]
    Corefile(String),
    #[error("DNS cannot use its sockets: {0}")]
    Sockets(#[from] std::io::Error),
}

/// A running DNS server.
#[derive(Clone, Debug)]
pub struct DnsServer {
    addresses: Vec<SocketAddr>,
}

impl DnsServer {
    /// Where it listens, with the ports it really got.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// A start under way. Boxed: what an async function does is compiled by whoever awaits it, which is the binary.
pub type Starting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Listens and answers until `tasks` stops. Names of the cluster get SERVFAIL until the caches have been filled once.
pub fn start<'a>(config: Config, informers: &Informers, tasks: &'a Tasks) -> Starting<'a, Result<DnsServer, DnsError>> {
    let cluster = Cluster::new(informers.of(), informers.projected(), informers.of());
    let client = informers.client().clone();
    Box::pin(async move {
        let (server, live) = serve(config, cluster, tasks).await?;
        reload::follow(live, client, &tasks.child("corefile"));
        Ok(server)
    })
}

async fn serve(config: Config, cluster: Cluster, tasks: &Tasks) -> Result<(DnsServer, Live), DnsError> {
    zone(&config)?;
    if config.listen.is_empty() {
        return Err(DnsError::NoAddress);
    }
    let mut sockets = Vec::new();
    for address in config.listen.iter().copied() {
        sockets.push(server::bind(address).await.map_err(|source| DnsError::Listen { address, source })?);
    }
    let live = live(&config, &sockets, cluster, tasks)?;
    answer(&live, &sockets, tasks).await;
    observe::serve(live.handler(), &addresses(&sockets), &tasks.child("dns observed"));
    Ok((DnsServer { addresses: addresses(&sockets) }, live))
}

fn zone(config: &Config) -> Result<(), DnsError> {
    match plugins::zone(config.zone.trim_end_matches('.'), 1) {
        Ok(zone) if !zone.is_root() => Ok(()),
        _ => Err(DnsError::Zone(config.zone.clone())),
    }
}

fn addresses(sockets: &[Sockets]) -> Vec<SocketAddr> {
    sockets.iter().map(|(address, ..)| *address).collect()
}

fn surroundings(config: &Config, addresses: &[SocketAddr]) -> Surroundings {
    // The Service's address leads here, too.
    let own = config.service_addresses.iter().map(|address| SocketAddr::new(*address, 53));
    Surroundings {
        own: addresses.iter().copied().chain(own).collect(),
        service_addresses: config.service_addresses.clone(),
        upstreams: config.upstreams.clone(),
        metrics: Arc::new(Metrics::default()),
    }
}

/// In force where nobody wrote a Corefile.
fn usual(config: &Config) -> String {
    config.corefile.clone().unwrap_or_else(|| settings::usual(&config.zone))
}

fn live(config: &Config, sockets: &[Sockets], cluster: Cluster, tasks: &Tasks) -> Result<Live, DnsError> {
    zone(config)?;
    Live::start(usual(config), surroundings(config, &addresses(sockets)), cluster, tasks)
}

async fn answer(live: &Live, sockets: &[Sockets], tasks: &Tasks) {
    live.handler().settings().prepare().await;
    server::serve(live.handler(), sockets, &tasks.child("dns"));
}

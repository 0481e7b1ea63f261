//! Cluster DNS: names of Services and pods, answered from the informers' caches; everything else is forwarded.
//!
//! `cluster` knows which names exist, `answer` turns a question into records (both pure over the caches),
//! `forward` asks the host's resolvers (`upstreams`) within bounds, a share of which (`shares`) each client has, `server` speaks the protocol over UDP and TCP.
//!
//! Must not depend on any server-side crate.

mod answer;
mod cluster;
mod forward;
mod server;
mod shares;
mod upstreams;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;

use ferry_client::Informers;
use ferry_tasks::Tasks;

use cluster::Cluster;

#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of this node, each served over UDP and TCP. Port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// The cluster's domain, without a trailing dot.
    pub zone: String,
    /// Where other names are resolved.
    pub upstreams: Upstreams,
    /// What `ns.dns.<zone>` resolves to: the ClusterIPs under which pods know this server.
    pub service_addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
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
    let cluster = Cluster::new(informers.of(), informers.of(), informers.of());
    Box::pin(server::start(config, cluster, tasks))
}

//! The service proxy: Services as nftables rules on this node.
//!
//! Events of Services and EndpointSlices mark services as changed; a pure plan turns each into chains, sets and map
//! elements (`plan`); `table` computes the difference; `nft` applies it as one transaction. The next transaction
//! carries whatever changed while the last one ran, so that nothing waits and nothing is told twice.
//!
//! Must not depend on any server-side crate. IPv4 only.

mod conntrack;
mod endpoints;
mod frame;
mod host;
mod nft;
mod plan;
mod state;
mod sync;
mod table;

use ferry_client::Informers;
use ferry_tasks::Tasks;
use std::pin::Pin;
use tokio::sync::watch;

pub use nft::NftError;

/// The table every rule lives in, unless the configuration names another.
pub const TABLE: &str = "ferry-proxy";

#[derive(Clone, Debug)]
pub struct Config {
    /// The name of this node, as endpoints give it.
    pub node_name: String,
    /// Addresses of pods: traffic from anywhere else to a ClusterIP is masqueraded.
    pub pod_cidr: String,
    /// Addresses of Services: those without a Service are refused instead of leaving the machine.
    pub service_cidrs: Vec<String>,
    /// Name of the nftables table (family `ip`).
    pub table: String,
    /// The `nft` command with leading arguments.
    pub nft: Vec<String>,
    /// Whether to turn on forwarding and bridge filtering in the kernel.
    pub prepare_kernel: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            pod_cidr: "10.244.0.0/16".into(),
            service_cidrs: vec!["10.96.0.0/16".into()],
            table: TABLE.into(),
            nft: vec!["nft".into()],
            prepare_kernel: true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("bad configuration of the service proxy: {0}")]
    Config(String),
    #[error("cannot prepare the kernel for Services: {0}")]
    Kernel(#[source] std::io::Error),
    #[error("cannot write the table of Services: {0}")]
    Table(#[from] NftError),
}

/// A running proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    ready: watch::Receiver<bool>,
}

impl Proxy {
    /// Waits until the kernel holds the rules for everything that existed at the start.
    pub async fn ready(&self) {
        // Fails only when the proxy was stopped before: then nobody can be waiting for its rules.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }
}

/// A start under way. Boxed: what an async function does is compiled by whoever awaits it, which is the binary.
pub type Starting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Prepares the kernel, puts the empty table in place (which proves that `nft` works) and follows the cluster until
/// `tasks` stops. The rules stay when it stops: connections must survive a restart.
pub fn start<'a>(
    config: Config,
    informers: &'a Informers,
    tasks: &'a Tasks,
) -> Starting<'a, Result<Proxy, ProxyError>> {
    Box::pin(begin(config, informers, tasks))
}

async fn begin(config: Config, informers: &Informers, tasks: &Tasks) -> Result<Proxy, ProxyError> {
    check(&config)?;
    let bridge_filtering = match config.prepare_kernel {
        true => host::prepare().await.map_err(ProxyError::Kernel)?,
        false => true,
    };
    let frame = frame::Frame {
        table: config.table.clone(),
        pod_cidr: config.pod_cidr.clone(),
        service_cidrs: config.service_cidrs.clone(),
        masquerade_between_pods: !bridge_filtering,
    };
    let nft = nft::Nft::new(config.nft.clone());
    // Rules of an earlier run go on working until the first complete list replaces them.
    nft.apply(&format!("add table ip {}\n", config.table)).await?;
    let (sender, ready) = watch::channel(false);
    let sources = sync::Sources { services: informers.of(), slices: informers.of(), nodes: informers.of() };
    let sync = sync::Sync::new(config.node_name, frame, config.pod_cidr, nft, sources, sender);
    tasks.spawn_until_stopped("service proxy", sync.run());
    Ok(Proxy { ready })
}

/// Removes every rule of the proxy.
pub async fn cleanup(config: &Config) -> Result<(), ProxyError> {
    check(config)?;
    let table = &config.table;
    // Added first, so that deleting an absent table is no error.
    nft::Nft::new(config.nft.clone()).apply(&format!("add table ip {table}\ndelete table ip {table}\n")).await?;
    Ok(())
}

fn check(config: &Config) -> Result<(), ProxyError> {
    let is_range = |text: &str| {
        text.split_once('/').is_some_and(|(address, length)| {
            address.parse::<std::net::Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok_and(|length| length <= 32)
        })
    };
    for range in std::iter::once(&config.pod_cidr).chain(&config.service_cidrs) {
        if !is_range(range) {
            return Err(ProxyError::Config(format!("{range:?} is not an IPv4 range such as 10.96.0.0/16")));
        }
    }
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if config.table.is_empty() || !plain(&config.table) {
        return Err(ProxyError::Config(format!("{:?} cannot be the name of an nftables table", config.table)));
    }
    Ok(())
}

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod plan_tests;

//! The service proxy: Services as nftables rules on this node.
//!
//! Events of Services and EndpointSlices mark services as changed; a pure plan turns each into chains, sets and map
//! elements (`plan`); `table` computes the difference; `nft` applies it as one transaction. Most changes are of elements alone,
//! and need no process of the program `nft`. The next transaction carries whatever changed while the last one ran, so that
//! nothing waits and nothing is told twice.
//!
//! Must not depend on any server-side crate. Each family of addresses has a table and a state of its own (`family`).

mod affinity;
mod claims;
mod conntrack;
mod endpoints;
mod extent;
mod family;
mod fragment;
mod frame;
mod health;
mod host;
mod listeners;
mod metrics;
mod plan;
mod proxier;
mod service_address;
mod shape;
mod sync;
mod table;

use ferry_client::{Informers, Recorder};
use ferry_tasks::Tasks;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use tokio::sync::watch;

pub use ferry_nft::NftError;
use ferry_nft::{Nft, Watch};
use ipnet::IpNet;

use crate::family::Family;
use crate::frame::Frame;

/// The table every rule lives in, unless the configuration names another.
pub const TABLE: &str = "ferry-proxy";

#[derive(Clone)]
pub struct Config {
    /// The name of this node, as endpoints give it.
    pub node_name: String,
    /// Addresses of pods: traffic from anywhere else to a ClusterIP is masqueraded. Services are served for the families of
    /// these.
    pub pod_cidrs: Vec<String>,
    /// Addresses of Services: those without a Service are refused instead of leaving the machine.
    pub service_cidrs: Vec<String>,
    /// Name of the nftables tables (families `ip` and `ip6`).
    pub table: String,
    /// The `nft` command with leading arguments.
    pub nft: Vec<String>,
    /// Whether to turn on forwarding and bridge filtering in the kernel.
    pub prepare_kernel: bool,
    /// Node ports are served at these addresses of the node alone; empty: at all.
    pub node_port_addresses: Vec<String>,
    /// Where `/healthz` and `/livez` are served for load balancers.
    pub healthz_bind_address: Option<SocketAddr>,
    /// Where `/metrics` is served.
    pub metrics_bind_address: Option<SocketAddr>,
    /// Tells a Service's owner what it was refused; without it only the log does.
    pub recorder: Option<Recorder>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            pod_cidrs: vec!["10.244.0.0/16".into()],
            service_cidrs: vec!["10.96.0.0/16".into()],
            table: TABLE.into(),
            nft: vec!["nft".into()],
            prepare_kernel: true,
            node_port_addresses: Vec::new(),
            healthz_bind_address: None,
            metrics_bind_address: None,
            recorder: None,
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
    listening: watch::Receiver<BTreeSet<String>>,
}

/// The ports that the node itself listens on for others, such as `tcp/22`. Blocks for as long as it takes to read a few files
/// of `/proc`.
pub fn listening() -> BTreeSet<String> {
    listeners::Listeners::read().names()
}

impl Proxy {
    /// Waits until the kernel holds the rules for everything that existed at the start: the first transaction may fail
    /// and be tried again.
    pub async fn ready(&self) {
        // Fails only when the proxy was stopped before: then nobody can be waiting for its rules.
        let _ = self.ready.clone().wait_for(|ready| *ready).await;
    }

    /// The ports that the node itself listens on for others, as they were when a Service made the proxy look last.
    pub fn listening(&self) -> watch::Receiver<BTreeSet<String>> {
        self.listening.clone()
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

/// The table of a family; none where pods have no addresses of it.
fn frame(config: &Config, family: Family, masquerade_between_pods: bool) -> Option<Frame> {
    Some(Frame {
        family,
        table: config.table.clone(),
        pod_cidr: family.ranges(&config.pod_cidrs).into_iter().next()?,
        service_cidrs: family.ranges(&config.service_cidrs),
        node_port_addresses: match family.ranges(&config.node_port_addresses) {
            // All of the ranges are of the other family: there is none at which it would be served.
            none if none.is_empty() && !config.node_port_addresses.is_empty() => vec![family.loopback().to_owned()],
            ranges => ranges,
        },
        masquerade_between_pods,
    })
}

async fn begin(config: Config, informers: &Informers, tasks: &Tasks) -> Result<Proxy, ProxyError> {
    let tasks = tasks.child("proxy");
    check(&config)?;
    let has = |family: &Family| !family.ranges(&config.pod_cidrs).is_empty();
    let families: Vec<Family> = Family::ALL.into_iter().filter(has).collect();
    let bridge_filtering = match config.prepare_kernel {
        true => host::prepare(&families).await.map_err(ProxyError::Kernel)?,
        false => true,
    };
    let frames: Vec<Frame> = families.iter().filter_map(|family| frame(&config, *family, !bridge_filtering)).collect();
    let nft = Nft::new(config.nft.clone());
    // Rules of an earlier run go on working until the first complete list replaces them.
    let tables: String = frames.iter().map(|frame| format!("add table {}\n", frame.place())).collect();
    nft.apply(&tables).await?;
    let (sender, ready) = watch::channel(false);
    let sources = sync::Sources { services: informers.of(), slices: informers.projected(), nodes: informers.of() };
    let (listens, listening) = watch::channel(BTreeSet::new());
    let health = health::Health::default();
    health.serve(config.healthz_bind_address, config.metrics_bind_address, &tasks);
    let group = tasks.clone();
    tasks.spawn_critical("service proxy", move || {
        let (frames, nft, sources) = (frames.clone(), nft.clone(), sources.clone());
        let sync = sync::Sync::new(config.node_name.clone(), frames, nft, sources, sender.clone());
        let sync = sync.telling(config.recorder.clone()).publishing(listens.clone());
        let sync = sync.with_health(health.clone(), group.clone());
        async move {
            match Watch::new(sync.nft()) {
                Ok(watch) => sync.watching(watch).run().await,
                Err(error) => {
                    tracing::error!("what others do to the rules of Services is not seen: {error}");
                    sync.run().await;
                }
            }
        }
    });
    Ok(Proxy { ready, listening })
}

/// Removes every rule of the proxy.
pub async fn cleanup(config: &Config) -> Result<(), ProxyError> {
    check(config)?;
    let table = &config.table;
    // Added first, so that deleting an absent table is no error.
    let remove = |family: Family| format!("add table {0} {table}\ndelete table {0} {table}\n", family.word());
    Nft::new(config.nft.clone()).apply(&Family::ALL.map(remove).concat()).await?;
    Ok(())
}

fn check(config: &Config) -> Result<(), ProxyError> {
    let ranges = config.pod_cidrs.iter().chain(&config.service_cidrs).chain(&config.node_port_addresses);
    for range in ranges {
        if range.parse::<IpNet>().is_err() {
            return Err(ProxyError::Config(format!("{range:?} is not a range such as 10.96.0.0/16 or fd00::/112")));
        }
    }
    if config.pod_cidrs.is_empty() {
        return Err(ProxyError::Config("there is no range of pods".to_owned()));
    }
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if config.table.is_empty() || !plain(&config.table) {
        return Err(ProxyError::Config(format!("{:?} cannot be the name of an nftables table", config.table)));
    }
    Ok(())
}

#[cfg(test)]
mod equality_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod plan_tests;

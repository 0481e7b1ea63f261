//! Nodes without containers: they register, renew their leases and walk the pods bound to them through their phases,
//! so that a control plane can be tested and measured at any size on one machine.
//!
//! All nodes share one watch of pods, one watch of nodes and a fixed number of workers: ten thousand of them cost what
//! their writes cost. Talks to the API and nothing else; must not depend on any server-side crate nor on the kubelet.
//!
//! What a pod does is said by its annotations, see [`annotation`]; a node with [`annotation::SILENT`] says nothing.

mod addresses;
mod heartbeat;
mod nodes;
mod plan;
mod pods;
mod status;

pub use plan::duration;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, Informer, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;

/// What pods and nodes say to those who simulate them.
pub mod annotation {
    /// On a pod: its containers end after this time (`5s`, `100ms`).
    pub const RUN_FOR: &str = "simulate.ferry.dev/run-for";
    /// On a pod: the code its containers end with; 0 when absent.
    pub const EXIT_CODE: &str = "simulate.ferry.dev/exit-code";
    /// On a pod: becomes ready after this time instead of the configured one; `never` is understood.
    pub const READY_AFTER: &str = "simulate.ferry.dev/ready-after";
    /// On a node: `true` is a node that is lost: no lease, no status, its pods stay as they are.
    pub const SILENT: &str = "simulate.ferry.dev/silent";
}

/// On every simulated node, with the names' prefix as its value.
pub const LABEL: &str = "simulate.ferry.dev/nodes";

/// How long things take on a simulated node.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// From a pod's binding to its containers running.
    pub start: Duration,
    /// From running to ready.
    pub ready: Duration,
    /// From a pod's deletion to its end, within its grace period.
    pub stop: Duration,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub nodes: usize,
    /// Nodes are called by this and a number from 0.
    pub name_prefix: String,
    /// Nodes are spread over so many zones; none have the labels when 0.
    pub zones: usize,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Amounts of every node by resource, as `cpu`, `memory`, `pods`, `example.com/gpu`.
    pub capacity: BTreeMap<String, String>,
    /// The address of the first node; the others follow.
    pub first_address: Ipv4Addr,
    /// Where pods of nodes without a range of their own get addresses from.
    pub spare_address: Ipv4Addr,
    pub timing: Timing,
    pub lease_period: Duration,
    pub version: String,
}

impl Default for Config {
    fn default() -> Self {
        let amounts = [("cpu", "8"), ("memory", "32Gi"), ("ephemeral-storage", "100Gi"), ("pods", "110")];
        Self {
            nodes: 1,
            name_prefix: "node-".into(),
            zones: 0,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            capacity: amounts.map(|(name, amount)| (name.into(), amount.into())).into(),
            first_address: Ipv4Addr::new(198, 18, 0, 1),
            spare_address: Ipv4Addr::new(100, 64, 0, 1),
            timing: Timing::default(),
            lease_period: Duration::from_secs(10),
            version: "v1.37.0".into(),
        }
    }
}

/// Simulated nodes that run until their task group stops. The Node objects stay.
pub struct Simulation {
    nodes: Informer<Node>,
    count: usize,
}

impl Simulation {
    /// Waits until every node is registered.
    pub async fn registered(&self) {
        let mut changes = self.nodes.subscribe();
        while self.nodes.len() < self.count {
            changes.next().await;
        }
    }
}

/// Starts the nodes and returns at once.
pub fn start(config: Config, client: Client, tasks: &Tasks) -> Simulation {
    let config = Arc::new(config);
    let ours = Selection::labels(format!("{LABEL}={}", nodes::group(&config.name_prefix)));
    let informer: Informer<Node> = Informer::trimmed(Api::all(client.clone()), tasks, ours, nodes::trim);
    nodes::start(&config, &client, &informer, tasks);
    heartbeat::start(&config, &client, &informer, tasks);
    pods::start(&config, &client, &informer, tasks);
    Simulation { nodes: informer, count: config.nodes }
}

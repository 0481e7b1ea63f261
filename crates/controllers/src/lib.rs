//! The controllers: loops that watch, compare and act through the API, and nothing else.
//!
//! One folder per controller: `plan.rs` is a pure function of what was observed, `reconcile.rs` reads the caches,
//! carries the plan out and writes the status. Each has an identity of its own
//! (`system:serviceaccount:kube-system:<name>`) with upstream's role. Must not depend on any server-side crate.

mod apps;
mod batch;
mod common;
mod core;
mod discovery;
mod garbagecollector;
mod node;
mod rbac;

use std::sync::Arc;
use std::time::Duration;

use ferry_client::Informers;
use ferry_tasks::Tasks;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::Client;

/// What the controllers need to know of the cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// PEM of the authority that signs the API server's certificate, for `kube-root-ca.crt`.
    pub root_ca: String,
    /// The range from which nodes get their pods' addresses; none leaves that to somebody else.
    pub cluster_cidr: Option<String>,
    pub node_cidr_mask_size: u8,
    /// How long a node may be silent before its state is unknown.
    pub node_monitor_grace_period: Duration,
    /// How many pods that have ended are kept; 0 keeps all.
    pub terminated_pod_threshold: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            root_ca: String::new(),
            cluster_cidr: Some("10.244.0.0/16".into()),
            node_cidr_mask_size: 24,
            node_monitor_grace_period: Duration::from_secs(40),
            terminated_pod_threshold: 12500,
        }
    }
}

/// What every controller is started with.
pub(crate) struct Context {
    pub(crate) informers: Informers,
    clients: Arc<dyn Fn(&str) -> Client + Send + Sync>,
    pub(crate) tasks: Tasks,
    pub(crate) config: Config,
}

impl Context {
    /// The client of the controller with that name.
    pub(crate) fn client(&self, controller: &str) -> Client {
        (self.clients)(controller)
    }
}

/// Starts all controllers and returns at once; they wait for their caches by themselves. `clients` gives a client
/// that acts as `system:serviceaccount:kube-system:<controller>`.
pub fn start<F>(informers: &Informers, clients: F, tasks: &Tasks, config: Config)
where
    F: Fn(&str) -> Client + Send + Sync + 'static,
{
    let context = Context { informers: informers.clone(), clients: Arc::new(clients), tasks: tasks.clone(), config };
    apps::replicaset::start::<ReplicaSet>(&context);
    apps::replicaset::start::<ReplicationController>(&context);
    apps::deployment::start(&context);
    apps::daemonset::start(&context);
    apps::statefulset::start(&context);
    batch::job::start(&context);
    batch::cronjob::start(&context);
    batch::ttl_after_finished::start(&context);
    core::endpoints::start(&context);
    discovery::endpointslice::start(&context);
    core::service_account::start(&context);
    core::root_ca::start(&context);
    core::namespace::start(&context);
    garbagecollector::start(&context);
    node::lifecycle::start(&context);
    node::taint_eviction::start(&context);
    node::pod_gc::start(&context);
    node::ipam::start(&context);
    rbac::clusterrole_aggregation::start(&context);
}

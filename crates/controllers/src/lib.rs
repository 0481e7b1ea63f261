//! The controllers: loops that watch, compare and act through the API, and nothing else.
//!
//! One folder per controller: `plan.rs` is a pure function of what was observed, `reconcile.rs` reads the caches,
//! carries the plan out and writes the status. Each has an identity of its own
//! (`system:serviceaccount:kube-system:<name>`) with upstream's role. Must not depend on any server-side crate.
//!
//! A new controller is a folder and a row of [`TABLE`].

mod admissionregistration;
mod apps;
mod autoscaling;
mod batch;
mod bootstrap;
mod certificates;
mod cloud;
mod common;
mod core;
mod discovery;
mod garbagecollector;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod selection;
mod storage;
mod storagemigration;

use std::sync::Arc;
use std::time::Duration;

use ferry_client::queue::QueueKey;
use ferry_client::{Clock, Informers, Metrics, WorkQueue};
use ferry_tasks::Tasks;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::Client;

pub use autoscaling::hpa::Settings as Autoscaling;
pub use cloud::ports::LISTENING_PORTS;
pub use cloud::{AddressPool, AddressPoolError, Ensured, Instance, Local, Machine, Pool, Provider};
pub use selection::{Selection, UnknownController};

pub use storage::binder::is_default_class;

/// The local-path provisioner: who it is, and what it may do.
pub mod local_path {
    pub use crate::storage::local_path::{ACCOUNT, rules};
}

/// The authority with which certificate requests are signed, as PEM.
#[derive(Clone)]
pub struct Authority {
    pub certificate: String,
    pub key: String,
    /// The longest life of a certificate.
    pub lifetime: Duration,
}

/// Signs the claims of a token.
pub type SignToken = Arc<dyn Fn(&serde_json::Value) -> Result<String, String> + Send + Sync>;

/// What the controllers need to know of the cluster.
#[derive(Clone)]
pub struct Config {
    /// Which controllers run.
    pub controllers: Selection,
    /// PEM of the authority that signs the API server's certificate, for `kube-root-ca.crt`.
    pub root_ca: String,
    /// The range from which nodes get their pods' addresses, or one of each family with a comma between; none leaves that to
    /// somebody else.
    pub cluster_cidr: Option<String>,
    pub node_cidr_mask_size: u8,
    pub node_cidr_mask_size_ipv6: u8,
    /// How long a node may be silent before its state is unknown.
    pub node_monitor_grace_period: Duration,
    /// How many pods that have ended are kept; 0 keeps all.
    pub terminated_pod_threshold: usize,
    pub autoscaling: Autoscaling,
    /// Signs certificate requests; none leaves that to somebody else.
    pub signing: Option<Authority>,
    /// Signs the tokens of Secrets; none leaves those to somebody else.
    pub sign_token: Option<SignToken>,
    /// Makes load balancers; none leaves LoadBalancer Services to somebody else.
    pub provider: Option<Arc<dyn Provider>>,
    /// Whether volumes of the local-path provisioner are made; where they are not, those that are there are still removed. None
    /// leaves all of them to somebody else.
    pub local_path: Option<bool>,
    /// The time by which all of them act.
    pub clock: Clock,
    /// Where queues tell their figures.
    pub metrics: Metrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            controllers: Selection::default(),
            root_ca: String::new(),
            cluster_cidr: Some("10.244.0.0/16".into()),
            node_cidr_mask_size: 24,
            node_cidr_mask_size_ipv6: 64,
            node_monitor_grace_period: Duration::from_secs(40),
            terminated_pod_threshold: 12500,
            autoscaling: Autoscaling::default(),
            signing: None,
            sign_token: None,
            provider: None,
            local_path: None,
            clock: Clock::default(),
            metrics: Metrics::default(),
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

    /// A queue whose figures are told under upstream's name for it.
    pub(crate) fn queue<Key: QueueKey>(&self, name: &'static str) -> WorkQueue<Key> {
        WorkQueue::with_metrics(self.config.metrics.queue(name))
    }
}

type Start = fn(&Context);

/// Every controller by upstream's name, as `--controllers` takes it. Identities have other names.
const TABLE: &[(&str, Start)] = &[
    ("serviceaccount-controller", core::service_account::start),
    ("serviceaccount-token-controller", core::token_secret::start),
    ("legacy-serviceaccount-token-cleaner-controller", core::legacy_token_cleaner::start),
    ("root-ca-certificate-publisher-controller", core::root_ca::start),
    ("node-ipam-controller", node::ipam::start),
    ("node-lifecycle-controller", node::lifecycle::start),
    ("deployment-controller", apps::deployment::start),
    ("replicaset-controller", apps::replicaset::start::<ReplicaSet>),
    ("endpointslice-controller", discovery::endpointslice::start),
    ("endpoints-controller", core::endpoints::start),
    ("daemonset-controller", apps::daemonset::start),
    ("statefulset-controller", apps::statefulset::start),
    ("job-controller", batch::job::start),
    ("cronjob-controller", batch::cronjob::start),
    ("ttl-after-finished-controller", batch::ttl_after_finished::start),
    ("replicationcontroller-controller", apps::replicaset::start::<ReplicationController>),
    ("namespace-controller", core::namespace::start),
    ("taint-eviction-controller", node::taint_eviction::start),
    ("pod-garbage-collector-controller", node::pod_gc::start),
    ("resourcequota-controller", core::resource_quota::start),
    ("disruption-controller", policy::disruption::start),
    ("endpointslice-mirroring-controller", discovery::mirroring::start),
    ("persistentvolume-binder-controller", storage::binder::start),
    ("persistentvolume-attach-detach-controller", storage::attach_detach::start),
    ("persistentvolume-expander-controller", storage::expand::start),
    ("persistentvolumeclaim-protection-controller", storage::protection::start_claims),
    ("persistentvolume-protection-controller", storage::protection::start_volumes),
    ("volumeattributesclass-protection-controller", storage::class_protection::start),
    ("ephemeral-volume-controller", storage::ephemeral::start),
    ("selinux-warning-controller", storage::selinux_warning::start),
    ("certificatesigningrequest-approving-controller", certificates::approve::start),
    ("certificatesigningrequest-signing-controller", certificates::sign::start),
    ("certificatesigningrequest-cleaner-controller", certificates::clean::start),
    ("podcertificaterequest-cleaner-controller", certificates::clean_pod_requests::start),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", certificates::trust_bundle::start),
    ("bootstrap-signer-controller", bootstrap::signer::start),
    ("token-cleaner-controller", bootstrap::token_cleaner::start),
    ("ttl-controller", node::ttl::start),
    ("service-lb-controller", cloud::service::start),
    ("cloud-node-controller", cloud::instance::start),
    ("cloud-node-lifecycle-controller", cloud::lifecycle::start),
    ("node-route-controller", cloud::route::start),
    ("horizontal-pod-autoscaler-controller", autoscaling::hpa::start),
    ("resourceclaim-controller", resource::claim::start),
    ("device-taint-eviction-controller", resource::device_taint_eviction::start),
    ("storage-version-migrator-controller", storagemigration::migrator::start),
    ("service-cidr-controller", networking::service_cidr::start),
    ("validatingadmissionpolicy-status-controller", admissionregistration::policy_status::start),
    ("clusterrole-aggregation-controller", rbac::clusterrole_aggregation::start),
    // The last, since it looks at what the others watch.
    ("garbage-collector-controller", garbagecollector::start),
];

/// The names that `Config::controllers` can select from.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// Starts the selected controllers and returns at once; they wait for their caches by themselves. `clients` gives a
/// client that acts as `system:serviceaccount:kube-system:<controller>`.
pub fn start<F>(informers: &Informers, clients: F, tasks: &Tasks, config: Config)
where
    F: Fn(&str) -> Client + Send + Sync + 'static,
{
    let context =
        Context { informers: informers.clone(), clients: Arc::new(clients), tasks: tasks.child("controllers"), config };
    // Ferry's own has no name of upstream's, and a flag of its own.
    storage::local_path::start(&context);
    for (name, start) in TABLE {
        if context.config.controllers.includes(name) {
            start(&context);
        }
    }
}

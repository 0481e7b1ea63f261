//! The gateway of a cluster: its rights, and its start in this process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgAction, Args};
use ferry_client::{Informers, Recorder, leader};
use ferry_gateway::{Config, Keys, Role};
use ferry_tasks::Tasks;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Who the gateway is.
pub const NAMESPACE: &str = "kube-system";
pub const ACCOUNT: &str = "ferry-gateway";
pub const ROLE: &str = "ferry:gateway";

#[derive(Args, Clone, Debug)]
pub struct GatewayFlags {
    /// Serve Gateways, their routes and Ingresses on this machine. Without servers that do, the cluster has none.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub gateway: bool,
    #[command(flatten)]
    pub serving: ServingFlags,
}

#[derive(Args, Clone, Debug)]
pub struct ServingFlags {
    /// The addresses of this machine for Gateways. Ingresses use the first one. Default: the node's address.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub gateway_address: Vec<IpAddr>,
    /// A file for the access log, with a JSON line for each request.
    #[arg(long, value_name = "FILE")]
    pub gateway_access_log: Option<PathBuf>,
    /// Where the gateway serves `/metrics`. Default: nowhere.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub gateway_metrics_bind_address: Option<SocketAddr>,
}

impl ServingFlags {
    pub fn config(&self, own: IpAddr) -> Config {
        let addresses = if self.gateway_address.is_empty() { vec![own] } else { self.gateway_address.clone() };
        Config {
            addresses,
            metrics_bind_address: self.gateway_metrics_bind_address,
            access_log: self.gateway_access_log.clone(),
        }
    }
}

/// The name that the API server knows it by.
pub fn user() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

const KINDS: [&str; 10] = [
    "gatewayclasses",
    "gateways",
    "listenersets",
    "httproutes",
    "grpcroutes",
    "tlsroutes",
    "tcproutes",
    "udproutes",
    "referencegrants",
    "backendtlspolicies",
];

/// What the gateway of a joined node may do, beside reading the keys that are made for it. Services, EndpointSlices and Namespaces
/// come to it through the node's proxy.
pub fn node_rules() -> Value {
    let watch = ["list", "watch"];
    json!([
        { "apiGroups": [ferry_gateway::api::GROUP], "resources": KINDS, "verbs": watch },
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], "verbs": watch },
    ])
}

/// All that it may do.
pub fn rules() -> Value {
    let (watch, kinds) = (["get", "list", "watch"], KINDS);
    let statuses = kinds.iter().filter(|kind| **kind != "referencegrants").map(|kind| format!("{kind}/status"));
    json!([
        { "apiGroups": [""], "resources": ["services", "namespaces", "nodes", "secrets", "configmaps"], "verbs": watch },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch },
        { "apiGroups": [ferry_gateway::api::GROUP], "resources": kinds, "verbs": watch },
        { "apiGroups": [ferry_gateway::api::GROUP], "resources": ["gatewayclasses"], "verbs": ["create"] },
        { "apiGroups": [ferry_gateway::api::GROUP], "resources": statuses.collect::<Vec<_>>(), "verbs": ["patch", "update"] },
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], "verbs": watch },
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": ["create"] },
        { "apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["patch", "update"] },
        { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "create", "update"] },
        { "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "list", "watch"] },
    ])
}

/// Serves on a server. It leads at once, or while it is elected where there may be other servers. `informers` are those that others
/// use as well.
pub fn start_on_server(
    config: Config,
    client: Client,
    informers: &Informers,
    is_shared: bool,
    report: watch::Sender<Option<String>>,
    tasks: &Tasks,
) {
    let (leading, leads) = watch::channel(!is_shared);
    if is_shared {
        elect(client.clone(), leading, tasks);
    }
    let role = Role { leads, keys: Keys::All, has_company: true, report };
    let recorder = Recorder::new(client.clone(), ACCOUNT, tasks);
    ferry_gateway::start(config, client, informers, role, recorder, tasks);
}

fn elect(client: Client, leading: watch::Sender<bool>, tasks: &Tasks) {
    let group = tasks.clone();
    tasks.spawn("gateway election", async move {
        let lead = || {
            let election = leader::Config::new(ACCOUNT, &crate::component::identity());
            let leading = leading.clone();
            leader::run(client.clone(), election, &group, move |led, _| {
                leading.send_replace(true);
                let stopping = led.stopping();
                led.spawn("gateway term", async move {
                    stopping.cancelled().await;
                    leading.send_replace(false);
                });
            })
        };
        while !lead().await {}
    });
}

/// Serves on a joined node, with keys that are handed to it. `informers` are those of the node's proxy.
pub fn start_on_node(
    config: Config,
    client: Client,
    informers: &Informers,
    report: watch::Sender<Option<String>>,
    tasks: &Tasks,
) {
    let role = Role { leads: watch::channel(false).1, keys: Keys::Handed, has_company: false, report };
    let recorder = Recorder::new(client.clone(), ACCOUNT, tasks);
    ferry_gateway::start(config, client, informers, role, recorder, tasks);
}

/// Serves alone, with informers of its own.
pub fn begin(config: Config, client: Client, tasks: &Tasks) {
    let informers = Informers::new(client.clone(), tasks.clone());
    let recorder = Recorder::new(client.clone(), ACCOUNT, tasks);
    ferry_gateway::start(config, client, &informers, Role::alone(), recorder, tasks);
}

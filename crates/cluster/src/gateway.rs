//! The gateway of a cluster: its rights, and its start in this process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgAction, Args};
use ferry_client::{Informers, Recorder, leader};
use ferry_gateway::Config;
use ferry_tasks::Tasks;
use kube::Client;
use serde_json::{Value, json};

/// Who the gateway is.
pub const NAMESPACE: &str = "kube-system";
pub const ACCOUNT: &str = "ferry-gateway";
pub const ROLE: &str = "ferry:gateway";

#[derive(Args, Clone, Debug)]
pub struct GatewayFlags {
    /// Serve Gateways, their routes and Ingresses on this machine.
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

/// All that it may do.
pub fn rules() -> Value {
    let watch = ["get", "list", "watch"];
    let kinds = [
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
    let statuses = kinds.iter().filter(|kind| **kind != "referencegrants").map(|kind| format!("{kind}/status"));
    json!([
        { "apiGroups": [""], "resources": ["services", "namespaces", "secrets", "configmaps"], "verbs": watch },
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

/// Starts it, or stands for election where several servers could. `shared` are informers that others use as well.
pub fn start(config: Config, client: Client, shared: Option<&Informers>, tasks: &Tasks) {
    if let Some(shared) = shared {
        let recorder = Recorder::new(client.clone(), ACCOUNT, tasks);
        ferry_gateway::start(config, client, shared, recorder, tasks);
        return;
    }
    let group = tasks.clone();
    tasks.spawn("gateway election", async move {
        let lead = || {
            let election = leader::Config::new(ACCOUNT, &crate::component::identity());
            let (config, client) = (config.clone(), client.clone());
            leader::run(client.clone(), election, &group, move |led, _| begin(config, client, &led))
        };
        while !lead().await {}
    });
}

/// With informers of its own.
pub fn begin(config: Config, client: Client, tasks: &Tasks) {
    let informers = Informers::new(client.clone(), tasks.clone());
    let recorder = Recorder::new(client.clone(), ACCOUNT, tasks);
    ferry_gateway::start(config, client, &informers, recorder, tasks);
}

//! Every flag, declared once.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use crate::insight_options::{TraceOptions, WhyOptions};
use crate::kubelet_options::KubeletOptions;
use crate::server_options::{ServerOptions, duration};

/// A complete Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "ferry", version, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// The flags of the command that was called, with the values they have; none where the arguments are not those of `ferry`.
pub fn flags_in_use(arguments: impl Iterator<Item = OsString>) -> Vec<(String, String)> {
    let command = Arguments::command();
    let Ok(matches) = command.clone().try_get_matches_from(arguments) else { return Vec::new() };
    let Some((name, matches)) = matches.subcommand() else { return Vec::new() };
    let Some(command) = command.find_subcommand(name) else { return Vec::new() };
    let flags = command.get_arguments().filter_map(|argument| {
        let name = argument.get_long()?.to_owned();
        let values = matches.try_get_raw(argument.get_id().as_str()).ok()?;
        let values: Vec<_> = values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        Some((name, values.join(",")))
    });
    flags.collect()
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster on this machine in the background and wait until its node is Ready.
    Up(ClusterOptions),
    /// Stop the cluster and everything it started on this machine; the data folder stays.
    Down(DownOptions),
    /// Run the cluster in the foreground.
    Run(ClusterOptions),
    /// Run the API server alone.
    Apiserver(ApiserverOptions),
    /// Run the controllers alone, against any API server.
    ControllerManager(ControllerManagerOptions),
    /// Run the scheduler alone, against any API server.
    Scheduler(SchedulerOptions),
    /// Make this machine a node of a cluster that runs elsewhere.
    Join(JoinOptions),
    /// Drain this node, remove it from its cluster and take away everything it made on this machine.
    Leave(LeaveOptions),
    /// Tokens with which machines join.
    Token(TokenOptions),
    /// Nodes: this machine's own, and simulated ones for tests and measurements.
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Back up, restore and examine the embedded store.
    Store(StoreOptions),
    /// Work with the keys that protect Secrets at rest.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Show the hops from a client's request to a pod that can be reached, and how long each took.
    Trace(TraceOptions),
    /// Say why an object is not ready, scheduled, running, reachable or deleted. Exit code: 0 nothing is wrong, 1 something is.
    Why(WhyOptions),
    /// Print the completions of a shell, for example: ferry completion bash > /etc/bash_completion.d/ferry
    Completion {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the man pages to a folder.
    #[command(hide = true)]
    Man { folder: PathBuf },
}

#[derive(Subcommand)]
pub enum SecretsCommand {
    /// Take a new key and encrypt everything anew with it; old keys are still read.
    Rotate(RotateOptions),
}

#[derive(Args, Clone, Debug)]
pub struct RotateOptions {
    /// Where the cluster keeps its state and its keys.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    /// How to reach the cluster while it runs; the data folder's own when not given.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The file that the API server was started with, if it was.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
}

/// Where a cluster keeps its files.
#[derive(Args, Clone, Debug)]
pub struct Folders {
    /// Cluster state, certificates, images and the kubeconfig.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    /// Sockets, locks and what need not outlive a reboot.
    #[arg(long, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
}

/// One machine of a cluster: where it keeps things, how it is called, what runs its containers.
#[derive(Args, Clone, Debug)]
pub struct NodeOptions {
    #[command(flatten)]
    pub folders: Folders,
    /// The port of the kubelet.
    #[arg(long, default_value_t = 10250)]
    pub kubelet_port: u16,
    /// The node's name; the host's name when not given.
    #[arg(long)]
    pub node_name: Option<String>,
    /// The node's address; the one that reaches the default gateway when not given.
    #[arg(long)]
    pub node_ip: Option<IpAddr>,
    /// A label that the node registers with. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_label: Vec<String>,
    /// A taint that the node registers with: `key=value:NoSchedule`. May be given several times.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT")]
    pub node_taint: Vec<String>,
    /// The bridge that pods are attached to.
    #[arg(long, default_value = "ferry0")]
    pub bridge: String,
    /// The control group that holds those of the pods, in `kubepods`.
    #[arg(long, default_value = "/")]
    pub cgroup_root: PathBuf,
    /// Pull images of a registry from elsewhere first: `docker.io=http://127.0.0.1:5000`. May be given several times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// What runs containers: `containerd`, one that Ferry starts for itself; `embedded`, Ferry's own runtime, which needs
    /// none; or the socket of another, as `unix:///run/other.sock`.
    #[arg(long, default_value = "containerd", value_name = "RUNTIME")]
    pub container_runtime_endpoint: String,
    #[command(flatten)]
    pub kubelet: KubeletOptions,
}

#[derive(Args, Clone, Debug)]
pub struct ClusterOptions {
    #[command(flatten)]
    pub node: NodeOptions,
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// The port of the API server.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// The address the API server listens on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port of the cluster DNS on the pod network's gateway.
    #[arg(long, default_value_t = 10053)]
    pub dns_port: u16,
    /// Pods get their addresses from here.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// Services get their addresses from here.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// How packets travel between nodes: `routes` where all are on one segment, `vxlan` anywhere, `auto` chooses for each node,
    /// `cni` leaves it to a plug-in that you install.
    #[arg(long, default_value = "auto", value_name = "MODE")]
    pub pod_network: ferry_network::Mode,
    /// The image that holds a pod's namespaces.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    pub pause_image: String,
    #[command(flatten)]
    pub server: ServerOptions,
}

/// `ferry join`: where the cluster is, and this machine.
#[derive(Args, Clone, Debug)]
pub struct JoinOptions {
    /// A server of the cluster: `192.0.2.1` or `192.0.2.1:6443`.
    pub address: String,
    /// What `ferry token create` printed there.
    pub token: String,
    #[command(flatten)]
    pub node: NodeOptions,
}

#[derive(Args, Clone, Debug)]
pub struct LeaveOptions {
    #[command(flatten)]
    pub folders: Folders,
}

#[derive(Args, Clone, Debug)]
pub struct TokenOptions {
    /// How to reach the cluster; as kubectl finds it when not given, else that of `ferry up`.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum TokenCommand {
    /// Print the line that makes another machine a node of this cluster.
    Create {
        /// How long the token may be used; 0 for ever.
        #[arg(long, default_value = "24h", value_parser = duration)]
        ttl: Duration,
        /// What it is for, for those who read the list.
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Show the tokens there are, without their secrets.
    List,
    /// Delete tokens by their first six characters.
    Delete {
        #[arg(required = true)]
        id: Vec<String>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct DownOptions {
    #[command(flatten)]
    pub folders: Folders,
    /// Delete the data folder too: the cluster's state is gone after that.
    #[arg(long)]
    pub purge: bool,
}

#[derive(Args, Clone, Debug)]
pub struct ApiserverOptions {
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// The embedded store and generated certificates live here.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The address other components reach the API server at.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Services get their addresses from here; after a comma a range of IPv6 may follow, for Services of both families.
    #[arg(long, default_value = "10.96.0.0/16")]
    pub service_cluster_ip_range: String,
    /// The serving certificate; one is made from the data folder's CA when not given.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Client certificates signed by one of these CAs are accepted; the data folder's CA when not given.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// Static tokens: lines of `token,user,uid,"group1,group2"`.
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerOptions,
    /// `CBORServingAndStorage=true` lets clients speak CBOR. May be given several times, or with commas.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ControllerManagerOptions {
    /// How to reach the API server; $KUBECONFIG or the pod's own service account when not given.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address, instead of the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
    /// Which controllers run: `*` for all, `name` for one, `-name` for all but one; several with commas.
    #[arg(long, default_value = "*", allow_hyphen_values = true)]
    pub controllers: String,
    #[arg(long, default_value_t = 10257)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The certificate of health and metrics; one is made up when not given.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Stand for election and run the controllers while elected.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    #[arg(long, default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Each controller acts as a service account of its own.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub use_service_account_credentials: bool,
    /// The authority that signs the API server's certificate, for the ConfigMap in every namespace.
    #[arg(long)]
    pub root_ca_file: Option<PathBuf>,
    /// Give every node a range of the cluster's pod addresses.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub allocate_node_cidrs: bool,
    /// One range, or one of each family with a comma between.
    #[arg(long, default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// The length of a node's range where there is one family: 24 or 64 when not given.
    #[arg(long)]
    pub node_cidr_mask_size: Option<u8>,
    #[arg(long)]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    #[arg(long)]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    #[arg(long, default_value = "40s", value_parser = duration)]
    pub node_monitor_grace_period: Duration,
    /// The key with which tokens of Secrets are signed; they get none when not given.
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
    /// The authority with which certificate requests are signed.
    #[arg(long, requires = "cluster_signing_key_file")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    #[arg(long, requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    #[arg(long, default_value = "8760h", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// `local` gives LoadBalancer Services the nodes' addresses; nobody cares for them when not given.
    #[arg(long)]
    pub cloud_provider: Option<String>,
    /// How many pods that have ended are kept; 0 keeps all.
    #[arg(long, default_value_t = 12500)]
    pub terminated_pod_gc_threshold: usize,
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    #[arg(long, default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct SchedulerOptions {
    /// A KubeSchedulerConfiguration; the defaults when not given.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// How to reach the API server; what the configuration says, $KUBECONFIG or the pod's own service account when not given.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The API server's address, instead of the one in the kubeconfig.
    #[arg(long)]
    pub master: Option<String>,
    #[arg(long, default_value_t = 10259)]
    pub secure_port: u16,
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The certificate of health and metrics; one is made up when not given.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Stand for election and schedule while elected. These flags count before the configuration.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    #[arg(long, value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    #[arg(long, value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    #[arg(long, value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
    #[arg(long)]
    pub leader_elect_resource_name: Option<String>,
    #[arg(long)]
    pub leader_elect_resource_namespace: Option<String>,
}

#[derive(Subcommand)]
pub enum NodeCommand {
    /// Run the node that `ferry join` made of this machine in the foreground.
    Run(NodeOptions),
    /// Register nodes without containers and walk the pods bound to them through their phases, until interrupted.
    Simulate(SimulateOptions),
}

#[derive(Args, Clone, Debug)]
pub struct SimulateOptions {
    /// How to reach the API server; $KUBECONFIG or the pod's own service account when not given.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    pub nodes: usize,
    /// Nodes are called by this and a number from 0.
    #[arg(long, default_value = "node-")]
    pub name_prefix: String,
    /// Spread the nodes over so many zones; 0 leaves the labels out.
    #[arg(long, default_value_t = 0)]
    pub zones: usize,
    /// A label for every node. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// A taint for every node: `key=value:NoSchedule`. May be given several times.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT")]
    pub taint: Vec<String>,
    /// An amount that every node has: `cpu=8`, `memory=32Gi`, `pods=110`, `example.com/gpu=4`. May be given several times.
    #[arg(long, value_name = "RESOURCE=AMOUNT")]
    pub capacity: Vec<String>,
    /// The address of the first node; the others follow.
    #[arg(long, default_value = "198.18.0.1")]
    pub first_address: std::net::Ipv4Addr,
    /// From binding to running, as `0`, `200ms`, `3s`.
    #[arg(long, default_value = "0")]
    pub start_delay: String,
    /// From running to ready.
    #[arg(long, default_value = "0")]
    pub ready_delay: String,
    /// From a pod's deletion to its end, within its grace period.
    #[arg(long, default_value = "0")]
    pub stop_delay: String,
    /// How often a node renews its lease.
    #[arg(long, default_value = "10s")]
    pub lease_period: String,
}

/// An etcd to keep the cluster's state in; names and meaning as upstream's.
#[derive(Args, Clone, Debug)]
pub struct EtcdFlags {
    /// Keep the state in these etcd servers (scheme://ip:port, separated by commas) instead of the data folder.
    #[arg(long, value_delimiter = ',', value_name = "URL,...")]
    pub etcd_servers: Vec<String>,
    /// The authority that signed the certificates of etcd.
    #[arg(long, requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd.
    #[arg(long, requires = "etcd_keyfile", requires = "etcd_servers")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// What every key in etcd begins with.
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// How built-in kinds are written to etcd: application/json or application/vnd.kubernetes.protobuf. Both are read.
    #[arg(long, default_value = "application/json")]
    pub storage_media_type: String,
}

#[derive(Args, Clone, Debug)]
pub struct StoreOptions {
    /// The cluster's data folder.
    #[arg(long, global = true, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum StoreCommand {
    /// Write everything to one file; the cluster may run meanwhile.
    Backup { file: PathBuf },
    /// Make the store of a new data folder from a backup; an existing store is never touched.
    Restore { file: PathBuf },
    /// Read everything and say whether it is whole.
    Check {
        /// Look at this backup instead of the store.
        #[arg(long, value_name = "FILE")]
        backup: Option<PathBuf>,
    },
    /// Show the changes of one key that are still kept, oldest first.
    History {
        /// Such as /registry/pods/default/web-1.
        key: String,
        /// Print the values too; those of Secrets may be readable.
        #[arg(long)]
        values: bool,
    },
}

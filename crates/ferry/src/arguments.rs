//! Every flag, declared once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use ferry_cluster::command_line::CommandLine;
use ferry_server::server_options::duration;

pub use crate::component_options::{ApiserverOptions, ControllerManagerOptions, GatewayOptions, SchedulerOptions};
use crate::fleet_options::{ClustersOptions, DrainOptions, NodeListOptions};
use crate::insight_options::{ApplyOptions, ConsoleOptions, TraceOptions, WhyOptions};
use crate::node_component_options::{DnsOptions, KubeletAloneOptions, ProxyAloneOptions};
pub use crate::store_options::{BackupOptions, RestoreOptions, StoreCommand, StoreOptions};
pub use ferry_cluster::options::{ClusterOptions, Folders, JoinOptions, MemberFlags, MigrateOptions, NodeOptions};

/// A complete Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "ferry", version, propagate_version = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// The command line of this process.
pub fn command_line() -> CommandLine {
    CommandLine::read(&Arguments::command(), std::env::args_os())
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster on this machine in the background and wait until its node is Ready.
    Up(ClusterOptions),
    /// Stop the cluster and everything it started on this machine. The data folder stays.
    Down(DownOptions),
    /// Run the cluster in the foreground.
    Run(ClusterOptions),
    /// Run the API server alone.
    Apiserver(ApiserverOptions),
    /// Run the controllers alone, against any API server.
    ControllerManager(ControllerManagerOptions),
    /// Run the scheduler alone, against any API server.
    Scheduler(SchedulerOptions),
    /// Run the kubelet alone, against any API server and any container runtime.
    Kubelet(KubeletAloneOptions),
    /// Run the service proxy alone, against any API server.
    Proxy(ProxyAloneOptions),
    /// Run the cluster's DNS alone, against any API server.
    Dns(DnsOptions),
    /// Run the gateway alone, against any API server.
    Gateway(GatewayOptions),
    /// List, pull, import and remove images on this node.
    Image(ImageOptions),
    /// Make this machine a node, or a server, of an existing cluster.
    Join(JoinOptions),
    /// Drain this node, remove it from its cluster, and delete everything it created on this machine.
    Leave(LeaveOptions),
    /// Manage tokens for joining machines.
    Token(TokenOptions),
    /// Manage the servers of a cluster that was created with --cluster-init.
    Server(ServerCommandOptions),
    /// Run an etcd member without a server, for clusters of two servers.
    Witness(WitnessOptions),
    /// Create a folder for KUBEBUILDER_ASSETS (controller-runtime's envtest) and print its path.
    Envtest {
        /// The folder. Default: one below the user's data folder.
        folder: Option<PathBuf>,
    },
    /// Manage clusters of several nodes on this machine. Each node has its own namespaces.
    Cluster(ClustersOptions),
    /// Manage the cluster's nodes, run this machine's node, or simulate nodes for tests and measurements.
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Back up, restore, check and migrate the state of a cluster.
    Store(StoreOptions),
    /// Manage the keys that encrypt Secrets at rest.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Show the hops from a client's request to a reachable pod, and how long each took. For a URL, show the hops of a request through the gateway. Exit codes: 0 ready or answered, 1 stuck, 2 unknown, 3 on its way.
    Trace(TraceOptions),
    /// Apply files with server-side apply, show each hop until everything is ready or stuck, and explain what is not ready. Exit codes as for trace.
    Apply(ApplyOptions),
    /// kubectl get. With --live the table stays on the terminal and is updated in place.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Get {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Print a link that signs a browser in to the console as the user of the kubeconfig.
    Console(ConsoleOptions),
    /// Explain why an object is not ready, scheduled, running, reachable or deleted. Exit codes: 0 nothing holds it up, 1 stuck, 2 unknown, 3 on its way.
    Why(WhyOptions),
    /// kubectl, with upstream's commands and flags. Also runs when this program is called as kubectl.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Print shell completions, for example: ferry completion bash > /etc/bash_completion.d/ferry
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
    /// Create a new key and re-encrypt everything with it. Values with old keys stay readable.
    Rotate(RotateOptions),
}

#[derive(Args, Clone, Debug)]
pub struct RotateOptions {
    /// The cluster's data folder, with its state and keys.
    #[arg(long, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    /// The kubeconfig of the running cluster. Default: the one in the data folder.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The file that the API server was started with, if any.
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct LeaveOptions {
    #[command(flatten)]
    pub folders: Folders,
}

#[derive(Args, Clone, Debug)]
pub struct TokenOptions {
    /// The kubeconfig of the cluster. Default: as for kubectl, otherwise that of `ferry up`.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum TokenCommand {
    /// Print the command that makes another machine a node of this cluster.
    Create {
        /// How long the token is valid. 0 means forever.
        #[arg(long, default_value = "24h", value_parser = duration)]
        ttl: Duration,
        /// A description for the list of tokens.
        #[arg(long, default_value = "")]
        description: String,
        /// For a server instead of a node. Run this on a server: the token gives access to the cluster's keys.
        #[arg(long, group = "handed_over")]
        server: bool,
        /// For a witness, which only becomes an etcd member. Run this on a server.
        #[arg(long, group = "handed_over")]
        witness: bool,
        /// The data folder of this server.
        #[arg(long, default_value = "/var/lib/ferry", requires = "handed_over")]
        data_dir: PathBuf,
    },
    /// List the tokens, without their secrets.
    List,
    /// Delete tokens by their first six characters.
    Delete {
        #[arg(required = true)]
        id: Vec<String>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct WitnessOptions {
    /// The witness's data folder.
    #[arg(long, global = true, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    /// Locks and other files that need not survive a reboot.
    #[arg(long, global = true, default_value = "/run/ferry")]
    pub run_dir: PathBuf,
    #[command(subcommand)]
    pub command: WitnessCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum WitnessCommand {
    /// Make this machine the witness of a cluster, and run it in the foreground.
    Join {
        /// A server of the cluster: `192.0.2.1` or `192.0.2.1:6443`.
        address: String,
        /// What `ferry token create --witness` printed there.
        token: String,
        /// The witness's name, after the prefix `witness-`. Default: the host name.
        #[arg(long)]
        node_name: Option<String>,
        /// The address at which the servers reach it. Default: the address of the default route.
        #[arg(long)]
        node_ip: Option<IpAddr>,
        #[command(flatten)]
        member: MemberFlags,
    },
    /// Run a witness that has joined before.
    Run {
        /// The etcd program, 3.4 or newer. Default: `etcd` on the path.
        #[arg(long, value_name = "FILE")]
        etcd_binary: Option<PathBuf>,
        /// The size limit of etcd's data. Default: etcd's own.
        #[arg(long, value_name = "BYTES")]
        etcd_quota_backend_bytes: Option<u64>,
    },
    /// Remove a stopped witness from the cluster, and delete its data.
    Leave,
}

#[derive(Args, Clone, Debug)]
pub struct ServerCommandOptions {
    /// The data folder of this server.
    #[arg(long, global = true, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[command(subcommand)]
    pub command: ServerCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum ServerCommand {
    /// List the servers, their health, and which one leads etcd.
    List,
    /// Remove a server from the cluster, for example a lost one. Refused if the others would lose the quorum.
    Remove { name: String },
    /// Make a server that has caught up a voting member. Joining servers do this themselves.
    Promote { name: String },
    /// Release unused space in etcd's data, on one server after the other, and clear the alarm that etcd is full.
    Defragment,
    /// Make this server the only one of the cluster after a majority was lost for good. Refused while a majority is up.
    Recover {
        /// The server's folder for sockets and locks.
        #[arg(long, default_value = "/run/ferry")]
        run_dir: PathBuf,
        /// The etcd program. Default: `etcd` on the path.
        #[arg(long, value_name = "FILE")]
        etcd_binary: Option<PathBuf>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct DownOptions {
    #[command(flatten)]
    pub folders: Folders,
    /// Also delete the data folder, with the cluster's state.
    #[arg(long)]
    pub purge: bool,
    /// Give containers the grace period of their pods, as when the machine shuts down.
    #[arg(long)]
    pub graceful: bool,
}

#[derive(Args, Clone, Debug)]
pub struct ImageOptions {
    #[command(flatten)]
    pub folders: Folders,
    #[command(subcommand)]
    pub command: ImageCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum ImageCommand {
    /// List the node's images.
    List,
    /// Pull images, as for a pod.
    Pull {
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
    /// Import images from archives of `docker save` and `podman save`.
    Import {
        #[arg(required = true, value_name = "FILE")]
        archives: Vec<PathBuf>,
    },
    /// Remove images. Images of running containers stay on the disk until the containers are gone.
    #[command(name = "rm")]
    Remove {
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
}

#[derive(Subcommand)]
pub enum NodeCommand {
    /// Run this machine's node, after `ferry join`, in the foreground.
    Run(NodeOptions),
    /// List the cluster's nodes.
    List(NodeListOptions),
    /// Cordon a node and evict its pods, like `kubectl drain`. Pods of DaemonSets stay.
    Drain(DrainOptions),
    /// Drain a node, delete it, and reject its certificates from then on.
    Remove(DrainOptions),
    /// Register nodes without containers and simulate the phases of pods bound to them, until interrupted.
    Simulate(SimulateOptions),
}

#[derive(Args, Clone, Debug)]
pub struct SimulateOptions {
    /// The kubeconfig of the API server. Default: $KUBECONFIG, otherwise the pod's service account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    pub nodes: usize,
    /// Node names are this prefix and a number, starting at 0.
    #[arg(long, default_value = "node-")]
    pub name_prefix: String,
    /// The number of zones for the nodes. 0 means no zone labels.
    #[arg(long, default_value_t = 0)]
    pub zones: usize,
    /// A label for every node. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// A taint for every node: `key=value:NoSchedule`. May be given several times.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT")]
    pub taint: Vec<String>,
    /// The capacity of every node: `cpu=8`, `memory=32Gi`, `pods=110`, `example.com/gpu=4`. May be given several times.
    #[arg(long, value_name = "RESOURCE=AMOUNT")]
    pub capacity: Vec<String>,
    /// The address of the first node. The others follow.
    #[arg(long, default_value = "198.18.0.1")]
    pub first_address: std::net::Ipv4Addr,
    /// The time from binding to running: `0`, `200ms`, `3s`.
    #[arg(long, default_value = "0")]
    pub start_delay: String,
    /// The time from running to ready.
    #[arg(long, default_value = "0")]
    pub ready_delay: String,
    /// The time a pod takes to stop after its deletion, within its grace period.
    #[arg(long, default_value = "0")]
    pub stop_delay: String,
    /// How often a node renews its lease.
    #[arg(long, default_value = "10s")]
    pub lease_period: String,
}

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
    /// Run the kubelet alone, against any API server and any container runtime.
    Kubelet(KubeletAloneOptions),
    /// Run the service proxy alone, against any API server.
    Proxy(ProxyAloneOptions),
    /// Run the cluster's DNS alone, against any API server.
    Dns(DnsOptions),
    /// Run the gateway alone, against any API server.
    Gateway(GatewayOptions),
    /// The images of this node.
    Image(ImageOptions),
    /// Make this machine a node of a cluster that runs elsewhere.
    Join(JoinOptions),
    /// Drain this node, remove it from its cluster and take away everything it made on this machine.
    Leave(LeaveOptions),
    /// Tokens with which machines join.
    Token(TokenOptions),
    /// The servers of a cluster that was made with --cluster-init.
    Server(ServerCommandOptions),
    /// A member of the cluster's etcd without a server, for sites with two servers.
    Witness(WitnessOptions),
    /// A folder for tests that start their own API server (controller-runtime's envtest): print its path.
    Envtest {
        /// The folder; one below the user's data folder when not given.
        folder: Option<PathBuf>,
    },
    /// Clusters of several nodes on this machine, each node in namespaces of its own.
    Cluster(ClustersOptions),
    /// Nodes: those of the cluster, this machine's own, and simulated ones for tests and measurements.
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Back up, restore and examine the state of a cluster.
    Store(StoreOptions),
    /// Work with the keys that protect Secrets at rest.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Show the hops from a client's request to a pod that can be reached, and how long each took; for a URL, those of a request through the gateway. Exit code: 0 it is ready or answered, 1 it is stuck, 2 it cannot tell, 3 it is on its way.
    Trace(TraceOptions),
    /// Apply files on the server, show each hop until everything is ready or stuck, and say why it is. Exit codes as those of trace.
    Apply(ApplyOptions),
    /// kubectl's get; with --live the table stays, and changes are shown in their places.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Get {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Print a link that signs a browser in to the console, as the user of the kubeconfig.
    Console(ConsoleOptions),
    /// Say why an object is not ready, scheduled, running, reachable or deleted. Exit code: 0 nothing holds it up, 1 it is stuck, 2 it cannot tell, 3 it is on its way.
    Why(WhyOptions),
    /// kubectl, as upstream's: also when this program is called by the name kubectl.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
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
        /// For a server instead of a node. Run it on a server: the cluster's keys are handed over by it.
        #[arg(long, group = "handed_over")]
        server: bool,
        /// For a witness, which gets nothing but its place in etcd. Run it on a server.
        #[arg(long, group = "handed_over")]
        witness: bool,
        /// The data folder of the server that this is run on.
        #[arg(long, default_value = "/var/lib/ferry", requires = "handed_over")]
        data_dir: PathBuf,
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
pub struct WitnessOptions {
    /// Where the witness keeps what it has of the cluster.
    #[arg(long, global = true, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    /// Locks and what need not outlive a reboot.
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
        /// What the witness is called, after `witness-`; the host's name when not given.
        #[arg(long)]
        node_name: Option<String>,
        /// Where the servers reach it; the address that reaches the default gateway when not given.
        #[arg(long)]
        node_ip: Option<IpAddr>,
        #[command(flatten)]
        member: MemberFlags,
    },
    /// Run a witness again that joined before.
    Run {
        /// The etcd that Ferry runs, 3.4 or newer; `etcd` on the path when not given.
        #[arg(long, value_name = "FILE")]
        etcd_binary: Option<PathBuf>,
        /// How large etcd's data may become before it takes no more; etcd's own default when not given.
        #[arg(long, value_name = "BYTES")]
        etcd_quota_backend_bytes: Option<u64>,
    },
    /// Take a stopped witness out of the cluster, and remove its data.
    Leave,
}

#[derive(Args, Clone, Debug)]
pub struct ServerCommandOptions {
    /// The data folder of the server that this is run on.
    #[arg(long, global = true, default_value = "/var/lib/ferry")]
    pub data_dir: PathBuf,
    #[command(subcommand)]
    pub command: ServerCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum ServerCommand {
    /// Show the servers, which of them leads etcd, and how each is.
    List,
    /// Take a server out of the cluster, for example one that is lost. Refused where the others could not go on.
    Remove { name: String },
    /// Let a server vote that has caught up. Servers that join do this themselves.
    Promote { name: String },
    /// Give back the space that etcd holds in vain, on one server after the other, and clear the alarm that it is full.
    Defragment,
    /// Make this server the only one of the cluster, when most of the others are lost for good. Refused while they are there.
    Recover {
        /// Sockets and locks of the server.
        #[arg(long, default_value = "/run/ferry")]
        run_dir: PathBuf,
        /// The etcd to run; `etcd` on the path when not given.
        #[arg(long, value_name = "FILE")]
        etcd_binary: Option<PathBuf>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct DownOptions {
    #[command(flatten)]
    pub folders: Folders,
    /// Delete the data folder too: the cluster's state is gone after that.
    #[arg(long)]
    pub purge: bool,
    /// Give containers the time to end that their pods allow, as when the machine is shut down.
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
    /// Show the node's images.
    List,
    /// Pull images, as a pod that names them would.
    Pull {
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
    /// Take in the images of archives, as `docker save` and `podman save` write them.
    Import {
        #[arg(required = true, value_name = "FILE")]
        archives: Vec<PathBuf>,
    },
    /// Remove images; those of running containers stay on the disk until the containers are gone.
    #[command(name = "rm")]
    Remove {
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
}

#[derive(Subcommand)]
pub enum NodeCommand {
    /// Run the node that `ferry join` made of this machine in the foreground.
    Run(NodeOptions),
    /// Show the cluster's nodes.
    List(NodeListOptions),
    /// Keep new pods away from a node and evict those it has, as `kubectl drain` does. Pods of DaemonSets stay.
    Drain(DrainOptions),
    /// Drain a node, delete it, and refuse the certificates that it has.
    Remove(DrainOptions),
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

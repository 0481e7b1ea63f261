//! The flags of commands about several machines.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ferry_server::server_options::duration;

#[derive(Args, Clone, Debug)]
pub struct NodeListOptions {
    /// The kubeconfig of the cluster. Default: as for kubectl, otherwise that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct DrainOptions {
    /// The node's name.
    pub node: String,
    /// Also evict pods without a controller. With `remove`, also remove a node that is not Ready.
    #[arg(long)]
    pub force: bool,
    /// Also evict pods with emptyDir volumes, whose data is lost.
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// The grace period of each pod in seconds. Negative: the pod's own.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub grace_period: i32,
    /// How long the whole drain may take. 0 means no limit.
    #[arg(long, default_value = "0", value_parser = duration)]
    pub timeout: Duration,
    /// The kubeconfig of the cluster. Default: as for kubectl, otherwise that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct ClustersOptions {
    /// The folder for the state of this machine's clusters.
    #[arg(long, global = true, default_value = "/var/lib/ferry-clusters", value_name = "FOLDER")]
    pub clusters_dir: PathBuf,
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum ClusterCommand {
    /// Create a cluster and wait until all its nodes are Ready.
    Create(CreateOptions),
    /// List the clusters on this machine.
    List,
    /// Delete clusters with all their data.
    Delete {
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Stop a cluster's nodes and their pods. Its state stays.
    Stop { name: String },
    /// Start a stopped cluster, or one whose machine was rebooted.
    Start { name: String },
    /// Print the kubeconfig of a cluster.
    Kubeconfig { name: String },
    /// Load images on every node of a cluster: an archive of `docker save` or `podman save`, or an image name to pull.
    Load {
        name: String,
        /// A file, or an image name.
        #[arg(required = true)]
        image: Vec<String>,
    },
    /// The first process of a node.
    #[command(hide = true)]
    Machine { name: String, index: usize },
}

#[derive(Args, Clone, Debug)]
pub struct CreateOptions {
    pub name: String,
    /// The number of servers. They are nodes too.
    #[arg(long, default_value_t = 1, conflicts_with = "config")]
    pub servers: usize,
    /// The number of nodes in addition to the servers.
    #[arg(long, default_value_t = 0, conflicts_with = "config")]
    pub nodes: usize,
    /// A file with the nodes, their labels, taints and port mappings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A mirror to try first for images of a registry: `docker.io=http://127.0.0.1:5000`. May be given several times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// The kubeconfig that gets the cluster's context. Default: as for kubectl.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

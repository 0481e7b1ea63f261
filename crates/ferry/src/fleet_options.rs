//! The flags of commands about several machines.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ferry_server::server_options::duration;

#[derive(Args, Clone, Debug)]
pub struct NodeListOptions {
    /// How to reach the cluster; as kubectl finds it when not given, else that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct DrainOptions {
    /// The node's name.
    pub node: String,
    /// Evict pods too that no controller makes again; with `remove`, remove a node too that is not Ready.
    #[arg(long)]
    pub force: bool,
    /// Evict pods too whose emptyDir volumes are lost by it.
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// Seconds that each pod gets to end; what the pod says when not given or negative.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub grace_period: i32,
    /// How long all of it may take; 0 for ever.
    #[arg(long, default_value = "0", value_parser = duration)]
    pub timeout: Duration,
    /// How to reach the cluster; as kubectl finds it when not given, else that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct ClustersOptions {
    /// Where the clusters of this machine keep their state.
    #[arg(long, global = true, default_value = "/var/lib/ferry-clusters", value_name = "FOLDER")]
    pub clusters_dir: PathBuf,
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub enum ClusterCommand {
    /// Make a cluster and wait until all its nodes are Ready.
    Create(CreateOptions),
    /// Show the clusters of this machine.
    List,
    /// Delete clusters with everything they had.
    Delete {
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Stop a cluster's nodes and their pods; its state stays.
    Stop { name: String },
    /// Start a cluster that was stopped, or whose machine was rebooted.
    Start { name: String },
    /// Print the kubeconfig of a cluster.
    Kubeconfig { name: String },
    /// Bring images to every node of a cluster: an archive of `docker save` or the like, or a name to pull.
    Load {
        name: String,
        /// A file, or the name of an image.
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
    /// How many servers it has. They are nodes, too.
    #[arg(long, default_value_t = 1, conflicts_with = "config")]
    pub servers: usize,
    /// How many nodes it has beside its servers.
    #[arg(long, default_value_t = 0, conflicts_with = "config")]
    pub nodes: usize,
    /// A file with the nodes, their labels, taints and port mappings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Pull images of a registry from elsewhere first: `docker.io=http://127.0.0.1:5000`. May be given several times.
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// The kubeconfig that gets the cluster's context; as kubectl finds it when not given.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

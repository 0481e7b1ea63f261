//! The flags of `ferry trace`, `ferry why` and `ferry console`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct ObjectOptions {
    /// `deploy/web` or `deploy web`, with resource names as in kubectl.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub object: Vec<String>,
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// The kubeconfig of the cluster. Default: as for kubectl, otherwise that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// What people read, or what programs do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Text,
    Json,
}

#[derive(Args, Clone, Debug)]
pub struct TraceOptions {
    #[command(flatten)]
    pub object: ObjectOptions,
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Wait until it is ready, and show each hop as it happens.
    #[arg(long, short, visible_short_alias = 'w', visible_alias = "watch")]
    pub follow: bool,
    /// How long to wait with --follow.
    #[arg(long, default_value = "5m", value_parser = ferry_server::server_options::duration)]
    pub timeout: Duration,
    /// Show every recorded write of the object: who, when, and what changed.
    #[arg(long)]
    pub writes: bool,
    /// Send the request for a URL to this address instead of the one in DNS. Default port: the URL's.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub address: Option<ferry_gateway::trace::Place>,
}

#[derive(Args, Clone, Debug)]
pub struct ApplyOptions {
    /// A file, a folder, a URL, or - for standard input. May be given several times.
    #[arg(long, short, value_name = "FILE", required_unless_present = "kustomize")]
    pub filename: Vec<String>,
    /// A folder with a kustomization.
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "filename")]
    pub kustomize: Option<String>,
    /// Read folders recursively.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// The kubeconfig of the cluster. Default: as for kubectl, otherwise that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Take over fields that other managers own.
    #[arg(long)]
    pub force_conflicts: bool,
    /// Do not wait until the objects are ready.
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait until everything is ready.
    #[arg(long, default_value = "5m", value_parser = ferry_server::server_options::duration)]
    pub timeout: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct ConsoleOptions {
    /// The kubeconfig of the cluster and user. Default: as for kubectl, otherwise that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Also open the link in a browser on this machine.
    #[arg(long)]
    pub open: bool,
}

#[derive(Args, Clone, Debug)]
pub struct WhyOptions {
    #[command(flatten)]
    pub object: ObjectOptions,
    /// Explain why a pod does not reach this target: `service/NAME:PORT` or `pod/NAME:PORT`.
    #[arg(long, value_name = "KIND/NAME:PORT")]
    pub to: Option<String>,
    /// The namespace of the --to target. Default: the pod's.
    #[arg(long, value_name = "NAMESPACE", requires = "to")]
    pub to_namespace: Option<String>,
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

//! The flags of `ferry trace`, `ferry why` and `ferry console`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
pub struct ObjectOptions {
    /// `deploy/web`, or `deploy web`; names of resources as kubectl knows them.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub object: Vec<String>,
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// How to reach the cluster; as kubectl finds it when not given, else that of `ferry up`.
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
    /// Wait until it is ready, and show each hop when it is made.
    #[arg(long, short, visible_short_alias = 'w', visible_alias = "watch")]
    pub follow: bool,
    /// How long to wait with --follow.
    #[arg(long, default_value = "5m", value_parser = ferry_server::server_options::duration)]
    pub timeout: Duration,
    /// Every write of the object that the server still knows: who, when, what it changed.
    #[arg(long)]
    pub writes: bool,
    /// Send the request for a URL there, whatever its name stands for; without a port, to that of the URL.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub address: Option<ferry_gateway::trace::Place>,
}

#[derive(Args, Clone, Debug)]
pub struct ApplyOptions {
    /// A file, a folder, an address or - for standard input; may be given several times.
    #[arg(long, short, value_name = "FILE", required_unless_present = "kustomize")]
    pub filename: Vec<String>,
    /// A folder with a kustomization.
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "filename")]
    pub kustomize: Option<String>,
    /// Folders with all that is below them.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// How to reach the cluster; as kubectl finds it when not given, else that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Take fields that others manage.
    #[arg(long)]
    pub force_conflicts: bool,
    /// Do not wait: tell what was applied, and end.
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait until everything is ready.
    #[arg(long, default_value = "5m", value_parser = ferry_server::server_options::duration)]
    pub timeout: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct ConsoleOptions {
    /// As whom, and where; as kubectl finds it when not given, else that of `ferry up`.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Open the link in a browser of this machine too.
    #[arg(long)]
    pub open: bool,
}

#[derive(Args, Clone, Debug)]
pub struct WhyOptions {
    #[command(flatten)]
    pub object: ObjectOptions,
    /// Why a pod does not reach this: `service/NAME:PORT` or `pod/NAME:PORT`.
    #[arg(long, value_name = "KIND/NAME:PORT")]
    pub to: Option<String>,
    /// The namespace of what --to names; that of the pod when not given.
    #[arg(long, value_name = "NAMESPACE", requires = "to")]
    pub to_namespace: Option<String>,
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

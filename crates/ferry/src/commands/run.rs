//! `ferry run`: the cluster in the foreground.

use anyhow::Result;
use ferry_cluster::config::ClusterConfig;
use ferry_cluster::node::tools;
use ferry_cluster::{cluster, log, quorum};
use tokio::runtime::Runtime;

use crate::arguments::{ClusterOptions, command_line};

pub fn run(options: &ClusterOptions) -> Result<()> {
    let line = command_line();
    let config = ClusterConfig::check(&quorum::with_known_settings(options, &line)?, line)?;
    tools::check(&config.node.container_runtime)?;
    log::start();
    let (server, node) = (runtime("server")?, runtime("node")?);
    let outcome = server.block_on(cluster::run(config, node.handle().clone()));
    // A worker that stands still does not keep the process from its end.
    node.shutdown_background();
    outcome
}

/// As many workers as the machine has processors; the threads have its name.
fn runtime(name: &str) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().thread_name(name).enable_all().build()
}

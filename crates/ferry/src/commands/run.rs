//! `ferry run`: the cluster in the foreground.

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::arguments::ClusterOptions;
use crate::config::ClusterConfig;
use crate::node::tools;
use crate::{cluster, log, quorum};

pub fn run(options: &ClusterOptions) -> Result<()> {
    let config = ClusterConfig::check(&quorum::with_known_settings(options)?)?;
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

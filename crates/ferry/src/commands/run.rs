//! `ferry run`: the cluster in the foreground.

use anyhow::Result;

use crate::arguments::ClusterOptions;
use crate::config::ClusterConfig;
use crate::node::tools;
use crate::{cluster, log};

pub fn run(options: &ClusterOptions) -> Result<()> {
    let config = ClusterConfig::check(options)?;
    tools::check(&config.node.container_runtime)?;
    log::start();
    tokio::runtime::Runtime::new()?.block_on(cluster::run(config))
}

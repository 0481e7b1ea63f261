//! `ferry node run`: the node that `ferry join` made of this machine, in the foreground.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use ferry_cluster::cluster::READY;
use ferry_cluster::config::NodeConfig;
use ferry_cluster::fleet::membership::{self, Membership};
use ferry_cluster::node::tools;
use ferry_cluster::process::Lock;
use ferry_cluster::{folders, log, signals};
use ferry_tasks::Tasks;

use crate::arguments::NodeOptions;

const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The node's configuration by its flags and what it knows of its cluster.
pub fn configuration(options: &NodeOptions) -> Result<(NodeConfig, Membership)> {
    let data_dir = std::path::absolute(&options.folders.data_dir)?;
    let membership = Membership::read(&data_dir)?.with_context(|| {
        format!("{} belongs to no cluster yet; join one with `ferry join ADDRESS TOKEN`", data_dir.display())
    })?;
    let mut config = NodeConfig::check(options, membership.settings.checked()?)?;
    // A node is known by the name it joined with, whatever the machine is called today.
    config.node_name.clone_from(&membership.node_name);
    Ok((config, membership))
}

pub fn run(options: &NodeOptions) -> Result<()> {
    let (config, membership) = configuration(options)?;
    tools::check(&config.container_runtime)?;
    log::start();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Runtime::new()?.block_on(async move {
        folders::prepare(&config.run_dir)?;
        let _lock = Lock::take(&config.run_dir.join("ferry.lock"))?;
        ferry_cluster::cluster::note_for_down(&config)?;
        let tasks = Tasks::new("node");
        tasks.watch_runtime("node", &tokio::runtime::Handle::current());
        tokio::select! {
            started = membership::start(&config, &membership, &tasks) => started?,
            stopped = signals::wait() => return stopped,
        }
        let _ = writeln!(std::io::stdout(), "{READY}: {} is a node of its cluster", config.node_name);
        signals::wait().await?;
        tasks.stop(STOP_PATIENCE).await;
        Ok(())
    })
}

//! The embedded container runtime: where it keeps its things on this machine.

use std::path::Path;

use anyhow::{Context, Result};
use ferry_runtime::{Config, Mirrors, Network};
use ferry_tasks::Tasks;

use crate::config::{EMBEDDED_SOCKET, NodeConfig};
use crate::node::tools;

fn config(data_dir: &Path, run_dir: &Path, mirrors: Mirrors, pause_image: String) -> Result<Config> {
    Ok(Config {
        data_dir: data_dir.join("runtime"),
        run_dir: run_dir.join("runtime"),
        socket: run_dir.join(EMBEDDED_SOCKET),
        binary: std::env::current_exe().context("cannot find this program's own file")?,
        oci_program: tools::find("runc").context("runc is not installed")?,
        network: Network {
            configuration: data_dir.join("cni"),
            plugins: tools::plugin_folder().unwrap_or(Path::new("/usr/lib/cni")).to_owned(),
        },
        mirrors,
        pause_image,
    })
}

/// Serves CRI within this process; pods that run already are found again.
pub async fn start(node: &NodeConfig, tasks: &Tasks) -> Result<()> {
    let mirrors = node.mirrors.iter().map(|mirror| (mirror.registry.clone(), mirror.url.clone())).collect();
    let config = config(&node.data_dir, &node.run_dir, Mirrors(mirrors), node.cluster.pause_image.clone())?;
    ferry_runtime::start(config, tasks).await.context("cannot start the container runtime")
}

/// Stops and removes the pods of a cluster whose process is gone; none where it never had this runtime.
pub async fn remove_pods(data_dir: &Path, run_dir: &Path) -> Result<Option<usize>> {
    if !data_dir.join("runtime").exists() {
        return Ok(None);
    }
    let config = config(data_dir, run_dir, Mirrors::default(), String::new())?;
    Ok(Some(ferry_runtime::remove_all(config).await?))
}

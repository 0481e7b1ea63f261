//! The embedded container runtime: where it keeps its things on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferry_cri::v1::CgroupDriver;
use ferry_runtime::{Config, LogLimit, Mirrors, Network};
use ferry_tasks::Tasks;
use serde_json::Value;

use crate::config::{Cni, Mirror, NodeConfig};
use crate::container_runtime::EMBEDDED_SOCKET;
use crate::node::remove;

const STOP_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Where it keeps its things, and where its images come from.
pub struct Settings {
    pub data_dir: PathBuf,
    pub run_dir: PathBuf,
    pub cni: Cni,
    pub mirrors: Vec<Mirror>,
    pub pause_image: String,
    pub log_limit: LogLimit,
    pub cgroup_driver: CgroupDriver,
}

impl Settings {
    pub fn of(node: &NodeConfig) -> Self {
        Self {
            data_dir: node.data_dir.clone(),
            run_dir: node.run_dir.clone(),
            cni: node.cni.clone(),
            mirrors: node.mirrors.clone(),
            pause_image: node.cluster.pause_image.clone(),
            log_limit: node.kubelet.log_limit(),
            cgroup_driver: node.kubelet.runtime_cgroup_driver(),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.run_dir.join(EMBEDDED_SOCKET)
    }

    fn config(&self) -> Result<Config> {
        let mirrors = self.mirrors.iter().map(|mirror| (mirror.registry.clone(), mirror.url.clone())).collect();
        Ok(Config {
            data_dir: self.data_dir.join("runtime"),
            run_dir: self.run_dir.join("runtime"),
            socket: self.socket(),
            binary: std::env::current_exe().context("cannot find this program's own file")?,
            network: Network { configuration: self.cni.conf_dir.clone(), plugins: self.cni.bin_dir.clone() },
            mirrors: Mirrors(mirrors),
            pause_image: self.pause_image.clone(),
            log_limit: self.log_limit,
            cgroup_driver: self.cgroup_driver,
            read_yaml,
        })
    }
}

fn read_yaml(bytes: &[u8]) -> Result<Value, String> {
    ferry_schema::yaml::parse_value(bytes).map(|(value, _)| value).map_err(|error| error.to_string())
}

/// Serves CRI within this process; pods that run already are found again.
pub async fn start(settings: &Settings, tasks: &Tasks) -> Result<()> {
    ferry_runtime::start(settings.config()?, tasks).await.context("cannot start the container runtime")
}

/// What is known of a runtime when its process is gone.
fn left(data_dir: &Path, run_dir: &Path) -> Settings {
    Settings {
        data_dir: data_dir.to_owned(),
        run_dir: run_dir.to_owned(),
        // Each pod is taken off its network by what it was attached with.
        cni: Cni::own(data_dir),
        mirrors: Vec::new(),
        pause_image: String::new(),
        log_limit: LogLimit::default(),
        // Containers keep the groups that they have.
        cgroup_driver: CgroupDriver::Cgroupfs,
    }
}

/// Gives the containers of a cluster whose process is gone the time to end.
pub async fn end_containers(data_dir: &Path, run_dir: &Path) -> Result<()> {
    if !data_dir.join("runtime").exists() || !run_dir.exists() {
        return Ok(());
    }
    let (settings, tasks) = (left(data_dir, run_dir), Tasks::new("runtime"));
    start(&settings, &tasks).await?;
    let ended = remove::end_containers(&settings.socket()).await;
    tasks.stop(STOP_PATIENCE).await;
    ended
}

/// Stops and removes the pods of a cluster whose process is gone; none where it never had this runtime.
pub async fn remove_pods(data_dir: &Path, run_dir: &Path) -> Result<Option<usize>> {
    if !data_dir.join("runtime").exists() {
        return Ok(None);
    }
    Ok(Some(ferry_runtime::remove_all(left(data_dir, run_dir).config()?).await?))
}

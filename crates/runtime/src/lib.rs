//! The embedded container runtime: a CRI server on a Unix socket that needs no containerd.
//!
//! `server` speaks gRPC, `engine` knows pods and containers, `images` pulls and keeps images, `shim` is the small process
//! beside every pod. Images and state are files below the data folder; what lives in the kernel is below the run folder.
//! Must not depend on any Ferry crate but `bridge`, `cri`, `meta`, `outbound`, `podfs`, `remotecommand`, `systemd` and `tasks`.

mod cni;
mod container;
mod engine;
mod images;
mod namespaces;
mod overlay;
mod program;
mod protocol;
mod server;
mod shim;
mod shim_client;
mod spec;
mod state;
mod stats;
mod streaming;
mod users;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ferry_cri::v1::CgroupDriver;
use ferry_tasks::Tasks;
use futures::{FutureExt, StreamExt};

pub use cni::Network;
pub use images::{Mirrors, unpack_layer};
pub use protocol::LogLimit;
pub use spec::cdi::ReadYaml;

/// The binary executed again with one of these as its first argument is a helper of the runtime.
pub(crate) const SHIM_COMMAND: &str = "runtime-shim";
pub(crate) const NAMESPACES_COMMAND: &str = "runtime-namespaces";

const REMOVED_AT_ONCE: usize = 8;

#[derive(Clone, Debug)]
pub struct Config {
    /// Images, pods and containers; survives a reboot.
    pub data_dir: PathBuf,
    /// Sockets and namespaces; does not.
    pub run_dir: PathBuf,
    /// Where CRI is served.
    pub socket: PathBuf,
    /// The binary that [`helper`] runs in, to be executed again.
    pub binary: PathBuf,
    pub network: Network,
    pub mirrors: Mirrors,
    /// For pods whose containers share their processes.
    pub pause_image: String,
    /// When the log of a container is set aside.
    pub log_limit: LogLimit,
    /// Who makes control groups.
    pub cgroup_driver: CgroupDriver,
    /// Reads what vendors of devices write for runtimes, in YAML or JSON.
    pub read_yaml: ReadYaml,
}

/// To be called first in `main`: runs a helper where this process was started as one.
pub fn helper(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let command = arguments.nth(1)?;
    let main = if command == SHIM_COMMAND {
        shim::main
    } else if command == NAMESPACES_COMMAND {
        namespaces::main
    } else {
        return None;
    };
    let argument = arguments.next().and_then(|argument| argument.into_string().ok()).unwrap_or_default();
    // The program that makes containers inherits it, and makes places in their file systems: they are not the server's
    // files, which others may not see.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Some(main(&argument))
}

/// Finds pods again that run already, and serves CRI from then on. Pods outlive the server.
pub async fn start(config: Config, tasks: &Tasks) -> std::io::Result<()> {
    if config.cgroup_driver == CgroupDriver::Systemd && !ferry_systemd::Systemd::is_running() {
        return Err(std::io::Error::other("cgroupDriver systemd: this machine was not started by systemd"));
    }
    let socket = config.socket.clone();
    let engine = engine::Engine::open(config, tasks.clone()).await?;
    let streaming = streaming::Streaming::start(engine.clone()).await?;
    server::serve(engine, streaming, &socket, tasks)
}

/// Stops and removes all pods; returns how many there were.
pub async fn remove_all(config: Config) -> std::io::Result<usize> {
    let tasks = Tasks::new("runtime");
    let engine = engine::Engine::open(config, tasks.clone()).await?;
    let pods: Vec<String> = engine.state.lock().sandboxes.keys().cloned().collect();
    let removals = pods.iter().map(|pod| {
        let engine = Arc::clone(&engine);
        async move { engine.remove_sandbox(pod).await.err().map(|error| error.to_string()) }.boxed()
    });
    let removed: Vec<Option<String>> =
        futures::stream::iter(removals).buffer_unordered(REMOVED_AT_ONCE).collect().await;
    let failed = removed.into_iter().flatten().next();
    tasks.stop(std::time::Duration::from_secs(5)).await;
    failed.map_or(Ok(pods.len()), |error| Err(std::io::Error::other(error)))
}

/// As other runtimes name pods and containers.
pub(crate) fn long_id() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

pub(crate) fn short_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..12].to_owned()
}

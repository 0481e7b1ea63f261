//! The container runtime as the kubelet sees it: a trait, and CRI behind it.

mod abilities;
mod cri;
pub(crate) mod model;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ferry_cri::v1;
use futures::stream::BoxStream;

pub(crate) use abilities::{Abilities, knows_cdi};
pub(crate) use cri::CriRuntime;
pub(crate) use model::{PodState, Record, RunState, label};

/// A failed call: what was tried and what the runtime said.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rpc error: code = {code:?} desc = {message}")]
pub(crate) struct RuntimeError {
    pub(crate) code: ferry_cri::Code,
    pub(crate) message: String,
}

impl From<ferry_cri::Status> for RuntimeError {
    fn from(status: ferry_cri::Status) -> Self {
        Self { code: status.code(), message: status.message().to_owned() }
    }
}

impl RuntimeError {
    /// Nobody waited for the answer any more.
    pub(crate) fn given_up() -> Self {
        Self { code: ferry_cri::Code::Cancelled, message: "given up".to_owned() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, RuntimeError>;

/// What a look at all pods tells of one: enough to see that something changed, and whose it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Glimpse {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Sandbox and container ids with their states, sorted.
    pub(crate) parts: Vec<(String, i32)>,
    /// Whether a sandbox of it runs.
    pub(crate) has_sandbox: bool,
    /// The states of its containers, as metrics name them.
    pub(crate) containers: Vec<&'static str>,
}

/// A container that runs, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) id: String,
    pub(crate) uid: String,
    pub(crate) name: String,
}

/// What the kubelet asks of a runtime. Nothing else in this crate touches containers.
#[async_trait]
pub(crate) trait Runtime: Send + Sync + 'static {
    /// `containerd`, and its version.
    fn identity(&self) -> (&str, &str);
    async fn conditions(&self) -> Result<Vec<v1::RuntimeCondition>>;
    /// What it can do beyond what every runtime can.
    async fn abilities(&self) -> Result<Abilities>;
    /// All pods of the node by uid, cheaply.
    async fn glimpse(&self) -> Result<HashMap<String, Glimpse>>;
    /// The containers that run.
    async fn running(&self) -> Result<Vec<Running>>;
    /// One pod in full.
    async fn pod(&self, uid: &str) -> Result<PodState>;
    /// The uids of pods in which something happened; none where the runtime cannot tell.
    async fn events(&self) -> Result<Option<BoxStream<'static, String>>>;

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String>;
    async fn stop_sandbox(&self, id: &str) -> Result<()>;
    async fn remove_sandbox(&self, id: &str) -> Result<()>;

    async fn create_container(&self, request: v1::CreateContainerRequest) -> Result<String>;
    async fn start_container(&self, id: &str) -> Result<()>;
    async fn stop_container(&self, id: &str, grace_seconds: i64) -> Result<()>;
    async fn remove_container(&self, id: &str) -> Result<()>;
    async fn container(&self, id: &str) -> Result<v1::ContainerStatus>;
    async fn update_resources(&self, id: &str, amounts: v1::LinuxContainerResources) -> Result<()>;
    /// Writes what a container is at this moment into an archive.
    async fn checkpoint(&self, id: &str, archive: &Path, timeout_seconds: i64) -> Result<()>;
    /// What the running containers use.
    async fn usage(&self) -> Result<Vec<v1::ContainerStats>>;
    async fn reopen_log(&self, id: &str) -> Result<()>;

    async fn exec(&self, id: &str, command: Vec<String>, timeout_seconds: i64) -> Result<v1::ExecSyncResponse>;
    /// The addresses of the runtime's streaming server.
    async fn exec_url(&self, request: v1::ExecRequest) -> Result<String>;
    async fn attach_url(&self, request: v1::AttachRequest) -> Result<String>;
    async fn port_forward_url(&self, request: v1::PortForwardRequest) -> Result<String>;

    async fn image(&self, image: &str) -> Result<Option<v1::Image>>;
    async fn images(&self) -> Result<Vec<v1::Image>>;
    async fn remove_image(&self, id: &str) -> Result<()>;
    /// What containers, running or not, were made from: ids and names.
    async fn images_in_use(&self) -> Result<HashSet<String>>;
    /// Where images lie on this machine; none where the runtime does not tell.
    async fn image_folder(&self) -> Result<Option<PathBuf>>;
    async fn pull(&self, request: v1::PullImageRequest) -> Result<String>;
}

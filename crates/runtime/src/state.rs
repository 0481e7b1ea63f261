//! What is known of pods and containers, and how it is written down: a folder each, files replaced as a whole.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use ferry_cri::v1;
use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not usable yet; after a crash it is taken away.
    Making,
    /// For a container: made, not started. For a sandbox: ready.
    Made,
    Running,
    Ended,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct SandboxRecord {
    pub(crate) id: String,
    pub(crate) created_at: i64,
    pub(crate) handler: String,
    pub(crate) stage: Stage,
    pub(crate) addresses: Vec<String>,
    /// What the network plug-ins answered, for taking it away.
    pub(crate) network: Option<crate::cni::Attached>,
    /// The container that holds a process namespace for all.
    pub(crate) pause: Option<String>,
}

/// What is kept of a pod or a container: what became of it, and what was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Kept<Record, Config> {
    pub(crate) record: Record,
    pub(crate) config: Config,
}

pub(crate) type Sandbox = Kept<SandboxRecord, v1::PodSandboxConfig>;
pub(crate) type Container = Kept<ContainerRecord, v1::ContainerConfig>;

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct ContainerRecord {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) stage: Stage,
    pub(crate) image_id: String,
    pub(crate) image_ref: String,
    pub(crate) image_name: String,
    pub(crate) layers: Vec<String>,
    pub(crate) log_path: String,
    pub(crate) stop_signal: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) cgroup: String,
    /// Not shown: the pod's own.
    pub(crate) hidden: bool,
    #[serde(skip)]
    pub(crate) pid: i32,
}

#[derive(Default)]
pub(crate) struct Inventory {
    pub(crate) sandboxes: HashMap<String, Sandbox>,
    pub(crate) containers: HashMap<String, Container>,
}

/// Replaces a file as a whole.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let attempt = || {
        let mut file = std::fs::File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        std::fs::rename(&new, path)
    };
    attempt().map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

impl<Record: Serialize + DeserializeOwned, Config: Message + Default> Kept<Record, Config> {
    pub(crate) fn save(&self, folder: &Path) -> std::io::Result<()> {
        write(&folder.join("record.json"), &serde_json::to_vec(&self.record)?)
    }

    pub(crate) fn save_config(&self, folder: &Path) -> std::io::Result<()> {
        write(&folder.join("config.pb"), &self.config.encode_to_vec())
    }

    pub(crate) fn load(folder: &Path) -> std::io::Result<Self> {
        let record = serde_json::from_slice(&std::fs::read(folder.join("record.json"))?)?;
        let config = Config::decode(&*std::fs::read(folder.join("config.pb"))?).map_err(std::io::Error::other)?;
        Ok(Self { record, config })
    }
}

/// The folders directly below, by name.
pub(crate) fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())).map(|entry| entry.path()).collect()
}

/// Gives a folder the mode that the root of a file system has, whatever the process's umask is.
pub(crate) fn open_to_all(folder: &Path) -> std::io::Result<()> {
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

/// Bytes and files below a folder.
pub(crate) fn usage(folder: &Path) -> (u64, u64) {
    let counted = ferry_podfs::count(folder);
    // The folder itself is no file of anybody.
    (counted.bytes, counted.inodes.saturating_sub(1))
}

/// Removes a folder with what a container or an image put into it, beside the server's own threads.
pub(crate) async fn remove(folder: PathBuf) {
    let shown = folder.clone();
    let removed = tokio::task::spawn_blocking(move || ferry_podfs::remove_all(&folder)).await;
    if let Err(error) = removed.map_err(std::io::Error::other).flatten() {
        tracing::warn!("{} is not removed: {error}", shown.display());
    }
}

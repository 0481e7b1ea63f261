//! Pods and containers: what the calls of CRI do. Knows nothing of gRPC.

mod container;
mod sandbox;
mod stop;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use ferry_cri::v1;
use ferry_tasks::Tasks;
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, broadcast};

use crate::Config;
use crate::container::cgroup::Group;
use crate::images::{Images, PullError};
use crate::shim_client::Shim;
use crate::state::Inventory;

pub(crate) use container::exec_process;

/// Why a call failed; one place turns it into a gRPC status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    State(String),
    #[error("{0}")]
    Deadline(String),
    #[error("{0}")]
    Internal(String),
    #[error("{0}")]
    Pull(#[from] PullError),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Internal(error.to_string())
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// Something happened to a container.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) container: String,
    pub(crate) sandbox: String,
    pub(crate) kind: v1::ContainerEventType,
    pub(crate) at: i64,
}

pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) images: Images,
    /// This binary, where no container can write it.
    pub(crate) program: PathBuf,
    pub(crate) state: Mutex<Inventory>,
    pub(crate) events: broadcast::Sender<Event>,
    /// Told after every change of `state`.
    pub(crate) changed: Notify,
    pub(crate) tasks: Tasks,
    /// Whether pods can have them, once it was tried.
    pub(crate) user_namespaces: OnceCell<bool>,
}

pub(crate) fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

impl Engine {
    pub(crate) async fn open(config: Config, tasks: Tasks) -> std::io::Result<Arc<Self>> {
        for folder in ["sandboxes", "containers"] {
            std::fs::create_dir_all(config.data_dir.join(folder))?;
        }
        for folder in ["shims", "namespaces", "program"] {
            std::fs::create_dir_all(config.run_dir.join(folder))?;
        }
        // Images hold programs with the set-user-id bit: nobody else of this machine gets at them.
        let private: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&config.data_dir, private.clone())?;
        std::fs::set_permissions(&config.run_dir, private)?;
        // Mounts made below must not be copied into other places, or they could not be taken away.
        crate::overlay::keep_to_itself(&config.data_dir)?;
        crate::overlay::keep_to_itself(&config.run_dir.join("namespaces"))?;
        let program = crate::program::read_only(&config.binary, &config.run_dir.join("program"))?;
        let tls = ferry_outbound::roots(None)
            .and_then(|roots| ferry_outbound::client_config(roots, None))
            .map_err(std::io::Error::other)?;
        let client = ferry_outbound::https(tasks.clone(), tls, None);
        let pinned = ferry_cri::image_name::Reference::parse(&config.pause_image).ok().and_then(|r| r.tagged());
        let pinned = pinned.into_iter().collect();
        let images = Images::open(&config.data_dir.join("images"), client, config.mirrors.clone(), pinned)?;
        let engine = Arc::new(Self {
            images,
            program,
            state: Mutex::default(),
            events: broadcast::channel(1024).0,
            changed: Notify::new(),
            tasks,
            user_namespaces: OnceCell::new(),
            config,
        });
        engine.clone().find_again().await;
        Ok(engine)
    }

    pub(crate) fn sandbox_folder(&self, id: &str) -> PathBuf {
        self.config.data_dir.join("sandboxes").join(id)
    }

    pub(crate) fn container_folder(&self, id: &str) -> PathBuf {
        self.config.data_dir.join("containers").join(id)
    }

    pub(crate) fn namespaces(&self, sandbox: &str) -> PathBuf {
        self.config.run_dir.join("namespaces").join(sandbox)
    }

    /// Paths of sockets are short, so the first characters of the id have to do.
    pub(crate) fn shim(&self, sandbox: &str) -> Shim {
        let short: String = sandbox.chars().take(16).collect();
        Shim { socket: self.config.run_dir.join("shims").join(format!("{short}.sock")) }
    }

    pub(crate) fn tell(&self, container: &str, sandbox: &str, kind: v1::ContainerEventType) {
        // Nobody may be listening.
        let event = Event { container: container.to_owned(), sandbox: sandbox.to_owned(), kind, at: now() };
        let _ = self.events.send(event);
        self.changed.notify_waiters();
    }

    /// Kills what runs of a container and takes its control group away, where there is no shim to do it.
    pub(crate) async fn end_processes(&self, id: &str, cgroup: &str) {
        if let Err(error) = Group::new(cgroup).take_away().await {
            tracing::warn!(container = id, "its control group is not taken away: {error}");
        }
    }

    /// The full id of what may be given by its beginning.
    pub(crate) fn sandbox_id(&self, id: &str) -> Outcome<String> {
        let state = self.state.lock();
        pick(state.sandboxes.keys(), id)
            .ok_or_else(|| Failure::NotFound(format!("an error occurred when try to find sandbox: not found: {id:?}")))
    }

    pub(crate) fn container_id(&self, id: &str) -> Outcome<String> {
        let state = self.state.lock();
        pick(state.containers.keys(), id)
            .ok_or_else(|| Failure::NotFound(format!("an error occurred when try to find container {id:?}: not found")))
    }
}

fn pick<'a>(ids: impl Iterator<Item = &'a String>, id: &str) -> Option<String> {
    if id.is_empty() {
        return None;
    }
    let mut found = None;
    for known in ids.filter(|known| known.starts_with(id)) {
        if known == id {
            return Some(known.clone());
        }
        if found.is_some() {
            return None;
        }
        found = Some(known.clone());
    }
    found
}

//! The end of containers and pods, and what is taken away after it.

use std::sync::Arc;
use std::time::Duration;

use ferry_cri::v1::ContainerEventType;

use super::{Engine, Failure, Outcome};
use crate::cni::Attachment;
use crate::protocol::{Exit, Request};
use crate::state::{Sandbox, Stage};

const KILL: i32 = 9;
/// A killed process is gone at once, but for one that hangs in the kernel.
const KILL_PATIENCE: Duration = Duration::from_secs(30);

impl Engine {
    pub(crate) async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) -> Outcome<()> {
        let Ok(id) = self.container_id(id) else { return Ok(()) };
        let Some((sandbox, stage, signal)) = ({
            let state = self.state.lock();
            state.containers.get(&id).map(|c| (c.record.sandbox.clone(), c.record.stage, c.record.stop_signal))
        }) else {
            return Ok(());
        };
        // One that was never started has no process.
        if stage != Stage::Running {
            return Ok(());
        }
        let shim = self.shim(&sandbox);
        if !grace.is_zero() {
            shim.call(&Request::Kill { id: id.clone(), signal }).await.map_err(Failure::Internal)?;
            if self.ended_within(&id, grace).await {
                return Ok(());
            }
        }
        shim.call(&Request::Kill { id: id.clone(), signal: KILL }).await.map_err(Failure::Internal)?;
        if self.ended_within(&id, KILL_PATIENCE).await {
            return Ok(());
        }
        Err(Failure::Deadline(format!("container {id:?} does not end though it was killed")))
    }

    async fn ended_within(&self, id: &str, patience: Duration) -> bool {
        let ended = || self.state.lock().containers.get(id).is_none_or(|c| c.record.stage == Stage::Ended);
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if ended() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, waiting).await.is_ok()
    }

    /// A container has ended.
    pub(crate) fn ended(&self, id: &str, exit: &Exit) {
        let mut new = None;
        self.change(id, |record| {
            if record.stage == Stage::Ended {
                return;
            }
            record.stage = Stage::Ended;
            record.exit_code = exit.code;
            record.finished_at = exit.at;
            if record.started_at == 0 {
                // Killed before it was started.
                record.started_at = record.created_at;
            }
            if record.reason.is_empty() {
                let reason = match exit {
                    Exit { out_of_memory: true, .. } => "OOMKilled",
                    Exit { code: 0, .. } => "Completed",
                    _ => "Error",
                };
                record.reason = reason.to_owned();
            }
            new = Some(record.sandbox.clone());
        });
        if let Some(sandbox) = new {
            self.unmount(id);
            self.tell(id, &sandbox, ContainerEventType::ContainerStoppedEvent);
        }
    }

    /// Mounts of a container that has ended; every new container's view of the machine would copy them.
    fn unmount(&self, id: &str) {
        let folder = self.container_folder(id);
        crate::overlay::take_away(&folder.join("rootfs"));
        for place in crate::state::folders(&folder) {
            let name = place.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            if name.starts_with("image-") || name.starts_with("layer-") {
                crate::overlay::take_away(&place);
            }
        }
    }

    pub(crate) async fn remove_container(self: &Arc<Self>, id: &str) -> Outcome<()> {
        let Ok(id) = self.container_id(id) else { return Ok(()) };
        self.stop_container(&id, Duration::ZERO).await?;
        let Some(container) = self.state.lock().containers.remove(&id) else { return Ok(()) };
        let _ = self.shim(&container.record.sandbox).call(&Request::Forget { id: id.clone() }).await;
        self.take_away(&id, &container.record.cgroup).await;
        if !container.record.hidden {
            self.tell(&id, &container.record.sandbox, ContainerEventType::ContainerDeletedEvent);
        }
        Ok(())
    }

    /// Everything of a container that is on this machine; whatever runs of it is killed.
    pub(super) async fn take_away(&self, id: &str, cgroup: &str) {
        if !cgroup.is_empty() {
            self.end_processes(id, cgroup).await;
        }
        self.unmount(id);
        crate::state::remove(self.container_folder(id)).await;
    }

    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &str) -> Outcome<()> {
        let Ok(id) = self.sandbox_id(id) else { return Ok(()) };
        let containers = self.containers_of(&id);
        futures::future::try_join_all(containers.iter().map(|c| self.stop_container(c, Duration::ZERO))).await?;
        let Some(sandbox) = self.state.lock().sandboxes.get(&id).cloned() else { return Ok(()) };
        if sandbox.record.stage == Stage::Ended && sandbox.record.network.is_none() {
            return Ok(());
        }
        self.set_stage(&id, Stage::Ended, false);
        self.detach(&sandbox).await?;
        self.set_stage(&id, Stage::Ended, true);
        self.take_down(&sandbox).await;
        self.tell(&id, &id, ContainerEventType::ContainerStoppedEvent);
        Ok(())
    }

    fn containers_of(&self, sandbox: &str) -> Vec<String> {
        let state = self.state.lock();
        state.containers.values().filter(|c| c.record.sandbox == sandbox).map(|c| c.record.id.clone()).collect()
    }

    pub(super) fn set_stage(&self, id: &str, stage: Stage, detached: bool) {
        let mut state = self.state.lock();
        if let Some(sandbox) = state.sandboxes.get_mut(id) {
            sandbox.record.stage = stage;
            if detached {
                sandbox.record.network = None;
            }
            if let Err(error) = sandbox.save(&self.sandbox_folder(id)) {
                tracing::error!(sandbox = id, "its state is not written down: {error}");
            }
        }
    }

    async fn detach(&self, sandbox: &Sandbox) -> Outcome<()> {
        let Some(attached) = &sandbox.record.network else { return Ok(()) };
        let id = &sandbox.record.id;
        let namespace = self.namespaces(id).join("net");
        let from = Attachment { id, namespace: &namespace, config: &sandbox.config };
        let removed = self.config.network.remove(&from, attached).await;
        removed.map_err(|error| Failure::Internal(format!("failed to destroy network for sandbox {id:?}: {error}")))
    }

    /// The shim, the namespaces and the shared memory of a pod without containers.
    pub(super) async fn take_down(&self, sandbox: &Sandbox) {
        let id = &sandbox.record.id;
        let _ = self.detach(sandbox).await;
        let shim = self.shim(id);
        if shim.socket.exists() {
            let _ = shim.call(&Request::Shutdown).await;
            let _ = std::fs::remove_file(&shim.socket);
        }
        let namespaces = self.namespaces(id);
        for name in ["net", "ipc", "uts", "user"] {
            crate::overlay::take_away(&namespaces.join(name));
        }
        let _ = ferry_podfs::remove_all(&namespaces);
        crate::overlay::take_away(&self.sandbox_folder(id).join("shm"));
    }

    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &str) -> Outcome<()> {
        let Ok(id) = self.sandbox_id(id) else { return Ok(()) };
        self.stop_sandbox(&id).await?;
        for container in self.containers_of(&id) {
            self.remove_container(&container).await?;
        }
        let Some(sandbox) = self.state.lock().sandboxes.remove(&id) else { return Ok(()) };
        self.take_down(&sandbox).await;
        crate::state::remove(self.sandbox_folder(&id)).await;
        self.tell(&id, &id, ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }
}

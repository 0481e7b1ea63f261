//! What shims tell, and pods found again after a restart.

use std::sync::Arc;
use std::time::Duration;

use ferry_cri::v1::ContainerEventType;

use super::{Engine, now};
use crate::protocol::{Exit, Report};
use crate::shim_client::Reports;
use crate::state::{Container, Sandbox, Stage, folders};

const FIRST_WORD: Duration = Duration::from_secs(10);
/// As containerd says of containers that it lost.
const LOST: i32 = 255;

impl Engine {
    /// Listens to a pod's shim from now on.
    pub(super) fn follow(self: &Arc<Self>, sandbox: &str) {
        let (engine, id) = (self.clone(), sandbox.to_owned());
        self.tasks.spawn_until_stopped("shim", async move {
            loop {
                let Ok(mut reports) = engine.shim(&id).watch().await else { break };
                while let Some(report) = reports.next().await {
                    engine.told(&report);
                }
                let wanted = engine.state.lock().sandboxes.get(&id).is_some_and(|s| s.record.stage == Stage::Made);
                if !wanted {
                    return;
                }
                // Cut off for being slow, or the shim is gone: the next try tells.
            }
            engine.shim_lost(&id).await;
        });
    }

    pub(super) fn told(&self, report: &Report) {
        if report.id.is_empty() {
            return;
        }
        if let Some(container) = self.state.lock().containers.get_mut(&report.id) {
            container.record.pid = report.pid;
        }
        if let Some(at) = report.started_at {
            self.began(&report.id, at);
        }
        if let Some(exit) = &report.exit {
            self.ended(&report.id, exit);
        }
    }

    /// Without its shim a pod's containers have no pipes: they are ended, and the kubelet starts anew.
    async fn shim_lost(self: &Arc<Self>, id: &str) {
        let containers: Vec<String> = {
            let state = self.state.lock();
            if state.sandboxes.get(id).is_none_or(|s| s.record.stage != Stage::Made) {
                return;
            }
            let mine = state.containers.values().filter(|c| c.record.sandbox == id && c.record.stage == Stage::Running);
            mine.map(|c| c.record.id.clone()).collect()
        };
        tracing::warn!(sandbox = id, "the shim of a pod has ended");
        self.set_stage(id, Stage::Ended, false);
        for container in containers {
            self.lost(&container).await;
        }
        self.tell(id, id, ContainerEventType::ContainerStoppedEvent);
    }

    async fn lost(&self, id: &str) {
        let folder = self.container_folder(id);
        if let Some(exit) = written_exit(&folder) {
            self.ended(id, &exit);
            return;
        }
        let cgroup = self.state.lock().containers.get(id).map(|container| container.record.cgroup.clone());
        if let Some(cgroup) = cgroup {
            self.end_processes(id, &cgroup).await;
        }
        self.change(id, |record| {
            if record.stage != Stage::Ended {
                record.reason = "Unknown".to_owned();
                record.message = "the process that watched over the container ended".to_owned();
            }
        });
        self.ended(id, &Exit { code: LOST, at: now(), out_of_memory: false });
    }

    /// Reads what was written down, asks the shims that live, and takes away what was left half-made.
    pub(super) async fn find_again(self: Arc<Self>) {
        for folder in folders(&self.config.data_dir.join("containers")) {
            let id = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            match Container::load(&folder) {
                Ok(container) if container.record.stage != Stage::Making => {
                    self.state.lock().containers.insert(id, container);
                }
                // It never had a process, or nobody knows of which group.
                half => {
                    let cgroup = half.map(|container| container.record.cgroup).unwrap_or_default();
                    self.take_away(&id, &cgroup).await;
                }
            }
        }
        let mut found = Vec::new();
        for folder in folders(&self.config.data_dir.join("sandboxes")) {
            match Sandbox::load(&folder) {
                Ok(sandbox) if sandbox.record.stage != Stage::Making => {
                    found.push((sandbox.record.id.clone(), sandbox.record.stage));
                    self.state.lock().sandboxes.insert(sandbox.record.id.clone(), sandbox);
                }
                half => {
                    if let Ok(sandbox) = &half {
                        self.take_down(sandbox).await;
                    }
                    crate::overlay::take_away(&folder.join("shm"));
                    crate::state::remove(folder).await;
                }
            }
        }
        let looks = found.into_iter().filter(|(_, stage)| *stage == Stage::Made).map(|(id, _)| self.look(id));
        futures::future::join_all(looks).await;
        self.forget_strays().await;
        let used = self.state.lock().containers.values().flat_map(|c| c.record.layers.clone()).collect();
        self.images.sweep(&used);
    }

    async fn look(self: &Arc<Self>, id: String) {
        let first = async {
            let mut reports = self.shim(&id).watch().await.ok()?;
            let mut all = Vec::new();
            loop {
                let report = reports.next().await?;
                if report.id.is_empty() {
                    return Some((reports, all));
                }
                all.push(report);
            }
        };
        let first: Option<(Reports, Vec<Report>)> = tokio::time::timeout(FIRST_WORD, first).await.ok().flatten();
        let Some((_, reports)) = first else { return self.shim_lost(&id).await };
        for report in &reports {
            self.told(report);
        }
        // Containers the shim does not know: forgotten by it, or never begun.
        let mine: Vec<String> = {
            let state = self.state.lock();
            let mine = state.containers.values().filter(|c| c.record.sandbox == id && c.record.stage == Stage::Running);
            mine.map(|c| c.record.id.clone()).collect()
        };
        for container in mine.iter().filter(|c| !reports.iter().any(|report| report.id == **c)) {
            self.lost(container).await;
        }
        self.follow(&id);
    }

    /// Containers of pods that are gone.
    async fn forget_strays(&self) {
        let strays: Vec<String> = {
            let state = self.state.lock();
            let strays = state.containers.values().filter(|c| !state.sandboxes.contains_key(&c.record.sandbox));
            strays.map(|c| c.record.id.clone()).collect()
        };
        for id in strays {
            let stray = self.state.lock().containers.remove(&id);
            self.take_away(&id, &stray.map(|stray| stray.record.cgroup).unwrap_or_default()).await;
        }
        let ended: Vec<String> = {
            let state = self.state.lock();
            let without = |c: &&Container| {
                c.record.stage == Stage::Running
                    && state.sandboxes.get(&c.record.sandbox).is_none_or(|s| s.record.stage == Stage::Ended)
            };
            state.containers.values().filter(without).map(|c| c.record.id.clone()).collect()
        };
        for id in ended {
            self.lost(&id).await;
        }
    }
}

fn written_exit(folder: &std::path::Path) -> Option<Exit> {
    serde_json::from_slice(&std::fs::read(folder.join("exit.json")).ok()?).ok()
}

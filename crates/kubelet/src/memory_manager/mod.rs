//! The memory manager: at which NUMA nodes containers have their memory.
//!
//! [`policy`] decides, and is pure; [`reserved`] is what the system keeps of each node, [`checkpoint`] carries the state over a
//! restart.

mod checkpoint;
mod policy;
pub(crate) mod reserved;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_metrics::{Kind, Page};
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::{Mutex, MutexGuard};

use crate::checkpoint_file;
use crate::node_resources::NodeResources;
use crate::status::WaitReason;
use crate::topology_manager::numa::Numa;
use crate::topology_manager::{Hint, HintProvider, Hints, NumaMask, unexpected};
use crate::volumes::blocking;
use policy::{Reusable, StaticPolicy};
pub(crate) use reserved::{MemoryManagerPolicy, MemoryReservation};
pub(crate) use state::Block;
use state::MemoryState;

#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    errors: u64,
}

#[derive(Debug)]
pub(crate) struct MemoryManager {
    /// None gives nothing out.
    policy: Option<StaticPolicy>,
    file: PathBuf,
    /// Held while the next state is found and written down. Who reads the present one does not wait for the disk.
    changing: Mutex<()>,
    state: Mutex<MemoryState>,
    counts: Mutex<Counts>,
}

impl MemoryManager {
    /// With the state that an earlier kubelet of this node has left; an error where that does not fit. `kept` is the memory
    /// that node allocatable keeps, in bytes.
    pub(crate) fn open(root_dir: &Path, resources: &NodeResources, numa: &Numa, kept: u64) -> Result<Self, String> {
        let (name, file) = (resources.memory_manager.name(), checkpoint::path(root_dir));
        let policy = match resources.memory_manager {
            MemoryManagerPolicy::None => None,
            MemoryManagerPolicy::Static => {
                resources.topology.has_room_for(numa).map_err(|why| format!("[memorymanager] {why}"))?;
                reserved::check(&resources.reserved_memory, numa, kept)?;
                Some(StaticPolicy::new(numa, &resources.reserved_memory)?)
            }
        };
        let mut state = checkpoint::read(&file, name)?.unwrap_or_default();
        if let Some(policy) = &policy {
            policy.start(&mut state).map_err(|why| {
                format!("invalid state, please drain node and remove policy state file {}: {why}", file.display())
            })?;
        }
        let manager =
            Self { policy, file, changing: Mutex::default(), state: Mutex::new(state), counts: Mutex::default() };
        manager.write(&manager.state.lock())?;
        Ok(manager)
    }

    fn write(&self, state: &MemoryState) -> Result<(), String> {
        let policy = if self.is_static() { MemoryManagerPolicy::Static } else { MemoryManagerPolicy::None };
        checkpoint_file::save(&self.file, &checkpoint::text(policy.name(), state))
    }

    /// Begins the admission of a pod; None where no memory is given out. Other changes wait until it is dropped.
    pub(crate) fn draft(&self) -> Option<Draft<'_>> {
        let policy = self.policy.as_ref()?;
        let changing = self.changing.lock();
        let next = self.state.lock().clone();
        Some(Draft { manager: self, policy, _changing: changing, next, reusable: Reusable::new() })
    }

    /// The memory of a pod without processes is everybody's again, off the async workers.
    pub(crate) async fn give_back(self: &Arc<Self>, uid: &str) {
        if !self.state.lock().assigned.contains_key(uid) {
            return;
        }
        let (own, uid) = (self.clone(), uid.to_owned());
        let release = move || {
            own.release(&uid);
            Ok(())
        };
        if let Err(why) = blocking(release).await {
            tracing::error!("memory is not given back: {why}");
        }
    }

    /// The same. Blocks.
    pub(crate) fn release(&self, uid: &str) {
        let _changing = self.changing.lock();
        let mut next = self.state.lock().clone();
        if !StaticPolicy::release(&mut next, uid) {
            return;
        }
        if let Err(why) = self.write(&next) {
            // It is written with the next change; a kubelet that starts before gives it back then.
            tracing::warn!("{why}");
        }
        *self.state.lock() = next;
    }

    /// Pods that have memory of their own.
    pub(crate) fn holders(&self) -> Vec<String> {
        self.state.lock().assigned.keys().cloned().collect()
    }

    /// What a container has.
    pub(crate) fn blocks(&self, uid: &str, container: &str) -> Vec<Block> {
        self.state.lock().of(uid, container).cloned().unwrap_or_default()
    }

    /// The NUMA nodes of a container's memory, as the kernel writes sets; empty for any.
    pub(crate) fn nodes(&self, uid: &str, container: &str) -> String {
        let blocks = self.blocks(uid, container);
        let nodes: NumaMask = blocks.iter().flat_map(|block| &block.numa_affinity).copied().collect();
        nodes.nodes().map(|node| node.to_string()).collect::<Vec<_>>().join(",")
    }

    /// All that can be given out.
    pub(crate) fn allocatable(&self) -> Vec<Block> {
        self.policy.as_ref().map(StaticPolicy::allocatable).unwrap_or_default()
    }

    pub(crate) fn is_static(&self) -> bool {
        self.policy.is_some()
    }

    /// In the format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let counts = self.counts.lock();
        let mut page = Page::new();
        let help = "The number of memory pages allocations which required pinning.";
        page.family("kubelet_memory_manager_pinning_requests_total", Kind::Counter, help).sample("", counts.requests);
        let help = "The number of memory pages allocations which required pinning that failed.";
        page.family("kubelet_memory_manager_pinning_errors_total", Kind::Counter, help).sample("", counts.errors);
        page.into_text()
    }
}

/// The admission of a pod: what it is given counts once all of it is written down.
pub(crate) struct Draft<'a> {
    manager: &'a MemoryManager,
    policy: &'a StaticPolicy,
    _changing: MutexGuard<'a, ()>,
    next: MemoryState,
    reusable: Reusable,
}

impl Draft<'_> {
    /// Blocks.
    pub(crate) fn commit(self) -> Result<(), WaitReason> {
        if *self.manager.state.lock() == self.next {
            return Ok(());
        }
        if let Err(why) = self.manager.write(&self.next) {
            self.manager.counts.lock().errors += 1;
            return Err(unexpected(why));
        }
        *self.manager.state.lock() = self.next;
        Ok(())
    }
}

impl HintProvider for Draft<'_> {
    fn container_hints(&self, of: &Pod, container: &Container) -> Hints {
        self.policy.container_hints(&self.next, of, container, &self.reusable)
    }

    fn pod_hints(&self, of: &Pod) -> Hints {
        self.policy.pod_hints(&self.next, of)
    }

    fn allocate(&mut self, of: &Pod, container: &Container, at: Hint) -> Result<(), WaitReason> {
        let given = self.policy.allocate(&mut self.next, of, container, at, &mut self.reusable);
        let mut counts = self.manager.counts.lock();
        counts.requests += u64::from(!matches!(given, Ok(false)));
        counts.errors += u64::from(given.is_err());
        given.map(drop).map_err(unexpected)
    }
}

#[cfg(test)]
mod tests;

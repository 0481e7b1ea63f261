//! The CPU manager: which CPUs containers may use.
//!
//! [`policy`] decides, and is pure, as are [`take`] and [`distribute`] below it and [`hints`] beside it; [`draft`] is a pod's
//! admission, [`topology`] reads the machine, [`checkpoint`] carries the state over a restart, [`reconcile`] moves the containers
//! that run.

mod checkpoint;
mod cpuset;
mod distribute;
mod draft;
mod hints;
mod metrics;
mod options;
mod policy;
mod reconcile;
mod state;
mod take;
pub(crate) mod topology;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::checkpoint_file;
use crate::node_resources::NodeResources;
use crate::topology_manager::TopologyScope;
use crate::volumes::blocking;
pub(crate) use cpuset::CpuSet;
pub(crate) use draft::Draft;
use metrics::Counts;
pub(crate) use options::CpuManagerPolicy;
use policy::StaticPolicy;
pub(crate) use reconcile::reconcile;
use state::CpuState;
use topology::Topology;

#[derive(Debug)]
pub(crate) struct CpuManager {
    /// None gives nothing out.
    policy: Option<StaticPolicy>,
    file: PathBuf,
    /// Held while the next state is found and written down. Who reads the present one does not wait for the disk.
    changing: Mutex<()>,
    state: Mutex<CpuState>,
    /// Counts the changes of the state: containers that run have to move.
    changes: watch::Sender<u64>,
    counts: Mutex<Counts>,
}

impl CpuManager {
    /// With the state that an earlier kubelet of this node has left; an error where that does not fit.
    pub(crate) fn open(
        root_dir: &Path,
        resources: &NodeResources,
        topology: Result<Topology, String>,
    ) -> Result<Self, String> {
        let topology = match topology {
            // Where nothing is said of CPUs, nobody has to know them.
            Err(_) if resources.cpu_manager == CpuManagerPolicy::None && resources.reserved_cpus.is_empty() => {
                Topology::default()
            }
            read => read?,
        };
        let all = topology.all();
        if !resources.reserved_cpus.is_within(&all) {
            return Err(format!("reserved-cpus: {} is not a subset of online-cpus: {all}", resources.reserved_cpus));
        }
        let (name, file) = (resources.cpu_manager.name(), checkpoint::path(root_dir));
        let policy = match &resources.cpu_manager {
            CpuManagerPolicy::None => None,
            CpuManagerPolicy::Static(options) => {
                let made =
                    StaticPolicy::new(topology, resources.reserved_cpu(), &resources.reserved_cpus, options.clone());
                Some(made.map_err(|why| format!("[cpumanager] new static policy error: {why}"))?)
            }
        };
        let mut state = checkpoint::read(&file, name)?.unwrap_or_default();
        if let Some(policy) = &policy {
            policy.start(&mut state).map_err(|why| {
                format!("invalid state, please drain node and remove policy state file {}: {why}", file.display())
            })?;
        }
        let manager = Self {
            policy,
            file,
            changing: Mutex::default(),
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            counts: Mutex::default(),
        };
        manager.write(&manager.state.lock())?;
        Ok(manager)
    }

    fn write(&self, state: &CpuState) -> Result<(), String> {
        let name = if self.policy.is_some() { "static" } else { "none" };
        checkpoint_file::save(&self.file, &checkpoint::text(name, state))
    }

    /// Begins the admission of a pod; None where no CPUs are given out. Other changes wait until it is dropped.
    pub(crate) fn draft(&self) -> Option<Draft<'_>> {
        self.policy.as_ref().map(|policy| Draft::new(self, policy))
    }

    fn put(&self, next: CpuState) {
        let mut state = self.state.lock();
        if *state != next {
            *state = next;
            drop(state);
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The same as [`release`](Self::release), off the async workers.
    pub(crate) async fn give_back(self: &Arc<Self>, uid: &str) {
        if !self.has_exclusive(uid) {
            return;
        }
        let (own, uid) = (self.clone(), uid.to_owned());
        let release = move || {
            own.release(&uid);
            Ok(())
        };
        if let Err(why) = blocking(release).await {
            tracing::error!("CPUs are not given back: {why}");
        }
    }

    /// The CPUs of a pod without processes are everybody's again. Blocks.
    pub(crate) fn release(&self, uid: &str) {
        let _changing = self.changing.lock();
        let mut next = self.state.lock().clone();
        if !next.release(uid) {
            return;
        }
        if let Err(why) = self.write(&next) {
            // It is written with the next change; a kubelet that starts before gives it back then.
            tracing::warn!("{why}");
        }
        self.put(next);
    }

    /// Pods that have CPUs of their own.
    pub(crate) fn holders(&self) -> Vec<String> {
        self.state.lock().assigned.keys().cloned().collect()
    }

    /// The CPUs of its own that a container has.
    pub(crate) fn exclusive(&self, uid: &str, container: &str) -> CpuSet {
        self.state.lock().of(uid, container).cloned().unwrap_or_default()
    }

    pub(crate) fn has_exclusive(&self, uid: &str) -> bool {
        self.state.lock().assigned.contains_key(uid)
    }

    /// Where a container may run; empty for anywhere.
    pub(crate) fn affinity(&self, uid: &str, container: &str) -> CpuSet {
        self.state.lock().of_or_shared(uid, container).clone()
    }

    /// All that can be given out.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.policy.as_ref().map(StaticPolicy::allocatable).unwrap_or_default()
    }

    pub(crate) fn is_static(&self) -> bool {
        self.policy.is_some()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// In the format of Prometheus. `alignments` are those that the topology manager has counted.
    pub(crate) fn metrics(&self, alignments: Option<[(TopologyScope, u64, u64); 2]>) -> String {
        let mut text = self.counts.lock().text(self.policy.as_ref(), &self.state.lock());
        text.push_str(&self.counts.lock().alignments(self.policy.is_some(), alignments));
        text
    }
}

#[cfg(test)]
mod tests;

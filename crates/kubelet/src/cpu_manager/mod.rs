//! The CPU manager: which CPUs containers may use.
//!
//! [`policy`] decides, and is pure, as are [`take`] and [`distribute`] below it; [`topology`] reads the machine, [`checkpoint`]
//! carries the state over a restart, [`reconcile`] moves the containers that run.

mod checkpoint;
mod cpuset;
mod distribute;
mod metrics;
mod options;
mod policy;
#[cfg(test)]
mod policy_tests;
mod reconcile;
mod state;
mod take;
pub(crate) mod topology;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::node_resources::NodeResources;
use crate::pod;
use crate::status::WaitReason;
pub(crate) use cpuset::CpuSet;
use metrics::Counts;
pub(crate) use options::CpuManagerPolicy;
use policy::{StaticPolicy, exclusive_cpus};
pub(crate) use reconcile::reconcile;
use state::State;
use topology::Topology;

/// NUMA nodes by their numbers.
pub(crate) type NodeSet = BTreeSet<u32>;

#[derive(Debug)]
pub(crate) struct CpuManager {
    /// None gives nothing out.
    policy: Option<StaticPolicy>,
    file: PathBuf,
    state: Mutex<State>,
    /// Counts the changes of the state: containers that run have to move.
    changes: watch::Sender<u64>,
    counts: Mutex<Counts>,
}

impl CpuManager {
    /// With the state that an earlier kubelet of this node has left; an error where that does not fit.
    pub(crate) fn open(root_dir: &Path, resources: &NodeResources, topology: Topology) -> Result<Self, String> {
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
        let manager =
            Self { policy, file, state: Mutex::new(state), changes: watch::Sender::new(0), counts: Mutex::default() };
        manager.write(&manager.state.lock())?;
        Ok(manager)
    }

    fn write(&self, state: &State) -> Result<(), String> {
        let name = if self.policy.is_some() { "static" } else { "none" };
        let written = checkpoint::write(&self.file, &checkpoint::text(name, state));
        written.map_err(|error| format!("could not save checkpoint {}: {error}", self.file.display()))
    }

    /// Gives the containers of a pod their CPUs; those they have stay theirs. A pod that cannot have them is refused.
    pub(crate) fn allocate(&self, of: &Pod, near: &dyn Fn(&str) -> Option<NodeSet>) -> Result<(), WaitReason> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let all = pod::init_containers(of).iter().chain(pod::containers(of));
        let asked = all.filter(|container| exclusive_cpus(of, container) > 0).count();
        if asked == 0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        let mut next = state.clone();
        let given = policy.allocate(&mut next, of, near).and_then(|given| {
            // What is not written down would be given out twice after a restart.
            self.write(&next).map(|()| given).map_err(|why| WaitReason {
                reason: "UnexpectedAdmissionError".to_owned(),
                message: format!("Allocate failed due to {why}, which is unexpected"),
            })
        });
        self.counts.lock().asked(asked, policy.options.full_cores_only, given.as_deref());
        given?;
        self.put(&mut state, next);
        Ok(())
    }

    fn put(&self, state: &mut State, next: State) {
        if *state != next {
            *state = next;
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The CPUs of a pod without processes are everybody's again.
    pub(crate) fn release(&self, uid: &str) {
        let mut state = self.state.lock();
        let mut next = state.clone();
        if !next.release(uid) {
            return;
        }
        if let Err(why) = self.write(&next) {
            // It is written with the next change; a kubelet that starts before gives it back then.
            tracing::warn!("{why}");
        }
        self.put(&mut state, next);
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

    /// In the format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        self.counts.lock().text(self.policy.as_ref(), &self.state.lock())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::topology::machines;
    use super::*;
    use crate::node_resources::Statements;

    fn resources(policy: &str, cpu: &str, named: &str) -> NodeResources {
        NodeResources::new(&Statements {
            kube_reserved: [("cpu".to_owned(), cpu.to_owned())].into(),
            reserved_system_cpus: named.to_owned(),
            cpu_manager_policy: Some(policy.to_owned()),
            ..Statements::default()
        })
        .expect("taken")
    }

    fn pod(uid: &str) -> Pod {
        let amounts = json!({"cpu": "1", "memory": "1Mi"});
        let container = json!({"name": "a", "resources": {"limits": amounts, "requests": amounts}});
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn cpus_are_given_out_written_down_and_given_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |policy: &str| CpuManager::open(folder.path(), &resources(policy, "500m", ""), machines::small());
        let manager = open("static").expect("opened");
        manager.allocate(&pod("p"), &|_| None).expect("given");
        assert_eq!(
            (manager.exclusive("p", "a").to_string(), manager.affinity("q", "a").to_string()),
            ("1".to_owned(), "0".to_owned())
        );
        assert!(manager.allocate(&pod("q"), &|_| None).is_err_and(|why| why.reason == "UnexpectedAdmissionError"));
        let metrics = manager.metrics();
        for line in [
            "kubelet_cpu_manager_pinning_requests_total 2",
            "kubelet_cpu_manager_pinning_errors_total 1",
            "kubelet_cpu_manager_shared_pool_size_millicores 0",
            "kubelet_cpu_manager_exclusive_cpu_allocation_count 1",
            "kubelet_cpu_manager_allocation_per_numa{numa_node=\"0\"} 1",
            "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"uncore_cache\"} 1",
        ] {
            assert!(metrics.lines().any(|seen| seen == line), "{line} in {metrics}");
        }
        // Another kubelet of the same node goes on with it.
        let again = open("static").expect("opened");
        assert_eq!((again.holders(), again.exclusive("p", "a").to_string()), (vec!["p".to_owned()], "1".to_owned()));
        let why = open("none").expect_err("refused");
        assert!(why.contains("configured policy \"none\" differs from state checkpoint policy \"static\""), "{why}");
        let mut changes = again.changes();
        again.release("p");
        assert!(changes.has_changed().is_ok_and(|changed| changed) && !again.has_exclusive("p"));
        changes.borrow_and_update();
        again.release("p");
        assert!(changes.has_changed().is_ok_and(|changed| !changed));
        assert_eq!(open("static").expect("opened").affinity("q", "a").to_string(), "0-1");
    }

    #[test]
    fn without_a_policy_nothing_is_said_of_cpus() {
        let folder = tempfile::tempdir().expect("a folder");
        let manager = CpuManager::open(folder.path(), &NodeResources::default(), machines::small()).expect("opened");
        manager.allocate(&pod("p"), &|_| None).expect("nothing to do");
        assert!(manager.affinity("p", "a").is_empty() && manager.allocatable().is_empty() && !manager.is_static());
    }

    #[test]
    fn a_reservation_that_the_machine_cannot_keep_is_refused() {
        let check = |cpu: &str, named: &str, want: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let got = CpuManager::open(folder.path(), &resources("static", cpu, named), machines::small());
            assert_eq!(got.err().as_deref(), Some(want));
        };
        let none = "[cpumanager] new static policy error: the static policy requires systemreserved.cpu + kubereserved.cpu to be \
                    greater than zero";
        check("0", "", none);
        check("1", "1-3", "reserved-cpus: 1-3 is not a subset of online-cpus: 0-1");
    }
}

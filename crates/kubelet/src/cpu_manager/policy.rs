//! The static policy: containers of Guaranteed pods that ask for whole CPUs get CPUs of their own.
//!
//! Pure: what is given depends on the state and the pod alone.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::CpuSet;
use super::distribute::{Distribution, distribute};
use super::options::StaticOptions;
use super::state::CpuState;
use super::take::{Manner, take};
use super::topology::{Level, Topology};
use crate::status::WaitReason;
use crate::topology_manager::{NumaMask, unexpected};
use crate::{pod, quantity};

#[derive(Clone, Debug)]
pub(crate) struct StaticPolicy {
    pub(crate) topology: Topology,
    /// Never given out; unless the reservation is strict, everybody without CPUs of its own runs there too.
    pub(crate) reserved: CpuSet,
    /// With the other threads of their cores.
    reserved_cores: CpuSet,
    pub(crate) options: StaticOptions,
}

impl StaticPolicy {
    /// `reserved_milli` is what the system and the kubelet keep of processors; `named` are the CPUs, where they were named.
    pub(crate) fn new(
        topology: Topology,
        reserved_milli: i64,
        named: &CpuSet,
        options: StaticOptions,
    ) -> Result<Self, String> {
        if reserved_milli <= 0 {
            return Err(
                "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero".to_owned()
            );
        }
        if options.by_socket && topology.count(Level::Socket) > topology.count(Level::Node) {
            return Err(
                "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
                    .to_owned(),
            );
        }
        let mut policy = Self { topology, reserved: CpuSet::default(), reserved_cores: CpuSet::default(), options };
        let count = usize::try_from(reserved_milli.saturating_add(999) / 1000).unwrap_or(usize::MAX);
        let reserved = if named.is_empty() {
            policy.take(&policy.topology.all(), count).unwrap_or_default()
        } else {
            named.clone()
        };
        if reserved.len() != count {
            return Err(format!(
                "unable to reserve the required amount of CPUs (size of {reserved} did not equal {count})"
            ));
        }
        policy.reserved_cores = policy.topology.widened(Level::Core, &reserved);
        policy.reserved = reserved;
        Ok(policy)
    }

    /// All that can be given out.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.topology.all().minus(&self.reserved)
    }

    pub(crate) fn available(&self, state: &CpuState) -> CpuSet {
        state.shared.minus(&self.reserved)
    }

    fn take(&self, available: &CpuSet, count: usize) -> Result<CpuSet, String> {
        let manner = Manner { across_cores: self.options.across_cores, by_cache: self.options.by_cache };
        if !self.options.across_nodes {
            return take(&self.topology, available, count, manner);
        }
        let group = if self.options.full_cores_only { self.topology.per(Level::Core) } else { 1 };
        let how = Distribution { group, by_socket: self.options.by_socket };
        distribute(&self.topology, available, count, manner, how)
    }

    /// Takes over what an earlier kubelet has left, if it fits the machine and the reservation.
    pub(crate) fn start(&self, state: &mut CpuState) -> Result<(), String> {
        let mut all = self.topology.all();
        if self.options.strict_reservation {
            all = all.minus(&self.reserved);
        }
        let shared = &state.shared;
        if shared.is_empty() && state.assigned.is_empty() {
            state.shared = all;
            return Ok(());
        }
        // All that is not reserved may have been given out, and what is strictly reserved is not shared.
        if shared.is_empty() && !self.options.strict_reservation {
            return Err("default cpuset cannot be empty".to_owned());
        }
        let common = self.reserved.common(shared);
        if self.options.strict_reservation && !common.is_empty() {
            return Err(format!(
                "some of strictly reserved cpus: \"{common}\" are present in defaultCpuSet: \"{shared}\""
            ));
        }
        if !self.options.strict_reservation && common != self.reserved {
            let reserved = &self.reserved;
            return Err(format!("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\""));
        }
        for (uid, sets) in &state.assigned {
            for (container, set) in sets {
                if !shared.common(set).is_empty() {
                    return Err(format!(
                        "pod: {uid}, container: {container} cpuset: \"{set}\" overlaps with default cpuset \"{shared}\""
                    ));
                }
            }
        }
        let known = shared.union(&state.exclusive());
        if known != all {
            return Err(format!(
                "current set of available CPUs \"{all}\" doesn't match with CPUs in state \"{known}\""
            ));
        }
        Ok(())
    }

    /// Gives a container what it is to have; one that has it already keeps it. `near` are the NUMA nodes at which it is to be,
    /// `reusable` the CPUs of those init containers that have ended before it starts. None where it shares CPUs.
    pub(crate) fn allocate(
        &self,
        state: &mut CpuState,
        of: &Pod,
        container: &Container,
        near: Option<NumaMask>,
        reusable: &mut CpuSet,
    ) -> Result<Option<Given>, WaitReason> {
        let count = exclusive_cpus(of, container);
        if count == 0 {
            return Ok(None);
        }
        let (cpus, cache_aligned) = match state.of(pod::uid(of), &container.name) {
            Some(known) => (known.clone(), false),
            None => {
                let cpus = self.give(state, count, near, reusable)?;
                let sets = state.assigned.entry(pod::uid(of).to_owned()).or_default();
                sets.insert(container.name.clone(), cpus.clone());
                let cache_aligned = self.topology.groups(Level::Cache, &cpus).len() <= 1;
                (cpus, cache_aligned)
            }
        };
        // What an init container had is for those after it; what runs on keeps it.
        let ends = matches!(pod::container(of, &container.name), Some((pod::Role::Init, _)));
        *reusable = if ends { reusable.union(&cpus) } else { reusable.minus(&cpus) };
        Ok(Some(Given { count: cpus.len(), cache_aligned }))
    }

    fn give(
        &self,
        state: &mut CpuState,
        count: usize,
        near: Option<NumaMask>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, WaitReason> {
        self.check_cores(state, count)?;
        let available = self.available(state).union(reusable);
        let mut cpus = CpuSet::default();
        if let Some(nodes) = near {
            let there = available.common(&self.cpus_near(nodes));
            cpus = self.take(&there, count.min(there.len())).map_err(unexpected)?;
        }
        let rest = self.take(&available.minus(&cpus), count - cpus.len()).map_err(unexpected)?;
        let cpus = cpus.union(&rest);
        state.shared = state.shared.minus(&cpus);
        Ok(cpus)
    }

    fn cpus_near(&self, nodes: NumaMask) -> CpuSet {
        let near = nodes.nodes().map(|node| self.topology.group(Level::Node, node));
        let near = near.fold(CpuSet::default(), |all, cpus| all.union(&cpus));
        if self.options.by_socket { self.topology.widened(Level::Socket, &near) } else { near }
    }

    /// With whole cores only, a part of one cannot be had, nor a core that shares its threads with a reserved one.
    fn check_cores(&self, state: &CpuState, count: usize) -> Result<(), WaitReason> {
        if !self.options.full_cores_only {
            return Ok(());
        }
        let refuse = |message: String| Err(WaitReason { reason: "SMTAlignmentError".to_owned(), message });
        let per_core = self.topology.per(Level::Core).max(1);
        if !count.is_multiple_of(per_core) {
            return refuse(format!(
                "SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}"
            ));
        }
        let available = state.shared.minus(&self.reserved_cores).len();
        if count > available {
            return refuse(format!(
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs \
                 = {count}, CPUs per core = {per_core}"
            ));
        }
        Ok(())
    }
}

/// What a container was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) count: usize,
    /// All of it behind one cache; not of what it had before.
    pub(crate) cache_aligned: bool,
}

/// How many CPUs of its own a container is to have. A pod with resources of the whole pod shares, as upstream has it.
pub(crate) fn exclusive_cpus(of: &Pod, container: &Container) -> usize {
    if pod::qos_class(of) != "Guaranteed" || pod::has_pod_resources(of) {
        return 0;
    }
    let resources = container.resources.as_ref();
    let asked = resources.and_then(|r| r.requests.as_ref()?.get("cpu"));
    let asked = asked.or_else(|| resources.and_then(|r| r.limits.as_ref()?.get("cpu")));
    let milli = asked.and_then(quantity::milli).unwrap_or(0);
    if milli % 1000 == 0 { usize::try_from(milli / 1000).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests;

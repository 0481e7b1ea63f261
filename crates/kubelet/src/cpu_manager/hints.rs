//! At which NUMA nodes a container could have its CPUs. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::CpuSet;
use super::policy::{StaticPolicy, exclusive_cpus};
use super::topology::Level;
use crate::pod;
use crate::topology_manager::hints as topology_hints;
use crate::topology_manager::{Hint, NumaMask};

/// Where so many CPUs are, of those that are available; all that are `reusable` have to be there, too.
pub(super) fn hints(policy: &StaticPolicy, available: &CpuSet, reusable: &CpuSet, count: usize) -> Vec<Hint> {
    let topology = &policy.topology;
    let nodes = |cpus: &CpuSet| topology.groups(Level::Node, cpus);
    let (all, free, again) = (nodes(&topology.all()), nodes(available), nodes(reusable));
    let machine: NumaMask = all.keys().copied().collect();
    let needed: NumaMask = again.keys().copied().collect();
    let has = |groups: &std::collections::BTreeMap<u32, CpuSet>, at: NumaMask| {
        at.nodes().filter_map(|node| groups.get(&node)).map(CpuSet::len).sum::<usize>()
    };
    let could = machine.combinations().filter(|at| has(&all, *at) >= count);
    let fewest = could.map(NumaMask::count).min().unwrap_or(machine.count()).min(machine.count());
    let can = machine.combinations().filter(|at| needed.is_within(*at) && has(&free, *at) + reusable.len() >= count);
    let mut found = topology_hints::hints(can, fewest);
    if policy.options.by_socket {
        let sockets = |at: NumaMask| {
            let cpus = at.nodes().map(|node| topology.group(Level::Node, node));
            topology.groups(Level::Socket, &cpus.fold(CpuSet::default(), |all, cpus| all.union(&cpus))).len()
        };
        let per_socket = topology.count(Level::Node) / topology.count(Level::Socket).max(1);
        let fewest_sockets = fewest.div_ceil(per_socket.max(1));
        for hint in &mut found {
            hint.preferred |= per_socket > 0 && hint.nodes.is_some_and(|at| sockets(at) == fewest_sockets);
        }
    }
    found
}

/// How many CPUs the containers of a pod have of their own at the same time.
pub(super) fn cpus_of_pod(of: &Pod) -> usize {
    let count = |container: &Container| exclusive_cpus(of, container);
    let (mut sidecars, mut most) = (0, 0);
    for container in pod::init_containers(of) {
        if pod::is_sidecar(container) {
            sidecars += count(container);
        } else {
            most = most.max(sidecars + count(container));
        }
    }
    most.max(sidecars + pod::containers(of).iter().map(count).sum::<usize>())
}

#[cfg(test)]
mod tests;

//! The static policy: containers of Guaranteed pods get their memory from as few NUMA nodes as can give it.
//!
//! Pure: what is given depends on the state and the pod alone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::reserved::MemoryReservation;
use super::state::{self, Block, MachineState, MemoryState, MemoryTable, NodeState};
use crate::topology_manager::hints::hints as topology_hints;
use crate::topology_manager::numa::Numa;
use crate::topology_manager::{Hint, Hints, NumaMask};
use crate::{pod, quantity};

pub(crate) const MEMORY: &str = "memory";

/// In bytes, by kind of memory.
pub(super) type Amounts = BTreeMap<String, u64>;

/// What init containers of a pod have that have ended before others start, by the nodes it is at.
pub(super) type Reusable = BTreeMap<NumaMask, Amounts>;

#[derive(Clone, Debug)]
pub(crate) struct StaticPolicy {
    /// The machine when nothing is given out.
    whole: MachineState,
}

impl StaticPolicy {
    pub(super) fn new(numa: &Numa, reserved: &[MemoryReservation]) -> Result<Self, String> {
        if reserved.iter().all(|one| one.limits.get(MEMORY).is_none_or(|size| *size == 0)) {
            return Err("[memorymanager] you should specify the system reserved memory".to_owned());
        }
        let kept = |node: u32, kind: &str| {
            let of_node = reserved.iter().filter(|one| one.numa_node == node);
            of_node.filter_map(|one| one.limits.get(kind)).sum::<u64>()
        };
        let whole = numa.nodes().iter().map(|node| {
            let table = |kind: &str, total: u64, elsewhere: u64| {
                let system_reserved = kept(node.id, kind);
                let allocatable = total.saturating_sub(system_reserved).saturating_sub(elsewhere);
                MemoryTable { total, system_reserved, allocatable, reserved: 0, free: allocatable }
            };
            let pages = node.huge_pages.iter().map(|pages| (pages.resource(), pages.size.saturating_mul(pages.count)));
            let pages: BTreeMap<String, u64> = pages.collect();
            let memory = table(MEMORY, node.memory, pages.values().sum());
            let pages = pages.into_iter().map(|(kind, total)| (kind.clone(), table(&kind, total, 0)));
            let memory_map = pages.chain([(MEMORY.to_owned(), memory)]).collect();
            (node.id, NodeState { number_of_assignments: 0, memory_map, cells: vec![node.id] })
        });
        Ok(Self { whole: whole.collect() })
    }

    /// What could be given out, of each kind and node.
    pub(super) fn allocatable(&self) -> Vec<Block> {
        let blocks = self.whole.iter().flat_map(|(id, node)| {
            node.memory_map.iter().map(|(kind, table)| Block {
                numa_affinity: vec![*id],
                kind: kind.clone(),
                size: table.allocatable,
            })
        });
        blocks.filter(|block| block.size > 0).collect()
    }

    /// Takes over what an earlier kubelet has left, if it fits the machine and the reservation.
    pub(super) fn start(&self, state: &mut MemoryState) -> Result<(), String> {
        if state.machine.is_empty() {
            if !state.assigned.is_empty() {
                return Err("[memorymanager] machine state can not be empty when it has memory assignments".to_owned());
            }
            state.machine.clone_from(&self.whole);
            return Ok(());
        }
        let mut expected = self.whole.clone();
        for (uid, containers) in &state.assigned {
            for (container, block) in containers.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one))) {
                if !state::take(&mut expected, &block.numa_affinity, &block.kind, block.size) {
                    let exists = block.numa_affinity.iter().all(|id| expected.contains_key(id));
                    let what = if exists { "memory resource" } else { "the NUMA" };
                    return Err(format!(
                        "[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses {what} that does \
                         not exist"
                    ));
                }
            }
        }
        if !are_equal(&state.machine, &expected) {
            return Err("[memorymanager] the expected machine state is different from the real one".to_owned());
        }
        Ok(())
    }

    /// Where so much memory is, of all kinds. Nothing stands for nowhere.
    fn places(machine: &MachineState, reusable: &Reusable, wanted: &Amounts) -> Vec<Hint> {
        let all: NumaMask = machine.keys().copied().collect();
        let sum = |at: NumaMask, kind: &str, of: fn(&MemoryTable) -> u64| {
            let tables = at.nodes().filter_map(|id| machine.get(&id)?.memory_map.get(kind));
            tables.map(of).fold(0, u64::saturating_add)
        };
        let could: Vec<NumaMask> = all
            .combinations()
            .filter(|at| wanted.iter().all(|(kind, size)| sum(*at, kind, |table| table.allocatable) >= *size))
            .collect();
        let fewest = could.iter().map(|at| at.count()).min().unwrap_or(all.count());
        let can = could.into_iter().filter(|at| {
            let again = |kind: &str| reusable.get(at).and_then(|amounts| amounts.get(kind)).copied().unwrap_or(0);
            let is_free =
                |(kind, size): (&String, &u64)| sum(*at, kind, |table| table.free).saturating_add(again(kind)) >= *size;
            !breaks_groups(machine, *at, true) && wanted.iter().all(is_free)
        });
        topology_hints(can, fewest)
    }

    pub(super) fn container_hints(
        &self,
        state: &MemoryState,
        of: &Pod,
        container: &Container,
        again: &Reusable,
    ) -> Hints {
        let wanted = amounts(of, container);
        if wanted.is_empty() {
            return Hints::new();
        }
        match state.of(pod::uid(of), &container.name) {
            Some(known) => known_places(known, &wanted),
            None => by_kind(&wanted, &Self::places(&state.machine, again, &wanted)),
        }
    }

    pub(super) fn pod_hints(&self, state: &MemoryState, of: &Pod) -> Hints {
        let wanted = amounts_of_pod(of);
        if wanted.is_empty() {
            return Hints::new();
        }
        let mut all = pod::init_containers(of).iter().chain(pod::containers(of));
        match all.find_map(|container| state.of(pod::uid(of), &container.name)) {
            Some(known) => known_places(known, &wanted),
            None => by_kind(&wanted, &Self::places(&state.machine, &Reusable::new(), &wanted)),
        }
    }

    /// Gives a container its memory, at these nodes if they have enough. Whether it has any of its own.
    pub(super) fn allocate(
        &self,
        state: &mut MemoryState,
        of: &Pod,
        container: &Container,
        at: Hint,
        reusable: &mut Reusable,
    ) -> Result<bool, String> {
        let wanted = amounts(of, container);
        if wanted.is_empty() {
            return Ok(false);
        }
        let is_init = matches!(pod::container(of, &container.name), Some((pod::Role::Init, _)));
        if let Some(known) = state.of(pod::uid(of), &container.name) {
            use_again(reusable, known, is_init);
            return Ok(true);
        }
        let nodes = choose(&state.machine, reusable, &wanted, at)?;
        let ids: Vec<u32> = nodes.nodes().collect();
        let block =
            |(kind, size): (&String, &u64)| Block { numa_affinity: ids.clone(), kind: kind.clone(), size: *size };
        let blocks: Vec<Block> = wanted.iter().map(block).collect();
        for block in &blocks {
            let again = reusable.get(&nodes).and_then(|amounts| amounts.get(&block.kind)).copied().unwrap_or(0);
            state::take(&mut state.machine, &ids, &block.kind, block.size.saturating_sub(again));
        }
        use_again(reusable, &blocks, is_init);
        take_over(state, of, container, &blocks);
        let of_pod = state.assigned.entry(pod::uid(of).to_owned()).or_default();
        of_pod.insert(container.name.clone(), blocks);
        Ok(true)
    }

    /// Gives back whatever a pod has. Whether it had anything.
    pub(super) fn release(state: &mut MemoryState, uid: &str) -> bool {
        let Some(containers) = state.assigned.remove(uid) else { return false };
        containers.values().flatten().for_each(|block| state::put(&mut state.machine, block));
        true
    }
}

/// A node gives memory alone or in one group. Whether that would end here; `alone` is whether a node of a group may not give
/// memory alone.
fn breaks_groups(machine: &MachineState, at: NumaMask, alone: bool) -> bool {
    let mut nodes = at.nodes().filter_map(|id| machine.get(&id));
    match at.count() {
        1 => alone && nodes.any(|node| node.cells.len() > 1),
        _ => nodes.any(|node| node.number_of_assignments > 0 && (node.cells.len() == 1 || node.group() != at)),
    }
}

/// The nodes for a container: those that are wanted, or more where they have not enough.
fn choose(machine: &MachineState, reusable: &Reusable, wanted: &Amounts, at: Hint) -> Result<NumaMask, String> {
    let places = || StaticPolicy::places(machine, reusable, wanted).into_iter();
    let (mut nodes, preferred) = match at.nodes {
        Some(nodes) => (nodes, at.preferred),
        None => narrowest(places()).ok_or(
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
        )?,
    };
    if at.preferred && !preferred {
        return Err("[memorymanager] failed to find the default preferred hint".to_owned());
    }
    let free = |kind: &str| {
        let tables = nodes.nodes().filter_map(|id| machine.get(&id)?.memory_map.get(kind));
        tables.fold(0, |sum: u64, table| sum.saturating_add(table.free))
    };
    if wanted.iter().any(|(kind, size)| free(kind) < *size) {
        let wider = places().filter(|hint| hint.nodes.is_some_and(|wider| nodes.is_within(wider)));
        let wider = narrowest(wider);
        let (found, fewest) =
            wider.ok_or("[memorymanager] failed to find NUMA nodes to extend the current topology hint")?;
        if preferred && !fewest {
            return Err("[memorymanager] failed to find the extended preferred hint".to_owned());
        }
        nodes = found;
    }
    if breaks_groups(machine, nodes, false) {
        return Err("[memorymanager] preferred hint violates NUMA node allocation".to_owned());
    }
    Ok(nodes)
}

/// What is preferred, of that the fewest nodes.
fn narrowest(hints: impl Iterator<Item = Hint>) -> Option<(NumaMask, bool)> {
    let known = hints.filter_map(|hint| Some((hint.nodes?, hint.preferred)));
    known.reduce(|best, other| match (best.1, other.1) {
        (true, false) => best,
        (false, true) => other,
        _ if other.0.is_narrower_than(best.0) => other,
        _ => best,
    })
}

/// All kinds of memory come from the same nodes.
fn by_kind(wanted: &Amounts, places: &[Hint]) -> Hints {
    let kinds = wanted.keys().filter(|_| !places.is_empty());
    kinds.map(|kind| (kind.clone(), Some(places.to_vec()))).collect()
}

/// Where what was given is; without preference if something else is wanted now.
fn known_places(known: &[Block], wanted: &Amounts) -> Hints {
    if known.len() != wanted.len() || known.iter().any(|block| wanted.get(&block.kind) != Some(&block.size)) {
        return Hints::new();
    }
    let at = |block: &Block| Hint { nodes: Some(block.nodes()), preferred: true };
    known.iter().map(|block| (block.kind.clone(), Some(vec![at(block)]))).collect()
}

/// What init containers have is used by those after them.
fn use_again(reusable: &mut Reusable, blocks: &[Block], is_init: bool) {
    for block in blocks {
        if is_init {
            let known = reusable.entry(block.nodes()).or_default().entry(block.kind.clone()).or_default();
            *known = block.size.max(*known);
        } else if let Some(known) = reusable.get_mut(&block.nodes()).and_then(|of| of.get_mut(&block.kind)) {
            *known = known.saturating_sub(block.size);
        }
    }
}

/// Memory that a container takes over from init containers before it counts as its own from now on, so that the sum is what the
/// pod has.
fn take_over(state: &mut MemoryState, of: &Pod, container: &Container, blocks: &[Block]) {
    let Some(assigned) = state.assigned.get_mut(pod::uid(of)) else { return };
    for block in blocks {
        let mut wanted = block.size;
        let before = pod::init_containers(of).iter().take_while(|init| init.name != container.name);
        for init in before.filter(|init| !pod::is_sidecar(init)) {
            let theirs = assigned.get_mut(&init.name).into_iter().flatten();
            for other in theirs.filter(|other| other.kind == block.kind && other.nodes() == block.nodes()) {
                let part = other.size.min(wanted);
                (other.size, wanted) = (other.size - part, wanted - part);
            }
        }
    }
}

/// Whether two states tell of the same machine with as much given out. Of a group, it does not matter which node gave what.
fn are_equal(one: &MachineState, other: &MachineState) -> bool {
    let sum = |machine: &MachineState, group: NumaMask, kind: &str| {
        let tables = group.nodes().filter_map(|id| machine.get(&id)?.memory_map.get(kind));
        tables
            .fold((0_u64, 0_u64), |sum, table| (sum.0.saturating_add(table.free), sum.1.saturating_add(table.reserved)))
    };
    let fixed = |table: &MemoryTable| (table.total, table.system_reserved, table.allocatable);
    one.len() == other.len()
        && one.iter().all(|(id, node)| {
            other.get(id).is_some_and(|same| {
                node.number_of_assignments == same.number_of_assignments
                    && node.group() == same.group()
                    && node.memory_map.len() == same.memory_map.len()
                    && node.memory_map.iter().all(|(kind, table)| {
                        same.memory_map.get(kind).is_some_and(|twin| fixed(table) == fixed(twin))
                            && sum(one, node.group(), kind) == sum(other, node.group(), kind)
                    })
            })
        })
}

/// What a container is to have of its own: containers of Guaranteed pods all of their memory. A pod with resources of the whole
/// pod shares, as upstream has it.
fn amounts(of: &Pod, container: &Container) -> Amounts {
    if pod::qos_class(of) != "Guaranteed" || pod::has_pod_resources(of) {
        return Amounts::new();
    }
    let resources = container.resources.as_ref();
    let lists = resources.into_iter().flat_map(|all| [all.limits.as_ref(), all.requests.as_ref()]).flatten();
    let of_memory = lists.flatten().filter(|(kind, _)| *kind == MEMORY || kind.starts_with("hugepages-"));
    let sizes = of_memory.filter_map(|(kind, size)| Some((kind.clone(), u64::try_from(quantity::value(size)?).ok()?)));
    sizes.collect()
}

/// What the containers of a pod have at the same time.
fn amounts_of_pod(of: &Pod) -> Amounts {
    let add = |to: &mut Amounts, container: &Container| {
        for (kind, size) in amounts(of, container) {
            let known = to.entry(kind).or_default();
            *known = known.saturating_add(size);
        }
    };
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in pod::init_containers(of) {
        if pod::is_sidecar(container) {
            add(&mut sidecars, container);
            continue;
        }
        let mut now = sidecars.clone();
        add(&mut now, container);
        for (kind, size) in now {
            let known = most.entry(kind).or_default();
            *known = size.max(*known);
        }
    }
    let mut apps = Amounts::new();
    pod::containers(of).iter().for_each(|container| add(&mut apps, container));
    // Kinds that only init containers have do not count, as upstream has it.
    let total = |kind: &String, size: u64| {
        let running = size.saturating_add(sidecars.get(kind).copied().unwrap_or(0));
        running.max(most.get(kind).copied().unwrap_or(0))
    };
    apps.iter().map(|(kind, size)| (kind.clone(), total(kind, *size))).collect()
}

#[cfg(test)]
mod tests;

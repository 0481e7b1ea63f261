//! How much memory of which NUMA node is given out, and to whom. Fields are named as upstream's checkpoint has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::topology_manager::NumaMask;

/// Memory of one kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryTable {
    pub(crate) total: u64,
    pub(crate) system_reserved: u64,
    pub(crate) allocatable: u64,
    /// Given out.
    pub(crate) reserved: u64,
    pub(crate) free: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeState {
    /// A container counts once for each kind of memory.
    pub(crate) number_of_assignments: i64,
    pub(crate) memory_map: BTreeMap<String, MemoryTable>,
    /// The nodes that give memory together with this one, and itself.
    pub(crate) cells: Vec<u32>,
}

impl NodeState {
    pub(super) fn group(&self) -> NumaMask {
        self.cells.iter().copied().collect()
    }
}

/// By NUMA node.
pub(crate) type MachineState = BTreeMap<u32, NodeState>;

/// What a container has of a kind of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Block {
    pub(crate) numa_affinity: Vec<u32>,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) size: u64,
}

impl Block {
    pub(super) fn nodes(&self) -> NumaMask {
        self.numa_affinity.iter().copied().collect()
    }
}

/// By pod uid and container.
pub(crate) type Assignments = BTreeMap<String, BTreeMap<String, Vec<Block>>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryState {
    pub(crate) machine: MachineState,
    pub(crate) assigned: Assignments,
}

impl MemoryState {
    pub(crate) fn of(&self, uid: &str, container: &str) -> Option<&Vec<Block>> {
        self.assigned.get(uid)?.get(container)
    }
}

/// Takes memory from nodes, from the first one first. False where a node, or its memory of this kind, does not exist.
pub(super) fn take(machine: &mut MachineState, nodes: &[u32], kind: &str, size: u64) -> bool {
    let mut wanted = size;
    for id in nodes {
        let Some(node) = machine.get_mut(id) else { return false };
        node.number_of_assignments += 1;
        node.cells = nodes.to_vec();
        let Some(table) = node.memory_map.get_mut(kind) else { return false };
        let part = table.free.min(wanted);
        (table.free, table.reserved, wanted) = (table.free - part, table.reserved + part, wanted - part);
    }
    true
}

/// Gives the memory of a block back.
pub(super) fn put(machine: &mut MachineState, block: &Block) {
    let mut left = block.size;
    for id in &block.numa_affinity {
        let Some(node) = machine.get_mut(id) else { continue };
        node.number_of_assignments -= 1;
        if node.number_of_assignments == 0 {
            node.cells = vec![*id];
        }
        let Some(table) = node.memory_map.get_mut(&block.kind) else { continue };
        let part = table.reserved.min(left);
        (table.free, table.reserved, left) = (table.free + part, table.reserved - part, left - part);
    }
}

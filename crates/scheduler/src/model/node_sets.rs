//! Which nodes meet a requirement, remembered per distinct requirement: pods of one workload share it.

use std::collections::HashMap;
use std::sync::Arc;

use super::labels::NodeRequirement;
use super::node::NodeInfo;

/// Requirements beyond this number push out those not asked for the longest.
const MOST: usize = 256;

/// A set of slots.
#[derive(Clone, Debug, Default)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    pub fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn set(&mut self, slot: u32, present: bool) {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if present {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }
}

#[derive(Debug, Default)]
pub struct NodeSets {
    known: HashMap<Arc<NodeRequirement>, (Arc<NodeSet>, u64)>,
    clock: u64,
}

impl NodeSets {
    pub fn of<'a>(
        &mut self,
        requirement: &Arc<NodeRequirement>,
        nodes: impl Iterator<Item = &'a NodeInfo>,
    ) -> Arc<NodeSet> {
        self.clock += 1;
        if let Some((set, used)) = self.known.get_mut(requirement) {
            *used = self.clock;
            return set.clone();
        }
        if self.known.len() >= MOST
            && let Some(oldest) = self.known.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())
        {
            self.known.remove(&oldest);
        }
        let mut set = NodeSet::default();
        for node in nodes {
            set.set(node.slot, requirement.matches(&node.name, &node.labels));
        }
        let set = Arc::new(set);
        self.known.insert(requirement.clone(), (set.clone(), self.clock));
        set
    }

    /// A node came or changed its labels.
    pub fn update(&mut self, node: &NodeInfo) {
        for (requirement, (set, _)) in &mut self.known {
            Arc::make_mut(set).set(node.slot, requirement.matches(&node.name, &node.labels));
        }
    }
}

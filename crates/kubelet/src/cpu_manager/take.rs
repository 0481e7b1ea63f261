//! Which CPUs are taken of those that are free: as few sockets, NUMA nodes, caches and cores as possible.

use std::collections::BTreeMap;

use super::CpuSet;
use super::topology::{Level, Topology};

/// How CPUs are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// One thread of each core before the second of any.
    pub(crate) across_cores: bool,
    /// As few caches as possible.
    pub(crate) by_cache: bool,
}

/// So many of those that are available.
pub(crate) fn take(topology: &Topology, available: &CpuSet, count: usize, manner: Manner) -> Result<CpuSet, String> {
    let mut taking = Taking {
        topology,
        free: available.common(&topology.all()),
        taken: CpuSet::default(),
        wanted: count,
        outer: if topology.count(Level::Socket) >= topology.count(Level::Node) {
            [Level::Node, Level::Socket]
        } else {
            [Level::Socket, Level::Node]
        },
    };
    if count > taking.free.len() {
        let available = available.len();
        return Err(format!("not enough cpus available to satisfy request: requested={count}, available={available}"));
    }
    for level in taking.outer {
        taking.take_whole(&taking.ordered(level));
    }
    if manner.by_cache {
        taking.take_caches();
    }
    if !manner.across_cores {
        taking.take_whole(&taking.ordered(Level::Core));
    }
    let rest = if manner.across_cores { taking.ordered(Level::Socket) } else { taking.ordered(Level::Core) };
    let rest: Vec<u32> = rest.iter().flat_map(|(_, _, cpus)| cpus.iter()).take(taking.wanted).collect();
    taking.take(&rest.into_iter().collect());
    Ok(taking.taken)
}

/// A group by its level and number, and what is free of it.
type Group = (Level, u32, CpuSet);

struct Taking<'a> {
    topology: &'a Topology,
    free: CpuSet,
    taken: CpuSet,
    wanted: usize,
    /// The wider one first.
    outer: [Level; 2],
}

impl Taking<'_> {
    /// The groups of a level within those of the wider ones. Everywhere the ones with the least that is free come first: what
    /// is broken into already is used up before what is whole.
    fn ordered(&self, level: Level) -> Vec<Group> {
        let [wide, narrow] = self.outer;
        let way = match level {
            level if level == wide => vec![wide],
            level if level == narrow => vec![wide, narrow],
            Level::Cache if wide == Level::Node => vec![wide, Level::Cache],
            level => vec![wide, narrow, level],
        };
        let mut found = vec![(level, 0, self.free.clone())];
        for level in way {
            found = found.iter().flat_map(|(_, _, cpus)| self.sorted(level, cpus)).collect();
        }
        found
    }

    fn sorted(&self, level: Level, among: &CpuSet) -> Vec<Group> {
        let groups = self.topology.groups(level, among);
        let mut groups: Vec<Group> = groups.into_iter().map(|(id, cpus)| (level, id, cpus)).collect();
        groups.sort_by_key(|(_, id, cpus)| (cpus.len(), *id));
        groups
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.wanted = self.wanted.saturating_sub(cpus.len());
        self.free = self.free.minus(cpus);
        self.taken = self.taken.union(cpus);
    }

    /// Those that are all free and not too large.
    fn take_whole(&mut self, groups: &[Group]) {
        for (level, id, cpus) in groups {
            let is_whole = cpus.len() == self.topology.group(*level, *id).len();
            if is_whole && self.wanted >= cpus.len() && self.wanted > 0 {
                self.take(cpus);
            }
        }
    }

    /// Whole caches as long as one is wanted, then a part of the first one in which all the rest has room.
    fn take_caches(&mut self) {
        let caches = self.ordered(Level::Cache);
        self.take_whole(&caches);
        for (_, id, _) in caches {
            if self.wanted == 0 {
                return;
            }
            let threads = self.topology.per(Level::Core).max(1);
            let inside = self.free.common(&self.topology.group(Level::Cache, id));
            let cores: BTreeMap<u32, CpuSet> = self.topology.groups(Level::Core, &inside);
            let wanted = cores.into_values().take(self.wanted.div_ceil(threads));
            let mut cpus: Vec<u32> = wanted.flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
            // Of an odd number, the last core gives one thread.
            if !self.wanted.is_multiple_of(2) && threads > 1 && cpus.len() > self.wanted {
                cpus.pop();
            }
            if cpus.len() == self.wanted {
                self.take(&cpus.into_iter().collect());
            }
        }
    }
}

#[cfg(test)]
mod tests;

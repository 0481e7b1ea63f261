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
mod tests {
    use super::super::topology::machines;
    use super::*;

    const PACKED: Manner = Manner { across_cores: false, by_cache: false };

    fn check(topology: &Topology, available: &str, count: usize, manner: Manner, want: Result<&str, &str>) {
        let free = CpuSet::parse(available).expect("a set");
        let got = take(topology, &free, count, manner).map(|cpus| cpus.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{count} of {available}");
    }

    #[test]
    fn few_cores_sockets_and_nodes_are_taken() {
        let small = machines::small();
        check(&small, "0-1", 0, PACKED, Ok(""));
        check(&small, "0-1", 1, PACKED, Ok("0"));
        check(&small, "1", 1, PACKED, Ok("1"));
        check(&small, "0-1", 2, PACKED, Ok("0-1"));
        let lack = "not enough cpus available to satisfy request: requested=3, available=2";
        check(&small, "0-1", 3, PACKED, Err(lack));

        let two = machines::two_sockets();
        check(&two, "0-15", 2, PACKED, Ok("0,8"));
        check(&two, "0-15", 3, PACKED, Ok("0-1,8"));
        check(&two, "0-15", 8, PACKED, Ok("0-3,8-11"));
        check(&two, "0-15", 10, PACKED, Ok("0-4,8-12"));
        // The socket that is broken into already.
        check(&two, "0-7,9-15", 2, PACKED, Ok("1,9"));
        check(&two, "0-7,9-15", 1, PACKED, Ok("0"));
        // A whole one for eight, although others have a lower number.
        check(&two, "1-15", 8, PACKED, Ok("4-7,12-15"));
        // Threads of broken cores last.
        check(&two, "0-3,8", 2, PACKED, Ok("0,8"));
        check(&two, "0-3", 2, PACKED, Ok("0-1"));

        let four = machines::four_nodes();
        check(&four, "0-15", 4, PACKED, Ok("0-3"));
        check(&four, "2-15", 4, PACKED, Ok("4-7"));
        check(&four, "2-15", 2, PACKED, Ok("2-3"));
        check(&four, "0-15", 16, PACKED, Ok("0-15"));

        let uneven = machines::uneven();
        check(&uneven, "0-7", 2, PACKED, Ok("6-7"));
        check(&uneven, "0-7", 3, PACKED, Ok("0,6-7"));
        check(&uneven, "0-7", 6, PACKED, Ok("0-3,6-7"));
        check(&uneven, "0-6", 6, PACKED, Ok("0-5"));
    }

    #[test]
    fn threads_are_spread_over_cores_where_that_is_wanted() {
        let across = Manner { across_cores: true, by_cache: false };
        let two = machines::two_sockets();
        check(&two, "0-15", 2, across, Ok("0-1"));
        check(&two, "0-15", 5, across, Ok("0-3,8"));
        check(&two, "0-15", 8, across, Ok("0-3,8-11"));
        check(&machines::small(), "0-1", 1, across, Ok("0"));
    }

    #[test]
    fn few_caches_are_taken_where_that_is_wanted() {
        let by_cache = Manner { across_cores: false, by_cache: true };
        let two = machines::two_caches();
        check(&two, "0-15", 8, by_cache, Ok("0-7"));
        check(&two, "0-15", 10, by_cache, Ok("0-9"));
        check(&two, "0-15", 3, by_cache, Ok("0-2"));
        // Six are behind the second cache only, where without the wish the broken core would come first.
        check(&two, "4-15", 6, by_cache, Ok("8-13"));
        check(&two, "4-15", 6, PACKED, Ok("4-9"));
        // Behind no cache is enough: as without the wish.
        check(&two, "4-7,12-15", 6, by_cache, Ok("4-7,12-13"));
    }
}

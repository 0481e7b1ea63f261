//! How the machine's CPUs lie: in cores, behind caches, in sockets, at NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::CpuSet;

/// Where one CPU is. A core and a cache are named by the lowest CPU that is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuLocation {
    pub(crate) node: u32,
    pub(crate) socket: u32,
    pub(crate) cache: u32,
    pub(crate) core: u32,
}

/// What CPUs are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Node,
    Socket,
    Cache,
    Core,
}

impl CpuLocation {
    fn at(&self, level: Level) -> u32 {
        match level {
            Level::Node => self.node,
            Level::Socket => self.socket,
            Level::Cache => self.cache,
            Level::Core => self.core,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology(BTreeMap<u32, CpuLocation>);

impl Topology {
    /// The CPUs that are on, as `/sys` tells of them.
    pub(crate) fn read(sys: &Path) -> Result<Self, String> {
        let folder = sys.join("devices/system/cpu");
        let list = |path: &Path| fs::read_to_string(path).ok().and_then(|text| CpuSet::parse(&text).ok());
        let path = folder.join("online");
        let online = list(&path).filter(|online| !online.is_empty());
        let online = online.ok_or_else(|| format!("could not detect number of cpus: {}", path.display()))?;
        let nodes = nodes(sys);
        let lowest =
            |set: Option<CpuSet>, cpu: u32| set.and_then(|set| set.common(&online).iter().next()).unwrap_or(cpu);
        let place = |cpu: u32| {
            let own = folder.join(format!("cpu{cpu}"));
            let number = |file: &str| fs::read_to_string(own.join(file)).ok()?.trim().parse::<u32>().ok();
            let socket = number("topology/physical_package_id").unwrap_or(0);
            let siblings = list(&own.join("topology/core_cpus_list"));
            let siblings = siblings.or_else(|| list(&own.join("topology/thread_siblings_list")));
            let caches = (0..8).map(|index| own.join(format!("cache/index{index}")));
            let shared = caches
                .filter(|cache| fs::read_to_string(cache.join("level")).is_ok_and(|level| level.trim() == "3"))
                .find_map(|cache| list(&cache.join("shared_cpu_list")));
            let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map_or(0, |(node, _)| *node);
            (CpuLocation { node, socket, cache: 0, core: lowest(siblings, cpu) }, shared)
        };
        let mut found: BTreeMap<u32, (CpuLocation, Option<CpuSet>)> =
            online.iter().map(|cpu| (cpu, place(cpu))).collect();
        // Without a cache that is told of, a socket is as good as one.
        let mut first_of: BTreeMap<u32, u32> = BTreeMap::new();
        for (cpu, (place, shared)) in &mut found {
            let first = *first_of.entry(place.socket).or_insert(*cpu);
            place.cache = shared.take().map_or(first, |set| lowest(Some(set), *cpu));
        }
        Ok(Self(found.into_iter().map(|(cpu, (place, _))| (cpu, place)).collect()))
    }

    #[cfg(test)]
    pub(crate) fn of(cpus: impl IntoIterator<Item = (u32, CpuLocation)>) -> Self {
        Self(cpus.into_iter().collect())
    }

    pub(crate) fn all(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    /// The groups of a level that have any of the CPUs, with those they have.
    pub(crate) fn groups(&self, level: Level, among: &CpuSet) -> BTreeMap<u32, CpuSet> {
        let mut groups: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (cpu, place) in self.0.iter().filter(|(cpu, _)| among.contains(**cpu)) {
            groups.entry(place.at(level)).or_default().insert(*cpu);
        }
        groups
    }

    /// All CPUs of one group.
    pub(crate) fn group(&self, level: Level, id: u32) -> CpuSet {
        self.0.iter().filter(|(_, place)| place.at(level) == id).map(|(cpu, _)| *cpu).collect()
    }

    pub(crate) fn count(&self, level: Level) -> usize {
        self.0.values().map(|place| place.at(level)).collect::<BTreeSet<u32>>().len()
    }

    /// As many as a group of the level has, on average.
    pub(crate) fn per(&self, level: Level) -> usize {
        self.0.len().checked_div(self.count(level)).unwrap_or(0)
    }

    /// All CPUs that share a group of the level with one of these.
    pub(crate) fn widened(&self, level: Level, cpus: &CpuSet) -> CpuSet {
        let ids = self.groups(level, cpus);
        self.0.iter().filter(|(_, place)| ids.contains_key(&place.at(level))).map(|(cpu, _)| *cpu).collect()
    }
}

/// The NUMA nodes with their CPUs.
pub(crate) fn nodes(sys: &Path) -> BTreeMap<u32, CpuSet> {
    let entries = fs::read_dir(sys.join("devices/system/node")).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some((number, CpuSet::parse(&cpus).ok()?))
    });
    found.collect()
}

#[cfg(test)]
pub(crate) mod machines;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_is_read_from_sys() {
        let sys = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = sys.path().join("devices/system").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        assert!(Topology::read(sys.path()).is_err_and(|why| why.starts_with("could not detect number of cpus")));
        // CPU 3 is off: its sibling 1 is alone.
        write("cpu/online", "0-2,4\n");
        for (cpu, siblings, socket) in [(0, "0,2", 0), (1, "1,3", 0), (2, "0,2", 0), (4, "4", 1)] {
            write(&format!("cpu/cpu{cpu}/topology/core_cpus_list"), siblings);
            write(&format!("cpu/cpu{cpu}/topology/physical_package_id"), &format!("{socket}\n"));
        }
        write("cpu/cpu1/cache/index3/level", "3\n");
        write("cpu/cpu1/cache/index3/shared_cpu_list", "1,3\n");
        write("node/node0/cpulist", "0-3\n");
        write("node/node1/cpulist", "4\n");
        write("node/possible", "0-1\n");
        let topology = Topology::read(sys.path()).expect("read");
        let place = |node, socket, cache, core| CpuLocation { node, socket, cache, core };
        let want = [(0, place(0, 0, 0, 0)), (1, place(0, 0, 1, 1)), (2, place(0, 0, 0, 0)), (4, place(1, 1, 4, 4))];
        assert_eq!(topology, Topology::of(want));
        assert_eq!(topology.widened(Level::Core, &CpuSet::parse("2").expect("a set")).to_string(), "0,2");
        assert_eq!((topology.count(Level::Core), topology.per(Level::Core)), (3, 1));
    }

    #[test]
    fn the_machine_of_the_test_has_a_topology() {
        let topology = Topology::read(Path::new("/sys")).expect("read");
        assert!(!topology.all().is_empty() && topology.per(Level::Core) >= 1, "{topology:?}");
    }
}

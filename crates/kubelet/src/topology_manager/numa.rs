//! The NUMA nodes of the machine.

use std::fs;
use std::path::Path;

use super::mask::NumaMask;
use crate::node::capacity::{self, HugePages};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumaNode {
    pub(crate) id: u32,
    /// In bytes, with its huge pages.
    pub(crate) memory: u64,
    pub(crate) huge_pages: Vec<HugePages>,
    /// To each node of the machine, in the order of their numbers.
    pub(crate) distances: Vec<u64>,
}

/// In the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numa(Vec<NumaNode>);

impl Numa {
    /// As `/sys` tells of them. A kernel that knows no nodes is one node.
    pub(crate) fn read(sys: &Path) -> Self {
        let entries = fs::read_dir(sys.join("devices/system/node")).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let id = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let text = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            Some(NumaNode {
                id,
                memory: total(&text("meminfo")),
                huge_pages: capacity::huge_pages_in(&entry.path().join("hugepages")),
                distances: text("distance").split_whitespace().filter_map(|word| word.parse().ok()).collect(),
            })
        });
        let found: Vec<NumaNode> = found.collect();
        if !found.is_empty() {
            return Self::of(found);
        }
        let (memory, huge_pages) = (capacity::memory("MemTotal"), capacity::huge_pages());
        Self(vec![NumaNode { id: 0, memory, huge_pages, distances: Vec::new() }])
    }

    pub(crate) fn of(mut nodes: Vec<NumaNode>) -> Self {
        nodes.sort_by_key(|node| node.id);
        Self(nodes)
    }

    pub(crate) fn nodes(&self) -> &[NumaNode] {
        &self.0
    }

    pub(crate) fn all(&self) -> NumaMask {
        self.0.iter().map(|node| node.id).collect()
    }

    /// On average, between all of the nodes.
    pub(super) fn distance(&self, within: NumaMask) -> f64 {
        let place = |id: u32| self.0.iter().position(|node| node.id == id);
        let between = |one: u32, other: u32| {
            let distance = place(one).and_then(|one| self.0[one].distances.get(place(other)?));
            distance.copied().unwrap_or(0) as f64
        };
        let pairs = within.nodes().flat_map(|one| within.nodes().map(move |other| (one, other)));
        let sum: f64 = pairs.map(|(one, other)| between(one, other)).sum();
        sum / ((within.count() * within.count()).max(1) as f64)
    }
}

/// Of a line `Node 0 MemTotal:  24684092 kB`.
fn total(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
    let kibibytes = line.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_sys() {
        let sys = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = sys.path().join("devices/system/node").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        for (node, distances) in [("node0", "10 21\n"), ("node2", "31 10\n")] {
            write(&format!("{node}/meminfo"), "\nNode 0 MemTotal:       2048 kB\nNode 0 MemFree:  1 kB\n");
            write(&format!("{node}/distance"), distances);
            write(&format!("{node}/hugepages/hugepages-2048kB/nr_hugepages"), "3\n");
        }
        write("possible", "0-2\n");
        let numa = Numa::read(sys.path());
        let ids: Vec<u32> = numa.nodes().iter().map(|node| node.id).collect();
        assert_eq!((ids, numa.nodes()[1].memory), (vec![0, 2], 2 << 20));
        assert_eq!(numa.nodes()[0].huge_pages, [HugePages { size: 2 << 20, count: 3 }]);
        assert_eq!((numa.distance(numa.all()), numa.distance([2].into_iter().collect())), (18.0, 10.0));
        // This machine is one, too.
        assert!(Numa::read(Path::new("/sys")).nodes().iter().any(|node| node.memory > 0));
        assert_eq!(Numa::read(Path::new("/does/not/exist")).all(), [0].into_iter().collect());
    }
}

//! Machines that no test runs on.

use super::*;

fn machine(cpus: &[(u32, [u32; 4])]) -> Topology {
    let places = cpus.iter().map(|(cpu, [node, socket, cache, core])| {
        (*cpu, CpuLocation { node: *node, socket: *socket, cache: *cache, core: *core })
    });
    Topology::of(places)
}

/// One socket of two cores without threads.
pub(crate) fn small() -> Topology {
    machine(&[(0, [0, 0, 0, 0]), (1, [0, 0, 0, 1])])
}

/// Two sockets, each a NUMA node of four cores with two threads; the second threads are numbered from 8.
pub(crate) fn two_sockets() -> Topology {
    let of = |cpu: u32| {
        let (core, socket) = (cpu % 8, u32::from(cpu % 8 >= 4));
        (cpu, CpuLocation { node: socket, socket, cache: socket * 4, core })
    };
    Topology::of((0..16).map(of))
}

/// One socket of four NUMA nodes, of two cores with two threads each.
pub(crate) fn four_nodes() -> Topology {
    let of = |cpu: u32| (cpu, CpuLocation { node: cpu / 4, socket: 0, cache: cpu / 4 * 4, core: cpu / 2 * 2 });
    Topology::of((0..16).map(of))
}

/// NUMA nodes of six and of two CPUs, one socket each, without threads.
pub(crate) fn uneven() -> Topology {
    let of = |cpu: u32| {
        let node = u32::from(cpu >= 6);
        (cpu, CpuLocation { node, socket: node, cache: node * 6, core: cpu })
    };
    Topology::of((0..8).map(of))
}

/// One socket and NUMA node of eight cores with two threads, behind two caches.
pub(crate) fn two_caches() -> Topology {
    let of = |cpu: u32| (cpu, CpuLocation { node: 0, socket: 0, cache: cpu / 8 * 8, core: cpu / 2 * 2 });
    Topology::of((0..16).map(of))
}

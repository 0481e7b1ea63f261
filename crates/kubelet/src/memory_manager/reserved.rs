//! Memory that the system and the kubelet keep, by NUMA node.

use std::collections::{BTreeMap, BTreeSet};

use ferry_meta::quantity::Quantity;

use super::policy::MEMORY;
use crate::node::capacity;
use crate::topology_manager::numa::Numa;

/// In bytes, by kind of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryReservation {
    pub(crate) numa_node: u32,
    pub(crate) limits: BTreeMap<String, u64>,
    /// As it was written.
    pub(crate) given: BTreeMap<String, String>,
}

/// `none` leaves memory to the kernel; `static` gives it out by NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemoryManagerPolicy {
    #[default]
    None,
    Static,
}

impl MemoryManagerPolicy {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "None" => Ok(Self::None),
            "Static" => Ok(Self::Static),
            "BestEffort" => Err("policy \"BestEffort\" is not available for platform \"linux\"".to_owned()),
            _ => Err(format!("unknown policy: {name:?}")),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Static => "Static",
        }
    }
}

/// Reads what was said of each node.
pub(crate) fn parse(given: &[(i64, BTreeMap<String, String>)]) -> Result<Vec<MemoryReservation>, String> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for (node, limits) in given {
        let numa_node = u32::try_from(*node).map_err(|_| {
            format!(
                "the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
            )
        })?;
        let mut reservation = MemoryReservation { numa_node, limits: BTreeMap::new(), given: limits.clone() };
        for (kind, text) in limits {
            if kind != MEMORY && !kind.starts_with("hugepages-") {
                return Err(format!(
                    "invalid configuration: the limit type {kind:?} for NUMA node {node} is not supported, only [memory \
                     hugepages-<HugePageSize>] is accepted"
                ));
            }
            let size = Quantity::parse(text)
                .map_err(|why| format!("failed to parse quantity {text:?} for {kind:?} resource: {why}"))?;
            let size = u64::try_from(size.value())
                .map_err(|_| format!("resource quantity for {kind:?} cannot be negative: {text}"))?;
            if size == 0 {
                return Err(format!(
                    "invalid configuration: reserved memory may not be zero for NUMA node {node} and resource {kind:?}"
                ));
            }
            if !known.insert((numa_node, kind.clone())) {
                return Err(format!(
                    "invalid configuration: the reserved memory has a duplicate value for NUMA node {node} and resource \
                     {kind:?}"
                ));
            }
            reservation.limits.insert(kind.clone(), size);
        }
        found.push(reservation);
    }
    Ok(found)
}

/// What is reserved at the nodes has to be what is kept of the machine: `kept` bytes of memory, and no huge pages.
pub(super) fn check(reserved: &[MemoryReservation], numa: &Numa, kept: u64) -> Result<(), String> {
    let exists = |one: &&MemoryReservation| numa.nodes().iter().any(|node| node.id == one.numa_node);
    if let Some(other) = reserved.iter().find(|one| !exists(one)) {
        let node = other.numa_node;
        return Err(format!(
            "the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
        ));
    }
    let mut sums = BTreeMap::from([(MEMORY, 0_u64)]);
    for (kind, size) in reserved.iter().flat_map(|one| &one.limits) {
        let sum = sums.entry(kind).or_default();
        *sum = sum.saturating_add(*size);
    }
    for (kind, sum) in sums {
        let kept = if kind == MEMORY { kept } else { 0 };
        if sum != kept {
            return Err(format!(
                "the total amount {:?} of type {kind:?} is not equal to the value {:?} determined by Node Allocatable feature",
                capacity::binary(sum),
                capacity::binary(kept)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology_manager::numa::NumaNode;

    fn of(given: &[(i64, &[(&str, &str)])]) -> Result<Vec<MemoryReservation>, String> {
        let map = |limits: &[(&str, &str)]| limits.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        parse(&given.iter().map(|(node, limits)| (*node, map(limits))).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_kept_of_nodes_is_read() {
        let read =
            of(&[(0, &[("memory", "1Gi")]), (1, &[("memory", "24Mi"), ("hugepages-2Mi", "2Mi")])]).expect("read");
        assert_eq!((read[0].numa_node, read[0].limits[MEMORY], read[1].limits["hugepages-2Mi"]), (0, 1 << 30, 2 << 20));
        let check = |given: &[(i64, &[(&str, &str)])], want: &str| assert_eq!(of(given).expect_err("refused"), want);
        check(
            &[(0, &[("cpu", "1")])],
            "invalid configuration: the limit type \"cpu\" for NUMA node 0 is not supported, only [memory \
             hugepages-<HugePageSize>] is accepted",
        );
        check(
            &[(3, &[("memory", "0")])],
            "invalid configuration: reserved memory may not be zero for NUMA node 3 and resource \"memory\"",
        );
        check(
            &[(0, &[("memory", "1Gi")]), (0, &[("memory", "1Gi")])],
            "invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource \"memory\"",
        );
        check(&[(0, &[("memory", "-1")])], "resource quantity for \"memory\" cannot be negative: -1");
        assert!(of(&[(-1, &[])]).is_err() && of(&[(0, &[("memory", "x")])]).is_err());
    }

    #[test]
    fn what_is_kept_of_nodes_is_what_is_kept_of_the_machine() {
        let numa = Numa::of((0..2).map(|id| NumaNode { id, ..NumaNode::default() }).collect());
        let check = |given: &[(i64, &[(&str, &str)])], kept: u64, want: Result<(), &str>| {
            let got = check(&of(given).expect("read"), &numa, kept);
            assert_eq!(got.as_ref().copied().map_err(String::as_str), want);
        };
        check(&[(0, &[("memory", "1Gi")]), (1, &[("memory", "100Mi")])], 1124 << 20, Ok(()));
        check(
            &[(0, &[("memory", "1Gi")])],
            100 << 20,
            Err("the total amount \"1Gi\" of type \"memory\" is not equal to the value \"100Mi\" determined by Node \
                 Allocatable feature"),
        );
        check(
            &[],
            100 << 20,
            Err("the total amount \"0\" of type \"memory\" is not equal to the value \"100Mi\" determined by Node \
                 Allocatable feature"),
        );
        check(
            &[(2, &[("memory", "1Gi")])],
            1 << 30,
            Err("the reserved memory configuration references a NUMA node 2 that does not exist on this machine"),
        );
    }
}

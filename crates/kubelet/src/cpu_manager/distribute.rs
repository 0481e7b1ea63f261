//! CPUs evenly from as few NUMA nodes as can give them.

use std::collections::BTreeMap;

use super::CpuSet;
use super::take::{Manner, take};
use super::topology::{Level, Topology};

/// Of more, there are too many combinations to look at.
const MOST_NODES: usize = 8;

/// How CPUs are spread over NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// CPUs are given in groups of this size: those of a core together.
    pub(crate) group: usize,
    /// NUMA nodes of one socket rather than of several.
    pub(crate) by_socket: bool,
}

/// A choice of NUMA nodes: an even number of CPUs from each of them, the rest from some of them.
struct Choice {
    nodes: Vec<u32>,
    rest_from: Vec<u32>,
    each: usize,
    /// How unevenly what stays free is spread over the nodes of the machine.
    balance: f64,
    in_one_socket: bool,
}

pub(crate) fn distribute(
    topology: &Topology,
    available: &CpuSet,
    count: usize,
    manner: Manner,
    how: Distribution,
) -> Result<CpuSet, String> {
    // Only whole groups can be spread; caches are not looked at here.
    let plain = Manner { by_cache: false, ..manner };
    let group = how.group.max(1);
    let free = available.common(&topology.all());
    let nodes = topology.groups(Level::Node, &free);
    if !count.is_multiple_of(group) || count == 0 || count > free.len() || nodes.len() > MOST_NODES {
        return take(topology, available, count, plain);
    }
    let groups = count / group;
    let per_node = topology.all().len().div_ceil(group).div_ceil(topology.count(Level::Node).max(1)).max(1);
    for size in groups.div_ceil(per_node)..=groups.min(nodes.len()) {
        let mut best: Option<Choice> = None;
        for some in combinations(&ordered(topology, &free), size) {
            let Some(choice) = choice(topology, &nodes, &some, count, Distribution { group, ..how }) else { continue };
            let is_better = best.as_ref().is_none_or(|best| {
                if choice.in_one_socket == best.in_one_socket {
                    choice.balance < best.balance
                } else {
                    choice.in_one_socket
                }
            });
            if is_better {
                best = Some(choice);
            }
        }
        if let Some(best) = best {
            return give(topology, free, count, plain, group, &best);
        }
    }
    take(topology, available, count, plain)
}

/// The NUMA nodes, those with the least that is free first, within their sockets.
fn ordered(topology: &Topology, free: &CpuSet) -> Vec<u32> {
    let sorted = |level: Level, among: &CpuSet| {
        let mut groups: Vec<(u32, CpuSet)> = topology.groups(level, among).into_iter().collect();
        groups.sort_by_key(|(id, cpus)| (cpus.len(), *id));
        groups
    };
    let ids = |groups: Vec<(u32, CpuSet)>| groups.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    if topology.count(Level::Socket) >= topology.count(Level::Node) {
        return ids(sorted(Level::Node, free));
    }
    sorted(Level::Socket, free).into_iter().flat_map(|(_, cpus)| ids(sorted(Level::Node, &cpus))).collect()
}

fn combinations(of: &[u32], size: usize) -> Vec<Vec<u32>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        for mut rest in combinations(&of[at + 1..], size - 1) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

fn choice(
    topology: &Topology,
    nodes: &BTreeMap<u32, CpuSet>,
    some: &[u32],
    count: usize,
    how: Distribution,
) -> Option<Choice> {
    let Distribution { group, by_socket } = how;
    let has = |node: u32| nodes.get(&node).map_or(0, CpuSet::len);
    let whole = |node: u32| has(node) / group * group;
    if some.iter().map(|node| whole(*node)).sum::<usize>() < count {
        return None;
    }
    let mut each = count / some.len() / group * group;
    if by_socket {
        each = some.iter().map(|node| whole(*node)).min().unwrap_or(0).min(each);
    }
    if some.iter().any(|node| has(*node) < each) {
        return None;
    }
    let mut left: BTreeMap<u32, usize> = nodes.iter().map(|(node, cpus)| (*node, cpus.len())).collect();
    for node in some {
        *left.entry(*node).or_default() -= each;
    }
    let rest = count - each * some.len();
    let able: Vec<u32> =
        some.iter().copied().filter(|node| left.get(node).is_some_and(|left| *left >= group)).collect();
    let (balance, rest_from) =
        if rest == 0 { (deviation(&left), Vec::new()) } else { rest_of(&left, &able, rest, group)? };
    let sockets = some.iter().flat_map(|node| topology.groups(Level::Socket, &topology.group(Level::Node, *node)));
    let sockets: std::collections::BTreeSet<u32> = sockets.map(|(socket, _)| socket).collect();
    let in_one_socket = by_socket && sockets.len() <= 1;
    Some(Choice { nodes: some.to_vec(), rest_from, each, balance, in_one_socket })
}

/// From which nodes the rest is taken, so that what stays is the most even; of equals, from the most nodes.
fn rest_of(left: &BTreeMap<u32, usize>, able: &[u32], rest: usize, group: usize) -> Option<(f64, Vec<u32>)> {
    let mut best: Option<(f64, Vec<u32>)> = None;
    for size in (1..=able.len()).rev() {
        for some in combinations(able, size) {
            let mut after = left.clone();
            let mut wanted = rest;
            let mut gave = true;
            while wanted > 0 && gave {
                gave = false;
                for node in &some {
                    let has = after.entry(*node).or_default();
                    if wanted > 0 && *has >= group {
                        (*has, wanted, gave) = (*has - group, wanted.saturating_sub(group), true);
                    }
                }
            }
            let balance = deviation(&after);
            if wanted == 0 && best.as_ref().is_none_or(|(known, _)| balance < *known) {
                best = Some((balance, some));
            }
        }
    }
    best
}

/// Rounded, so that sums in another order are the same.
fn deviation(of: &BTreeMap<u32, usize>) -> f64 {
    let rounded = |number: f64| (number * 1000.0).round() / 1000.0;
    let numbers: Vec<f64> = of.values().map(|number| *number as f64).collect();
    let count = numbers.len().max(1) as f64;
    let mean = rounded(numbers.iter().sum::<f64>() / count);
    rounded((numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count).sqrt())
}

fn give(
    topology: &Topology,
    mut free: CpuSet,
    count: usize,
    manner: Manner,
    group: usize,
    choice: &Choice,
) -> Result<CpuSet, String> {
    let mut taken = CpuSet::default();
    let mut take_at = |node: u32, count: usize| -> Result<usize, String> {
        let here = free.common(&topology.group(Level::Node, node));
        if here.len() < count {
            return Ok(0);
        }
        let cpus = take(topology, &here, count, manner)?;
        free = free.minus(&cpus);
        taken = taken.union(&cpus);
        Ok(count)
    };
    let mut given = 0;
    for node in &choice.nodes {
        given += take_at(*node, choice.each)?;
    }
    while given < count {
        let before = given;
        for node in &choice.rest_from {
            if given < count {
                given += take_at(*node, group)?;
            }
        }
        if given == before {
            return Err(format!("accounting error, not enough CPUs allocated, remaining: {}", count - given));
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests;

//! Where resources could be had, and what comes of the wishes of several.

use std::collections::{BTreeMap, BTreeSet};

use super::mask::NumaMask;
use super::numa::Numa;

/// NUMA nodes at which something could be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hint {
    /// None for anywhere.
    pub(crate) nodes: Option<NumaMask>,
    /// No fewer nodes could ever give it.
    pub(crate) preferred: bool,
}

/// By resource. None stands for no preference; an empty list for nowhere.
pub(crate) type Hints = BTreeMap<String, Option<Vec<Hint>>>;

/// Marks the hints that have as few nodes as can be.
pub(crate) fn hints(all: impl IntoIterator<Item = NumaMask>, fewest: usize) -> Vec<Hint> {
    all.into_iter().map(|nodes| Hint { nodes: Some(nodes), preferred: nodes.count() == fewest }).collect()
}

/// One list for each resource of each provider.
pub(super) fn lists(providers: &[Hints]) -> Vec<Vec<Hint>> {
    let anywhere = |preferred: bool| vec![Hint { nodes: None, preferred }];
    let of_provider = |hints: &Hints| match hints.is_empty() {
        true => vec![anywhere(true)],
        false => hints
            .values()
            .map(|list| match list {
                None => anywhere(true),
                Some(list) if list.is_empty() => anywhere(false),
                Some(list) => list.clone(),
            })
            .collect(),
    };
    providers.iter().flat_map(of_provider).collect()
}

/// Of each list, what needs one node at most and is preferred.
pub(super) fn single_node(lists: Vec<Vec<Hint>>) -> Vec<Vec<Hint>> {
    let fits = |hint: &Hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1);
    lists.into_iter().map(|list| list.into_iter().filter(fits).collect()).collect()
}

/// What a choice of hints, one of each list, comes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    /// All of those that name nodes name the same.
    Equal(Hint),
    Mixed(NumaMask),
}

impl Choice {
    fn with(self, hint: Hint) -> Self {
        match (self, hint.nodes) {
            (Self::Equal(known), None) => Self::Equal(Hint { preferred: known.preferred && hint.preferred, ..known }),
            (Self::Equal(known), Some(nodes)) if known.nodes.is_none_or(|same| same == nodes) => {
                Self::Equal(Hint { nodes: Some(nodes), preferred: known.preferred && hint.preferred })
            }
            (Self::Equal(Hint { nodes: known, .. }), Some(nodes)) => {
                Self::Mixed(known.map_or(nodes, |known| known.common(nodes)))
            }
            (Self::Mixed(known), None) => Self::Mixed(known),
            (Self::Mixed(known), Some(nodes)) => Self::Mixed(known.common(nodes)),
        }
    }
}

/// The best of all that come of one hint of each list. Choices that come to the same are followed once: there are few of them,
/// whatever the number of lists.
pub(super) fn best(lists: &[Vec<Hint>], numa: &Numa, closest: bool) -> Hint {
    let mut choices = BTreeSet::from([Choice::Equal(Hint { nodes: None, preferred: true })]);
    for list in lists {
        choices = choices.iter().flat_map(|choice| list.iter().map(move |hint| choice.with(*hint))).collect();
    }
    let wanted = lists.iter().filter_map(|list| fewest_nodes(list)).max().unwrap_or(0);
    let order = Order { numa, closest, wanted };
    let all = numa.all();
    let merged = choices.into_iter().map(|choice| match choice {
        Choice::Equal(hint) => (hint.nodes.map_or(all, |nodes| nodes.common(all)), hint.preferred),
        Choice::Mixed(nodes) => (nodes.common(all), false),
    });
    let best = merged.filter(|(nodes, _)| !nodes.is_empty()).reduce(|best, other| order.better(best, other));
    let (nodes, preferred) = best.unwrap_or((all, false));
    Hint { nodes: Some(nodes), preferred }
}

fn fewest_nodes(list: &[Hint]) -> Option<usize> {
    list.iter().filter_map(|hint| Some(hint.nodes?.count())).min()
}

struct Order<'a> {
    numa: &'a Numa,
    closest: bool,
    /// What is not preferred is to have as many nodes as this, or nearly: so many does the resource need that needs the most.
    wanted: usize,
}

impl Order<'_> {
    fn better(&self, one: (NumaMask, bool), other: (NumaMask, bool)) -> (NumaMask, bool) {
        if one.1 != other.1 {
            return if one.1 { one } else { other };
        }
        let counts = (one.0.count(), other.0.count());
        if one.1 || counts.0 == counts.1 || counts.0.max(counts.1) > self.wanted {
            return if self.is_fitter(other.0, one.0) { other } else { one };
        }
        if counts.1 > counts.0 { other } else { one }
    }

    fn is_fitter(&self, one: NumaMask, other: NumaMask) -> bool {
        if !self.closest || one.count() != other.count() {
            return one.is_narrower_than(other);
        }
        let (near, far) = (self.numa.distance(one), self.numa.distance(other));
        if near == far { one.is_narrower_than(other) } else { near < far }
    }
}

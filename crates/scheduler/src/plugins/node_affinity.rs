//! NodeAffinity: which nodes a pod requires or prefers by their labels and names.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeAffinity as Affinity, PreferredSchedulingTerm};

use crate::framework::{
    Cycle, Data, Events, Happening, Plugin, Point, PreFilter, PreScore, Rejection, Verdict, normalize_by_maximum,
};
use crate::model::labels::{NodeRequirement, NodeTerm};
use crate::model::node_sets::NodeSet;
use crate::model::pod::Weighted;
use crate::model::{NodeInfo, PodInfo};

/// What the scheduler itself adds to the wishes of every pod.
pub(super) struct NodeAffinity {
    added: NodeRequirement,
    added_preferred: Vec<Weighted<NodeTerm>>,
}

impl NodeAffinity {
    pub(super) fn new(added: Option<&Affinity>) -> Self {
        let required = added.and_then(|added| added.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = added.and_then(|added| added.preferred_during_scheduling_ignored_during_execution.as_ref());
        let wish = |wish: &PreferredSchedulingTerm| {
            Some(Weighted { weight: wish.weight.into(), term: NodeTerm::new(&wish.preference)? })
        };
        Self {
            added: NodeRequirement::new(None, required),
            added_preferred: preferred.into_iter().flatten().filter_map(wish).collect(),
        }
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::NODE_LABELS)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        happening.node.is_none_or(|node| {
            pod.node_requirement.matches(&node.name, &node.labels) && self.added.matches(&node.name, &node.labels)
        })
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let requirement = &cycle.pod.node_requirement;
        if requirement.is_any() && self.added.is_any() {
            return PreFilter::Skip;
        }
        // Terms are alternatives: only where each of them names its nodes are the nodes known beforehand.
        let named: Option<Vec<Vec<&str>>> = requirement
            .terms()
            .filter(|terms| !terms.is_empty())
            .and_then(|terms| terms.iter().map(|term| term.only_names()).collect());
        let nodes = named.map(|names| names.into_iter().flatten().map(str::to_owned).collect::<BTreeSet<_>>());
        if nodes.as_ref().is_some_and(BTreeSet::is_empty) {
            return PreFilter::Reject(Rejection::firm("pod affinity terms conflict"));
        }
        let meeting = cycle.cache.meeting(&cycle.pod.node_requirement);
        PreFilter::Continue { data: Some(Box::new(meeting)), nodes }
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        if !self.added.is_any() && !self.added.matches(&node.name, &node.labels) {
            return Err(Rejection::firm("node(s) didn't match scheduler-enforced node affinity"));
        }
        let meeting = data.and_then(|data| data.downcast_ref::<Arc<NodeSet>>());
        let meets = match meeting {
            Some(meeting) => meeting.contains(node.slot),
            None => cycle.pod.node_requirement.matches(&node.name, &node.labels),
        };
        match meets {
            true => Ok(()),
            false => Err(Rejection::firm("node(s) didn't match Pod's node affinity/selector")),
        }
    }

    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        match cycle.pod.preferred_nodes.is_empty() && self.added_preferred.is_empty() {
            true => PreScore::Skip,
            false => PreScore::Continue(None),
        }
    }

    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        let preferred = cycle.pod.preferred_nodes.iter().chain(&self.added_preferred);
        preferred.filter(|preferred| preferred.term.matches(&node.name, &node.labels)).map(|p| p.weight).sum()
    }

    fn normalize(&self, _: &Cycle<'_>, _: Data<'_>, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_maximum(scores, false);
    }
}

//! PodTopologySpread: pods of one sort evenly over zones, hosts or any other label of nodes.
//!
//! Where all nodes count, the counts are those the cache keeps. Where a pod's own rules leave nodes out, they are
//! summed up over the remaining nodes, still without looking at pods.

use std::any::Any;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use crate::config::types::PodTopologySpreadArgs;
use crate::framework::{
    Cycle, Data, Events, Happening, MAX_SCORE, Plugin, Point, PreFilter, PreScore, Rejection, Verdict,
};
use crate::model::labels::{Labels, Selector};
use crate::model::spread::Constraint;
use crate::model::tally::Tally;
use crate::model::topology::NumberMap;
use crate::model::{NodeInfo, PodInfo};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const UNMATCHED: &str = "node(s) didn't match pod topology spread constraints";
const UNLABELLED: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

fn has_all_keys(node: &NodeInfo, constraints: &[Constraint]) -> bool {
    constraints.iter().all(|constraint| node.labels.contains_key(constraint.topology_key()))
}

/// Counts of one constraint: the cache's, or own sums where some nodes do not count.
#[derive(Clone, Debug)]
struct Domains {
    constraint: Constraint,
    tally: Tally,
    /// Sums over the nodes that count, by domain; nothing where all do.
    chosen: Option<NumberMap<i64>>,
    fewest: i64,
    own: i64,
}

impl Domains {
    fn new(cycle: &Cycle<'_>, constraint: &Constraint, all: &[Constraint]) -> Self {
        let tally = cycle.cache.tally(&constraint.rule);
        let choosy = constraint.is_choosy(cycle.pod)
            || all.len() > 1
                && all.iter().any(|other| cycle.cache.tally(&other.rule).column.filled() < cycle.cache.node_count());
        let chosen = choosy.then(|| {
            let mut sums = NumberMap::default();
            let set = (constraint.honor_affinity && !cycle.pod.node_requirement.is_any())
                .then(|| cycle.cache.meeting(&cycle.pod.node_requirement));
            let counts = |node: &NodeInfo| {
                set.as_ref().is_none_or(|set| set.contains(node.slot))
                    && (!constraint.honor_taints || constraint.counts_on(cycle.pod, node))
            };
            for node in cycle.cache.nodes().filter(|node| has_all_keys(node, all) && counts(node)) {
                if let Some(value) = tally.column.at(node.slot) {
                    *sums.entry(value).or_default() += tally.counts.on_node(node.slot);
                }
            }
            sums
        });
        let own = i64::from(constraint.selector.matches(&cycle.pod.labels));
        Self { constraint: constraint.clone(), tally, chosen, fewest: 0, own }
    }

    fn settle(&mut self) {
        let (domains, fewest) = match &self.chosen {
            Some(sums) => (sums.len(), sums.values().copied().min()),
            None => (self.tally.column.domains(), (self.tally.column.domains() > 0).then(|| self.tally.least())),
        };
        // With fewer domains than wanted, the missing ones count as empty.
        let fewest = fewest.unwrap_or(i64::from(i32::MAX));
        self.fewest = if domains < self.constraint.min_domains { 0 } else { fewest };
    }

    /// The count in the node's domain; nothing when the node has none.
    fn at(&self, slot: u32) -> Option<i64> {
        match &self.chosen {
            None => self.tally.at(slot),
            Some(sums) => self.tally.column.at(slot).map(|value| sums.get(&value).copied().unwrap_or_default()),
        }
    }

    fn change(&mut self, slot: u32, change: i64) {
        match &mut self.chosen {
            None => self.tally.change(slot, change),
            Some(sums) => {
                if let Some(value) = self.tally.column.at(slot) {
                    *sums.entry(value).or_default() += change;
                }
            }
        }
        self.settle();
    }
}

#[derive(Clone, Debug)]
struct Hard(Vec<Domains>);

#[derive(Clone, Debug)]
struct Soft {
    domains: Vec<Domains>,
    /// Per constraint, the domains that nodes to be scored are in; pods elsewhere do not matter.
    weights: Vec<f64>,
    /// Nodes without all topology labels are not scored.
    require_all: bool,
}

/// Spreads pods of a service or a controller that ask for nothing themselves.
pub(super) struct PodTopologySpread {
    pub(super) defaults: Vec<DefaultConstraint>,
    /// Whether the defaults are the system's, which bear nodes without a zone.
    pub(super) system: bool,
}

/// A constraint for pods that have none.
#[derive(Clone, Debug)]
pub(super) struct DefaultConstraint {
    pub(super) topology_key: String,
    pub(super) max_skew: i64,
    pub(super) hard: bool,
}

impl PodTopologySpread {
    pub(super) fn new(args: &PodTopologySpreadArgs) -> Self {
        if args.defaulting_type == "List" {
            let own = |constraint: &TopologySpreadConstraint| DefaultConstraint {
                topology_key: constraint.topology_key.clone(),
                max_skew: constraint.max_skew.into(),
                hard: constraint.when_unsatisfiable == "DoNotSchedule",
            };
            return Self { defaults: args.default_constraints.iter().map(own).collect(), system: false };
        }
        let soft = |key: &str, max_skew| DefaultConstraint { topology_key: key.into(), max_skew, hard: false };
        Self { defaults: vec![soft(HOSTNAME, 3), soft(ZONE, 5)], system: true }
    }
}

impl PodTopologySpread {
    fn default_constraints(&self, cycle: &Cycle<'_>, hard: bool) -> Vec<Constraint> {
        if !self.defaults.iter().any(|constraint| constraint.hard == hard) {
            return Vec::new();
        }
        let selector = siblings(cycle);
        if selector.is_empty() {
            return Vec::new();
        }
        let wanted = self.defaults.iter().filter(|constraint| constraint.hard == hard);
        let make = |c: &DefaultConstraint| {
            Constraint::soft(c.topology_key.clone(), c.max_skew, &cycle.pod.namespace, selector.clone())
        };
        wanted.map(make).collect()
    }
}

/// What selects the pods that belong with this one: its services' selectors and its controller's.
fn siblings(cycle: &Cycle<'_>) -> Selector {
    let pod = cycle.pod;
    let mut selector = Selector::everything();
    if !cycle.listers.services.is_empty() && !pod.labels.is_empty() {
        for service in cycle.listers.services.list_in(&pod.namespace) {
            let labels = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            if let Some(labels) = labels.filter(|labels| !labels.is_empty())
                && labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
            {
                selector.and(labels);
            }
        }
    }
    let owners = pod.pod.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.into_iter().find(|owner| owner.controller == Some(true)) else { return selector };
    let listers = cycle.listers;
    match owner.kind.as_str() {
        "ReplicaSet" => {
            let set = listers.replica_sets.get(&pod.namespace, &owner.name);
            if let Some(set) = set {
                selector.and_selector(Selector::new(Some(&set.spec.selector)));
            }
        }
        "StatefulSet" => {
            let set = listers.stateful_sets.get(&pod.namespace, &owner.name);
            if let Some(set) = set {
                selector.and_selector(Selector::new(Some(&set.spec.selector)));
            }
        }
        "ReplicationController" => {
            let controller = listers.replication_controllers.get(&pod.namespace, &owner.name);
            let labels = controller.as_ref().and_then(|controller| controller.spec.as_ref()?.selector.as_ref());
            selector.and(labels.unwrap_or(&Labels::new()));
        }
        _ => {}
    }
    selector
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn events(&self) -> Events {
        // A node that goes may take a domain with it that had the fewest pods.
        Events::NODE_ADDED
            .and(Events::NODE_GONE)
            .and(Events::NODE_LABELS)
            .and(Events::NODE_TAINTS)
            .and(Events::POD_PLACED)
            .and(Events::POD_GONE)
            .and(Events::POD_LABELS)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        match happening.pod {
            Some(other) if !pod.hard_spread.is_empty() => {
                other.namespace == pod.namespace
                    && pod.hard_spread.iter().any(|constraint| constraint.selector.matches(&other.labels))
            }
            _ => true,
        }
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let defaults;
        let constraints: &[Constraint] = if cycle.pod.spreads_itself() {
            &cycle.pod.hard_spread
        } else {
            defaults = self.default_constraints(cycle, true);
            &defaults
        };
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        let domains = constraints.iter().map(|constraint| {
            let mut domains = Domains::new(cycle, constraint, constraints);
            domains.settle();
            domains
        });
        PreFilter::with(Hard(domains.collect()))
    }

    fn adjust(&self, cycle: &Cycle<'_>, data: &mut dyn Any, other: &PodInfo, node: &NodeInfo, change: i64) {
        let Some(Hard(all)) = data.downcast_mut::<Hard>() else { return };
        let in_all = all.iter().all(|domains| node.labels.contains_key(domains.constraint.topology_key()));
        if other.namespace != cycle.pod.namespace || !in_all {
            return;
        }
        for domains in all {
            if domains.constraint.selector.matches(&other.labels) && domains.constraint.counts_on(cycle.pod, node) {
                domains.change(node.slot, change);
            }
        }
    }

    fn filter(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(Hard(all)) = data.and_then(|data| data.downcast_ref::<Hard>()) else { return Ok(()) };
        for domains in all {
            let Some(there) = domains.at(node.slot) else { return Err(Rejection::firm(UNLABELLED)) };
            if there + domains.own - domains.fewest > domains.constraint.max_skew {
                return Err(Rejection::preemptible(UNMATCHED));
            }
        }
        Ok(())
    }

    fn pre_score(&self, cycle: &Cycle<'_>, nodes: &[&NodeInfo]) -> PreScore {
        let has_own = cycle.pod.spreads_itself();
        let defaults;
        let constraints: &[Constraint] = if has_own {
            &cycle.pod.soft_spread
        } else {
            defaults = self.default_constraints(cycle, false);
            &defaults
        };
        if constraints.is_empty() {
            return PreScore::Skip;
        }
        let require_all = has_own || !self.system;
        let others: &[Constraint] = if require_all { constraints } else { &[] };
        let scored: Vec<&&NodeInfo> = nodes.iter().filter(|node| has_all_keys(node, others)).collect();
        let mut soft = Soft { domains: Vec::new(), weights: Vec::new(), require_all };
        for constraint in constraints {
            // Pods on a node itself are counted whatever the policies say.
            let domains = match constraint.topology_key() == HOSTNAME {
                true => Domains {
                    constraint: constraint.clone(),
                    tally: cycle.cache.tally(&constraint.rule),
                    chosen: None,
                    fewest: 0,
                    own: 0,
                },
                false => Domains::new(cycle, constraint, others),
            };
            let number = if constraint.topology_key() == HOSTNAME {
                scored.len()
            } else {
                scored.iter().map(|node| domains.tally.column.at(node.slot)).collect::<BTreeSet<_>>().len()
            };
            soft.weights.push(((number + 2) as f64).ln());
            soft.domains.push(domains);
        }
        PreScore::with(soft)
    }

    /// The fuller the node's domains, the higher; turned round when all are known.
    fn score(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> i64 {
        let Some(soft) = data.and_then(|data| data.downcast_ref::<Soft>()) else { return 0 };
        if soft.require_all && soft.domains.iter().any(|domains| domains.tally.column.at(node.slot).is_none()) {
            return UNSCORED;
        }
        let mut score = 0.0;
        for (domains, weight) in soft.domains.iter().zip(&soft.weights) {
            let Some(there) = domains.at(node.slot) else { continue };
            let count = match domains.constraint.topology_key() == HOSTNAME {
                true => domains.tally.counts.on_node(node.slot),
                false => there,
            };
            score += count as f64 * weight + (domains.constraint.max_skew - 1) as f64;
        }
        score.round() as i64
    }

    fn normalize(&self, _: &Cycle<'_>, _: Data<'_>, _: &[&NodeInfo], scores: &mut [i64]) {
        let scored = scores.iter().copied().filter(|score| *score != UNSCORED);
        let (lowest, highest) = (scored.clone().min().unwrap_or_default(), scored.max().unwrap_or_default());
        for score in scores {
            *score = match (*score, highest) {
                (UNSCORED, _) => 0,
                (_, 0) => MAX_SCORE,
                (score, highest) => MAX_SCORE * (highest + lowest - score) / highest,
            };
        }
    }
}

const UNSCORED: i64 = -1;

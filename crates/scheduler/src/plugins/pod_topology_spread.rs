//! PodTopologySpread: pods of one sort evenly over zones, hosts or any other label of nodes.

use std::any::Any;
use std::collections::HashMap;

use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};

use crate::framework::{Cycle, Data, Events, MAX_SCORE, Plugin, Point, PreFilter, PreScore, Rejection, Verdict};
use crate::model::labels::{Labels, Selector};
use crate::model::taints::is_repelled;
use crate::model::{NodeInfo, PodInfo};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const UNMATCHED: &str = "node(s) didn't match pod topology spread constraints";
const UNLABELLED: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

#[derive(Clone, Debug)]
struct Constraint {
    max_skew: i64,
    topology_key: String,
    selector: Selector,
    min_domains: usize,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Constraint {
    fn new(constraint: &TopologySpreadConstraint, pod_labels: &Labels) -> Self {
        let mut selector = Selector::new(constraint.label_selector.as_ref());
        let keys = constraint.match_label_keys.iter().flatten();
        let same: Labels = keys.filter_map(|key| Some((key.clone(), pod_labels.get(key)?.clone()))).collect();
        selector.and(&same);
        Self {
            max_skew: constraint.max_skew.into(),
            topology_key: constraint.topology_key.clone(),
            selector,
            min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Whether the node's pods count: those of nodes the pod could never go to would only disturb the balance.
    fn counts_on(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (!self.honor_affinity || pod.node_requirement.matches(&node.name, &node.labels))
            && (!self.honor_taints || !is_repelled(&node.taints, pod.tolerations()))
    }

    fn matching_pods(&self, namespace: &str, node: &NodeInfo) -> i64 {
        if self.selector.is_empty() {
            return 0;
        }
        let same = |other: &&std::sync::Arc<PodInfo>| {
            other.namespace == namespace && !other.is_terminating && self.selector.matches(&other.labels)
        };
        i64::try_from(node.pods.iter().filter(same).count()).unwrap_or(i64::MAX)
    }
}

fn constraints(pod: &PodInfo, action: &str) -> Vec<Constraint> {
    let spec: Option<&PodSpec> = pod.pod.spec.as_ref();
    let all = spec.and_then(|spec| spec.topology_spread_constraints.as_ref()).into_iter().flatten();
    all.filter(|constraint| constraint.when_unsatisfiable == action).map(|c| Constraint::new(c, &pod.labels)).collect()
}

fn has_all_keys(node: &NodeInfo, constraints: &[Constraint]) -> bool {
    constraints.iter().all(|constraint| node.labels.contains_key(&constraint.topology_key))
}

#[derive(Clone, Debug)]
struct Domains {
    constraint: Constraint,
    counts: HashMap<String, i64>,
    fewest: i64,
}

impl Domains {
    fn settle(&mut self) {
        let fewest = self.counts.values().copied().min().unwrap_or(i64::from(i32::MAX));
        // With fewer domains than wanted, the missing ones count as empty.
        self.fewest = if self.counts.len() < self.constraint.min_domains { 0 } else { fewest };
    }
}

#[derive(Clone, Debug)]
struct Hard(Vec<Domains>);

#[derive(Clone, Debug)]
struct Soft {
    constraints: Vec<Constraint>,
    counts: Vec<HashMap<String, i64>>,
    weights: Vec<f64>,
    /// Nodes without all topology labels are not scored.
    require_all: bool,
}

/// Spreads pods of a service or a controller that ask for nothing themselves.
pub(super) struct PodTopologySpread {
    defaults: Vec<(&'static str, i64)>,
}

impl Default for PodTopologySpread {
    fn default() -> Self {
        Self { defaults: vec![(HOSTNAME, 3), (ZONE, 5)] }
    }
}

impl PodTopologySpread {
    fn default_constraints(&self, cycle: &Cycle<'_>) -> Vec<Constraint> {
        let selector = siblings(cycle);
        if selector.is_empty() {
            return Vec::new();
        }
        let constraint = |(key, max_skew): &(&'static str, i64)| Constraint {
            max_skew: *max_skew,
            topology_key: (*key).to_owned(),
            selector: selector.clone(),
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        };
        self.defaults.iter().map(constraint).collect()
    }
}

/// What selects the pods that belong with this one: its services' selectors and its controller's.
fn siblings(cycle: &Cycle<'_>) -> Selector {
    let pod = cycle.pod;
    let mut selector = Selector::everything();
    for service in cycle.listers.services.list_in(&pod.namespace) {
        let labels = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        if let Some(labels) = labels.filter(|labels| !labels.is_empty())
            && Selector::from_labels(labels).matches(&pod.labels)
        {
            selector.and(labels);
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
        Events::NODE_ADDED
            .and(Events::NODE_LABELS)
            .and(Events::NODE_TAINTS)
            .and(Events::POD_PLACED)
            .and(Events::POD_GONE)
            .and(Events::POD_LABELS)
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let constraints = constraints(cycle.pod, "DoNotSchedule");
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        let mut counts: Vec<HashMap<String, i64>> = vec![HashMap::new(); constraints.len()];
        for node in cycle.cache.nodes().filter(|node| has_all_keys(node, &constraints)) {
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if constraint.counts_on(cycle.pod, node) {
                    let value = node.labels.get(&constraint.topology_key).cloned().unwrap_or_default();
                    *counts.entry(value).or_default() += constraint.matching_pods(&cycle.pod.namespace, node);
                }
            }
        }
        let domains = constraints.into_iter().zip(counts).map(|(constraint, counts)| {
            let mut domains = Domains { constraint, counts, fewest: 0 };
            domains.settle();
            domains
        });
        PreFilter::with(Hard(domains.collect()))
    }

    fn adjust(&self, cycle: &Cycle<'_>, data: &mut dyn Any, other: &PodInfo, node: &NodeInfo, change: i64) {
        let Some(Hard(all)) = data.downcast_mut::<Hard>() else { return };
        let in_all = all.iter().all(|domains| node.labels.contains_key(&domains.constraint.topology_key));
        if other.namespace != cycle.pod.namespace || !in_all {
            return;
        }
        for domains in all {
            let constraint = &domains.constraint;
            if constraint.selector.matches(&other.labels)
                && constraint.counts_on(cycle.pod, node)
                && let Some(value) = node.labels.get(&constraint.topology_key)
            {
                *domains.counts.entry(value.clone()).or_default() += change;
                domains.settle();
            }
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(Hard(all)) = data.and_then(|data| data.downcast_ref::<Hard>()) else { return Ok(()) };
        for Domains { constraint, counts, fewest } in all {
            let Some(value) = node.labels.get(&constraint.topology_key) else {
                return Err(Rejection::firm(UNLABELLED));
            };
            let own = i64::from(constraint.selector.matches(&cycle.pod.labels));
            let there = counts.get(value).copied().unwrap_or_default();
            if there + own - fewest > constraint.max_skew {
                return Err(Rejection::preemptible(UNMATCHED));
            }
        }
        Ok(())
    }

    fn pre_score(&self, cycle: &Cycle<'_>, nodes: &[&NodeInfo]) -> PreScore {
        let pod = cycle.pod;
        let has_own = pod.pod.spec.as_ref().is_some_and(|spec| {
            spec.topology_spread_constraints.as_ref().is_some_and(|constraints| !constraints.is_empty())
        });
        let constraints = if has_own { constraints(pod, "ScheduleAnyway") } else { self.default_constraints(cycle) };
        if constraints.is_empty() {
            return PreScore::Skip;
        }
        let mut soft = Soft {
            counts: vec![HashMap::new(); constraints.len()],
            weights: Vec::new(),
            require_all: has_own,
            constraints,
        };
        let scored: Vec<&&NodeInfo> =
            nodes.iter().filter(|node| !soft.require_all || has_all_keys(node, &soft.constraints)).collect();
        for (constraint, counts) in soft.constraints.iter().zip(&mut soft.counts) {
            if constraint.topology_key != HOSTNAME {
                let values = scored.iter().map(|node| node.labels.get(&constraint.topology_key).cloned());
                counts.extend(values.map(|value| (value.unwrap_or_default(), 0)));
            }
            let domains = if constraint.topology_key == HOSTNAME { scored.len() } else { counts.len() };
            soft.weights.push(((domains + 2) as f64).ln());
        }
        if soft.constraints.iter().any(|constraint| constraint.topology_key != HOSTNAME) {
            for node in cycle.cache.nodes().filter(|node| !soft.require_all || has_all_keys(node, &soft.constraints)) {
                for (constraint, counts) in soft.constraints.iter().zip(&mut soft.counts) {
                    let value = node.labels.get(&constraint.topology_key).map_or("", String::as_str);
                    if let Some(count) = counts.get_mut(value)
                        && constraint.counts_on(pod, node)
                    {
                        *count += constraint.matching_pods(&pod.namespace, node);
                    }
                }
            }
        }
        PreScore::with(soft)
    }

    /// The fuller the node's domains, the higher; turned round when all are known.
    fn score(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> i64 {
        let Some(soft) = data.and_then(|data| data.downcast_ref::<Soft>()) else { return 0 };
        if soft.require_all && !has_all_keys(node, &soft.constraints) {
            return UNSCORED;
        }
        let mut score = 0.0;
        for ((constraint, counts), weight) in soft.constraints.iter().zip(&soft.counts).zip(&soft.weights) {
            let Some(value) = node.labels.get(&constraint.topology_key) else { continue };
            let count = match constraint.topology_key == HOSTNAME {
                true => constraint.matching_pods(&cycle.pod.namespace, node),
                false => counts.get(value).copied().unwrap_or_default(),
            };
            score += count as f64 * weight + (constraint.max_skew - 1) as f64;
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

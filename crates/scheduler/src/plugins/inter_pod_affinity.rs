//! InterPodAffinity: pods that want to be near others, or away from them, within a topology.

use std::any::Any;
use std::collections::HashMap;

use crate::framework::{Cycle, Data, Events, MAX_SCORE, Plugin, Point, PreFilter, PreScore, Rejection, Verdict};
use crate::model::labels::Labels;
use crate::model::pod::{AffinityTerm, Weighted};
use crate::model::{NodeInfo, PodInfo};

/// Amounts by topology key and value.
#[derive(Clone, Debug, Default)]
struct Counts(HashMap<String, HashMap<String, i64>>);

impl Counts {
    fn add(&mut self, key: &str, node: &NodeInfo, amount: i64) {
        let Some(value) = node.labels.get(key) else { return };
        let values = match self.0.get_mut(key) {
            Some(values) => values,
            None => self.0.entry(key.to_owned()).or_default(),
        };
        match values.get_mut(value) {
            Some(count) => {
                *count += amount;
                if *count == 0 {
                    values.remove(value);
                }
            }
            None => drop(values.insert(value.clone(), amount)),
        }
    }

    fn get(&self, key: &str, node: &NodeInfo) -> i64 {
        node.labels.get(key).and_then(|value| self.0.get(key)?.get(value)).copied().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.0.values().all(HashMap::is_empty)
    }
}

/// Labels of namespaces, each looked up once per cycle.
struct Namespaces<'a> {
    cycle: &'a Cycle<'a>,
    known: HashMap<String, Labels>,
}

impl<'a> Namespaces<'a> {
    fn new(cycle: &'a Cycle<'a>) -> Self {
        Self { cycle, known: HashMap::new() }
    }

    fn labels(&mut self, namespace: &str) -> &Labels {
        if !self.known.contains_key(namespace) {
            self.known.insert(namespace.to_owned(), self.cycle.listers.namespace_labels(namespace));
        }
        &self.known[namespace]
    }
}

#[derive(Clone, Debug, Default)]
struct Near {
    /// Terms of placed pods that do not want the pod near them.
    unwelcome: Counts,
    /// Placed pods that fit all of the pod's affinity terms.
    wanted: Counts,
    /// Placed pods that the pod wants to keep away from.
    avoided: Counts,
}

impl Near {
    fn count(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, namespaces: &mut Namespaces<'_>, change: i64) {
        for term in &other.affinities.required_anti {
            if term.matches(pod, namespaces.labels(&pod.namespace)) {
                self.unwelcome.add(&term.topology_key, node, change);
            }
        }
        let own = &pod.affinities;
        if own.required.is_empty() && own.required_anti.is_empty() {
            return;
        }
        let labels = namespaces.labels(&other.namespace);
        if !own.required.is_empty() && own.required.iter().all(|term| term.matches(other, labels)) {
            own.required.iter().for_each(|term| self.wanted.add(&term.topology_key, node, change));
        }
        for term in own.required_anti.iter().filter(|term| term.matches(other, labels)) {
            self.avoided.add(&term.topology_key, node, change);
        }
    }
}

pub(super) struct InterPodAffinity {
    /// How much a placed pod's required affinity counts as a wish for those it matches.
    hard_weight: i64,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        Self { hard_weight: 1 }
    }
}

impl InterPodAffinity {
    fn attraction(
        &self,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        namespaces: &mut Namespaces<'_>,
        sums: &mut Counts,
    ) {
        let mut add = |terms: &[Weighted<AffinityTerm>], of: &PodInfo, labels: &Labels, sign: i64| {
            for Weighted { weight, term } in terms.iter().filter(|weighted| weighted.term.matches(of, labels)) {
                sums.add(&term.topology_key, node, sign * weight);
            }
        };
        if !pod.affinities.preferred.is_empty() || !pod.affinities.preferred_anti.is_empty() {
            let labels = namespaces.labels(&other.namespace).clone();
            add(&pod.affinities.preferred, other, &labels, 1);
            add(&pod.affinities.preferred_anti, other, &labels, -1);
        }
        if !other.affinities.is_empty() {
            let labels = namespaces.labels(&pod.namespace).clone();
            add(&other.affinities.preferred, pod, &labels, 1);
            add(&other.affinities.preferred_anti, pod, &labels, -1);
            for term in other.affinities.required.iter().filter(|term| term.matches(pod, &labels)) {
                sums.add(&term.topology_key, node, self.hard_weight);
            }
        }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED
            .and(Events::NODE_LABELS)
            .and(Events::POD_PLACED)
            .and(Events::POD_GONE)
            .and(Events::POD_LABELS)
            .and(Events::NAMESPACE)
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let own = &cycle.pod.affinities;
        let has_own = !own.required.is_empty() || !own.required_anti.is_empty();
        if !has_own && !cycle.cache.has_anti_affinity() {
            return PreFilter::Skip;
        }
        let mut near = Near::default();
        let mut namespaces = Namespaces::new(cycle);
        for node in cycle.cache.nodes().filter(|node| has_own || node.pods_with_anti_affinity > 0) {
            for other in &node.pods {
                near.count(cycle.pod, other, node, &mut namespaces, 1);
            }
        }
        if !has_own && near.unwelcome.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::with(near)
    }

    fn adjust(&self, cycle: &Cycle<'_>, data: &mut dyn Any, other: &PodInfo, node: &NodeInfo, change: i64) {
        if let Some(near) = data.downcast_mut::<Near>() {
            near.count(cycle.pod, other, node, &mut Namespaces::new(cycle), change);
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(near) = data.and_then(|data| data.downcast_ref::<Near>()) else { return Ok(()) };
        let own = &cycle.pod.affinities;
        let in_topology = own.required.iter().all(|term| node.labels.contains_key(&term.topology_key));
        let beside = own.required.iter().all(|term| near.wanted.get(&term.topology_key, node) > 0);
        // The first of a group that wants to be together has nobody to be near to but itself.
        let first = || {
            let labels = cycle.listers.namespace_labels(&cycle.pod.namespace);
            near.wanted.is_empty() && own.required.iter().all(|term| term.matches(cycle.pod, &labels))
        };
        if !(in_topology && (beside || first())) {
            return Err(Rejection::firm("node(s) didn't match pod affinity rules"));
        }
        if own.required_anti.iter().any(|term| near.avoided.get(&term.topology_key, node) > 0) {
            return Err(Rejection::preemptible("node(s) didn't match pod anti-affinity rules"));
        }
        if near.unwelcome.0.keys().any(|key| near.unwelcome.get(key, node) > 0) {
            return Err(Rejection::preemptible("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        let own = &cycle.pod.affinities;
        let has_wishes = !own.preferred.is_empty() || !own.preferred_anti.is_empty();
        if !has_wishes && !cycle.cache.has_affinity() {
            return PreScore::Skip;
        }
        let mut sums = Counts::default();
        let mut namespaces = Namespaces::new(cycle);
        for node in cycle.cache.nodes().filter(|node| has_wishes || node.pods_with_affinity > 0) {
            for other in &node.pods {
                self.attraction(cycle.pod, other, node, &mut namespaces, &mut sums);
            }
        }
        if sums.is_empty() { PreScore::Skip } else { PreScore::with(sums) }
    }

    fn score(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> i64 {
        let Some(sums) = data.and_then(|data| data.downcast_ref::<Counts>()) else { return 0 };
        sums.0.keys().map(|key| sums.get(key, node)).sum()
    }

    fn normalize(&self, _: &Cycle<'_>, _: Data<'_>, _: &[&NodeInfo], scores: &mut [i64]) {
        let lowest = scores.iter().copied().min().unwrap_or_default();
        let span = scores.iter().copied().max().unwrap_or_default() - lowest;
        for score in scores {
            let share = if span > 0 { (*score - lowest) as f64 / span as f64 } else { 0.0 };
            *score = (MAX_SCORE as f64 * share) as i64;
        }
    }
}

//! InterPodAffinity: pods that want to be near others, or away from them, within a topology.
//!
//! The counts come from the cache, which keeps them per term and domain: a cycle asks for the few that concern its pod.

use std::any::Any;

use crate::framework::{
    Cycle, Data, Events, Happening, MAX_SCORE, Plugin, Point, PreFilter, PreScore, Rejection, Verdict,
};
use crate::model::tally::{Attitude, Holding, Tally};
use crate::model::{NodeInfo, PodInfo};

#[derive(Clone, Debug, Default)]
struct Near {
    /// Terms of placed pods that do not want the pod near them.
    unwelcome: Vec<Holding>,
    /// Per own term: placed pods that fit all of the pod's affinity terms.
    wanted: Vec<Tally>,
    /// Per own term: placed pods that the pod wants to keep away from.
    avoided: Vec<Tally>,
    /// Whether the pod fits its own affinity terms, so that it may be the first of its group.
    fits_itself: bool,
}

impl Near {
    fn change(&mut self, cycle: &Cycle<'_>, other: &PodInfo, slot: u32, change: i64) {
        let namespaces = cycle.cache.namespaces();
        for term in other.affinities.required_anti.iter().filter(|term| term.matches(cycle.pod, namespaces)) {
            let known = self.unwelcome.iter().position(|holding| holding.rule == term.rule);
            let place = known.unwrap_or_else(|| {
                let tally = cycle.cache.blank_tally(term.topology_key());
                self.unwelcome.push(Holding { attitude: Attitude::Repels, rule: term.rule.clone(), tally });
                self.unwelcome.len() - 1
            });
            self.unwelcome[place].tally.change(slot, change);
        }
        let own = &cycle.pod.affinities;
        for (rule, tally) in own.together.iter().zip(&mut self.wanted) {
            if rule.matches(other, namespaces) {
                tally.change(slot, change);
            }
        }
        for (term, tally) in own.required_anti.iter().zip(&mut self.avoided) {
            if term.matches(other, namespaces) {
                tally.change(slot, change);
            }
        }
    }
}

pub(super) struct InterPodAffinity {
    /// How much a placed pod's required affinity counts as a wish for those it matches.
    pub(super) hard_weight: i64,
    /// Whether wishes of placed pods count only where the pod has wishes itself.
    pub(super) ignore_wishes_of_placed: bool,
}

/// Amounts to add up per node, each with its factor.
#[derive(Clone)]
struct Wishes(Vec<(i64, Tally)>);

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

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        match (happening.pod, happening.node) {
            (Some(other), _) => {
                // Namespaces chosen by their labels are not known here: then it may help.
                let concerns = |own: &PodInfo, of: &PodInfo| {
                    let terms = own.affinities.required.iter().chain(&own.affinities.required_anti);
                    terms.flat_map(|term| &term.rule.pods).any(|pods| pods.selector.matches(&of.labels))
                };
                concerns(pod, other) || concerns(other, pod)
            }
            (None, Some(node)) => {
                let keys = pod.affinities.required.iter().map(|term| term.topology_key());
                keys.into_iter().all(|key| node.labels.contains_key(key))
            }
            (None, None) => true,
        }
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let own = &cycle.pod.affinities;
        let unwelcome = cycle.cache.holdings(cycle.pod, |attitude| attitude == Attitude::Repels);
        if own.required.is_empty() && own.required_anti.is_empty() && unwelcome.is_empty() {
            return PreFilter::Skip;
        }
        let namespaces = cycle.cache.namespaces();
        PreFilter::with(Near {
            unwelcome,
            wanted: own.together.iter().map(|rule| cycle.cache.tally(rule)).collect(),
            avoided: own.required_anti.iter().map(|term| cycle.cache.tally(&term.rule)).collect(),
            fits_itself: own.required.iter().all(|term| term.matches(cycle.pod, namespaces)),
        })
    }

    fn adjust(&self, cycle: &Cycle<'_>, data: &mut dyn Any, other: &PodInfo, node: &NodeInfo, change: i64) {
        if let Some(near) = data.downcast_mut::<Near>() {
            near.change(cycle, other, node.slot, change);
        }
    }

    fn filter(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(near) = data.and_then(|data| data.downcast_ref::<Near>()) else { return Ok(()) };
        let there = |tally: &Tally| tally.at(node.slot);
        let in_topology = near.wanted.iter().all(|tally| there(tally).is_some());
        let beside = || near.wanted.iter().all(|tally| there(tally).is_some_and(|count| count > 0));
        // The first of a group that wants to be together has nobody to be near to but itself.
        let first = || near.fits_itself && near.wanted.iter().all(|tally| tally.sum() == 0);
        if !(in_topology && (beside() || first())) {
            return Err(Rejection::firm("node(s) didn't match pod affinity rules"));
        }
        if near.avoided.iter().any(|tally| there(tally).is_some_and(|count| count > 0)) {
            return Err(Rejection::preemptible("node(s) didn't match pod anti-affinity rules"));
        }
        if near.unwelcome.iter().any(|holding| there(&holding.tally).is_some_and(|count| count > 0)) {
            return Err(Rejection::preemptible("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        let own = &cycle.pod.affinities;
        let has_wishes = !own.preferred.is_empty() || !own.preferred_anti.is_empty();
        let mut wishes = Vec::new();
        for (list, sign) in [(&own.preferred, 1), (&own.preferred_anti, -1)] {
            wishes.extend(list.iter().map(|wish| (sign * wish.weight, cycle.cache.tally(&wish.term.rule))));
        }
        if has_wishes || !self.ignore_wishes_of_placed {
            let factor = |attitude: Attitude| match attitude {
                Attitude::Likes(weight) => weight,
                Attitude::Needs => self.hard_weight,
                Attitude::Repels => 0,
            };
            let holdings = cycle.cache.holdings(cycle.pod, |attitude| factor(attitude) != 0);
            wishes.extend(holdings.into_iter().map(|holding| (factor(holding.attitude), holding.tally)));
        }
        wishes.retain(|(weight, tally)| *weight != 0 && tally.sum() != 0);
        if wishes.is_empty() { PreScore::Skip } else { PreScore::with(Wishes(wishes)) }
    }

    fn score(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> i64 {
        let Some(Wishes(wishes)) = data.and_then(|data| data.downcast_ref::<Wishes>()) else { return 0 };
        wishes.iter().map(|(weight, tally)| weight.saturating_mul(tally.at(node.slot).unwrap_or_default())).sum()
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

//! One search for a node: PreFilter, Filter over the nodes, PostFilter or the scores. Pure over what it is given.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::seq::IndexedRandom;

use super::{
    Cycle, CycleState, Diagnosis, NodeVerdict, Point, PostFilter, PreFilter, PreScore, Preemption, Profile, Rejection,
    Verdict,
};
use crate::extender::Extension;
use crate::metrics::Metrics;
use crate::model::{NodeInfo, PodInfo};
use crate::nominations::Nominations;

/// Fewer feasible nodes than this are always looked for, so that some spreading remains.
const FEWEST_FEASIBLE: usize = 100;
const LEAST_PERCENTAGE: usize = 5;

/// A node was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub node: String,
    pub evaluated: usize,
    pub feasible: usize,
}

/// What becomes of the pod's nominated node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nomination {
    Keep,
    Clear,
    Set(String),
}

#[derive(Clone, Debug)]
pub enum Failure {
    NoNodes,
    /// A plugin found something wrong.
    Error(String),
    Unfit {
        diagnosis: Box<Diagnosis>,
        nomination: Nomination,
        preemption: Option<Preemption>,
    },
}

impl Failure {
    pub fn message(&self) -> String {
        match self {
            Self::NoNodes => "no nodes available to schedule pods".into(),
            Self::Error(message) => message.clone(),
            Self::Unfit { diagnosis, .. } => diagnosis.message(),
        }
    }
}

/// Everything a search reads.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    pub cycle: Cycle<'a>,
    pub profile: &'a Profile,
    pub nominations: &'a Nominations,
    /// What extenders said, once they have been asked: then only nodes they were asked about are looked at.
    pub extension: Option<&'a Extension>,
    /// Where the times of the points go, when they are wanted.
    pub metrics: Option<&'a Metrics>,
}

impl Search<'_> {
    /// `start` is where in the nodes' order the search begins; it moves on by as many as were looked at, so that all
    /// nodes get their turn.
    pub fn run(&self, start: &mut usize) -> Result<Placed, Failure> {
        let (feasible, evaluated) = self.feasible(start)?;
        let node = match feasible.as_slice() {
            [node] => node.name.to_string(),
            nodes => self.best(nodes),
        };
        Ok(Placed { node, evaluated, feasible: feasible.len() })
    }

    /// The nodes that can take the pod, never none, and how many were looked at.
    pub fn feasible(&self, start: &mut usize) -> Result<(Vec<&NodeInfo>, usize), Failure> {
        let all_nodes = self.cycle.cache.node_count();
        if all_nodes == 0 {
            return Err(Failure::NoNodes);
        }
        let mut diagnosis = Diagnosis { all_nodes, ..Diagnosis::default() };
        let mut state = CycleState::new(self.profile.plugin_count());
        let restricted = self.timed("PreFilter", Result::is_ok, || self.pre_filter(&mut state, &mut diagnosis));
        let helps = |failure: &Failure| matches!(failure, Failure::Unfit { preemption: Some(_), .. });
        let filters = self.profile.at(Point::Filter);
        let speaking = filters.filter(|(place, r)| !state.is_skipped(*place) && r.plugin.concerns(&self.cycle));
        state.filters = speaking.map(|(place, _)| place).collect();
        let only = match restricted {
            Ok(only) => only,
            Err(_) if diagnosis.error.is_some() => {
                return Err(Failure::Error(diagnosis.error.unwrap_or_default()));
            }
            Err(rejection) => {
                diagnosis.at_once = Some(rejection.message());
                diagnosis.others = Some(rejection);
                return Err(self.timed("PostFilter", helps, || self.post_filter(&state, diagnosis)));
            }
        };
        let passes = |found: &Vec<&NodeInfo>| !found.is_empty();
        let feasible = self.timed("Filter", passes, || self.passing(&state, only.as_ref(), start, &mut diagnosis));
        if let Some(error) = diagnosis.error {
            return Err(Failure::Error(error));
        }
        if feasible.is_empty() {
            return Err(self.timed("PostFilter", helps, || self.post_filter(&state, diagnosis)));
        }
        let evaluated = feasible.len() + diagnosis.nodes.len();
        Ok((feasible, evaluated))
    }

    pub(crate) fn timed<T>(&self, point: &str, succeeds: impl Fn(&T) -> bool, work: impl FnOnce() -> T) -> T {
        let Some(metrics) = self.metrics else { return work() };
        let begin = std::time::Instant::now();
        let outcome = work();
        metrics.point(point, &self.profile.scheduler_name, succeeds(&outcome), begin.elapsed());
        outcome
    }

    fn pre_filter(
        &self,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
    ) -> Result<Option<BTreeSet<String>>, Rejection> {
        let mut only: Option<BTreeSet<String>> = None;
        let mut restricting: BTreeSet<&'static str> = BTreeSet::new();
        let mut rejected = None;
        for (place, registered) in self.profile.at(Point::PreFilter) {
            let plugin = &registered.plugin;
            match plugin.pre_filter(&self.cycle) {
                PreFilter::Skip => state.skip(place),
                PreFilter::Continue { data, nodes } => {
                    state.set(place, data);
                    let Some(nodes) = nodes else { continue };
                    restricting.insert(plugin.name());
                    let remaining: BTreeSet<String> = match only {
                        None => nodes,
                        Some(known) => known.intersection(&nodes).cloned().collect(),
                    };
                    if remaining.is_empty() {
                        restricting.iter().for_each(|name| diagnosis.blame(name));
                        return Err(Rejection::firm(contradiction(&restricting)));
                    }
                    only = Some(remaining);
                }
                PreFilter::Reject(rejection) => {
                    diagnosis.blame(plugin.name());
                    if rejection.error {
                        let message = rejection.message();
                        diagnosis.error = Some(format!("running PreFilter plugin {:?}: {message}", plugin.name()));
                    }
                    if !rejection.preemptible {
                        return Err(rejection);
                    }
                    // Preemption may still help: it needs the data of all plugins.
                    rejected = Some(rejection);
                }
            }
        }
        if only.is_some() {
            restricting.iter().for_each(|name| diagnosis.blame(name));
            let names: Vec<&str> = restricting.into_iter().collect();
            let reason = format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
            diagnosis.others = Some(Rejection::firm(reason));
        }
        rejected.map_or(Ok(only), Err)
    }

    fn passing(
        &self,
        state: &CycleState,
        only: Option<&BTreeSet<String>>,
        start: &mut usize,
        diagnosis: &mut Diagnosis,
    ) -> Vec<&NodeInfo> {
        let cache = self.cycle.cache;
        // The node that preemption made room on is most likely the only one.
        if self.extension.is_none()
            && let Some(node) = self.nominations.node_of(&self.cycle.pod.uid).and_then(|name| cache.node(name))
            && only.is_none_or(|only| only.contains(&*node.name))
            && self.filter_with_nominated(state, node).is_ok()
        {
            return vec![node];
        }
        let mut found = Vec::new();
        if let Some(extension) = self.extension {
            for node in extension.nodes.iter().filter_map(|name| cache.node(name)) {
                match extension.refused.get(&node.name) {
                    None => self.examine(state, node, &mut found, diagnosis),
                    Some((reason, preemptible)) => {
                        let rejection = Rejection { preemptible: *preemptible, ..Rejection::firm(reason.clone()) };
                        diagnosis.blame("Extender");
                        diagnosis.nodes.push(NodeVerdict { node: node.name.clone(), plugin: "Extender", rejection });
                    }
                }
            }
            return found;
        }
        if let Some(only) = only {
            for node in only.iter().filter_map(|name| cache.node(name)) {
                if diagnosis.error.is_some() {
                    break;
                }
                self.examine(state, node, &mut found, diagnosis);
            }
            return found;
        }
        let wanted = wanted_nodes(diagnosis.all_nodes, self.profile.percentage_of_nodes);
        let mut looked_at = 0;
        for node in cache.nodes_from(*start) {
            if found.len() >= wanted || diagnosis.error.is_some() {
                break;
            }
            looked_at += 1;
            self.examine(state, node, &mut found, diagnosis);
        }
        *start = (*start + looked_at) % diagnosis.all_nodes;
        found
    }

    fn examine<'n>(
        &self,
        state: &CycleState,
        node: &'n NodeInfo,
        found: &mut Vec<&'n NodeInfo>,
        diagnosis: &mut Diagnosis,
    ) {
        match self.filter_with_nominated_by(state, node) {
            Ok(()) => found.push(node),
            Err((plugin, rejection)) => {
                diagnosis.blame(plugin);
                if rejection.error {
                    diagnosis.error = Some(format!("running {plugin:?} filter plugin: {}", rejection.message()));
                }
                diagnosis.nodes.push(NodeVerdict { node: node.name.clone(), plugin, rejection });
            }
        }
    }

    /// Filters a node as it is, and as it will be with the more important pods that are to come there.
    pub fn filter_with_nominated(&self, state: &CycleState, node: &NodeInfo) -> Verdict {
        self.filter_with_nominated_by(state, node).map_err(|(_, rejection)| rejection)
    }

    fn filter_with_nominated_by(&self, state: &CycleState, node: &NodeInfo) -> Result<(), (&'static str, Rejection)> {
        if self.nominations.is_empty() {
            return self.filter_by(state, node);
        }
        let pod = self.cycle.pod;
        let coming: Vec<&Arc<PodInfo>> = self
            .nominations
            .on(&node.name)
            .iter()
            .filter(|other| other.priority >= pod.priority && other.uid != pod.uid)
            .collect();
        if !coming.is_empty() {
            let (mut state, mut node) = (state.clone(), node.clone());
            for other in coming {
                node.add_pod(other.clone());
                self.adjust(&mut state, other, &node, 1);
            }
            self.filter_by(&state, &node)?;
        }
        // They may never come, so that the pod must also fit without them.
        self.filter_by(state, node)
    }

    fn filter_by(&self, state: &CycleState, node: &NodeInfo) -> Result<(), (&'static str, Rejection)> {
        for place in &state.filters {
            let plugin = self.profile.plugin(*place);
            plugin.filter(&self.cycle, state.data(*place), node).map_err(|rejection| (plugin.name(), rejection))?;
        }
        Ok(())
    }

    /// Tells all plugins that a simulation adds (1) or removes (-1) a pod on a node.
    pub fn adjust(&self, state: &mut CycleState, other: &PodInfo, node: &NodeInfo, change: i64) {
        for (place, registered) in self.profile.at(Point::PreFilter) {
            if !state.is_skipped(place)
                && let Some(data) = state.data_mut(place)
            {
                registered.plugin.adjust(&self.cycle, data, other, node, change);
            }
        }
    }

    fn post_filter(&self, state: &CycleState, mut diagnosis: Diagnosis) -> Failure {
        let mut reasons = Vec::new();
        let mut nomination = Nomination::Keep;
        for (_, registered) in self.profile.at(Point::PostFilter) {
            match registered.plugin.post_filter(self, state, &diagnosis) {
                PostFilter::Preempt(preemption) => {
                    let nomination = Nomination::Set(preemption.node.clone());
                    let diagnosis = Box::new(diagnosis);
                    return Failure::Unfit { diagnosis, nomination, preemption: Some(preemption) };
                }
                PostFilter::Unhelpful { reason, clear } => {
                    if clear {
                        nomination = Nomination::Clear;
                    }
                    if !reason.is_empty() {
                        reasons.push(reason);
                    }
                }
            }
        }
        diagnosis.afterwards = reasons.join(", ");
        Failure::Unfit { diagnosis: Box::new(diagnosis), nomination, preemption: None }
    }

    fn best(&self, nodes: &[&NodeInfo]) -> String {
        let totals = self.timed("Score", |_| true, || self.scores(nodes));
        let highest = totals.iter().copied().max().unwrap_or_default();
        let best: Vec<&&NodeInfo> =
            nodes.iter().zip(&totals).filter(|(_, total)| **total == highest).map(|(node, _)| node).collect();
        // Equals share the load by chance.
        best.choose(&mut rand::rng()).map(|node| node.name.to_string()).unwrap_or_default()
    }

    /// The weighted sums of all plugins' scores.
    pub fn scores(&self, nodes: &[&NodeInfo]) -> Vec<i64> {
        let mut totals = vec![0_i64; nodes.len()];
        for (_, registered) in self.profile.at(Point::Score) {
            let plugin = &registered.plugin;
            let data = match plugin.points().contains(&Point::PreScore) {
                false => None,
                true => match plugin.pre_score(&self.cycle, nodes) {
                    PreScore::Skip => continue,
                    PreScore::Continue(data) => data,
                },
            };
            let data = data.as_ref().map(|data| (**data).any());
            let mut scores = plugin.scores(&self.cycle, data, nodes);
            plugin.normalize(&self.cycle, data, nodes, &mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.saturating_mul(registered.weight));
            }
        }
        if let Some(extension) = self.extension {
            for (total, node) in totals.iter_mut().zip(nodes) {
                *total = total.saturating_add(extension.scores.get(&node.name).copied().unwrap_or_default());
            }
        }
        totals
    }
}

fn contradiction(plugins: &BTreeSet<&'static str>) -> String {
    let names: Vec<&str> = plugins.iter().copied().collect();
    match names.as_slice() {
        [one] => format!("node(s) didn't satisfy plugin {one}"),
        many => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", many.join(" ")),
    }
}

/// How many feasible nodes are enough to choose from.
fn wanted_nodes(all: usize, percentage: Option<usize>) -> usize {
    if all < FEWEST_FEASIBLE {
        return all;
    }
    let percentage = percentage.unwrap_or_else(|| 50_usize.saturating_sub(all / 125).max(LEAST_PERCENTAGE));
    (all * percentage / 100).max(FEWEST_FEASIBLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_clusters_are_searched_in_part() {
        for (all, percentage, expected) in [
            (10, None, 10),
            (100, None, 100),
            (1000, None, 420),
            (5000, None, 500),
            (6000, None, 300),
            (1000, Some(70), 700),
        ] {
            assert_eq!(wanted_nodes(all, percentage), expected, "{all} nodes, {percentage:?}");
        }
    }
}

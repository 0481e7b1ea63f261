//! NodeResourcesFit and NodeResourcesBalancedAllocation: enough of everything, and evenly used.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::config::types::{NodeResourcesFitArgs, ResourceSpec, default_resources};
use crate::devices::Devices;
use crate::framework::{
    Cycle, Data, Events, Happening, MAX_SCORE, Plugin, Point, PreScore, Rejection, Surroundings, Verdict,
};
use crate::model::resources::{Resource, Resources};
use crate::model::{NodeInfo, PodInfo};

/// How a node's use becomes a score.
enum Strategy {
    Least,
    Most,
    /// Points of a line: use in percent, and score.
    Shape(Vec<(i64, i64)>),
}

pub(super) struct Fit {
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    strategy: Strategy,
    weights: Vec<(Resource, i64)>,
    devices: OnceLock<Arc<Devices>>,
}

/// What counts, and how much.
fn weighed(resources: Vec<ResourceSpec>) -> Vec<(Resource, i64)> {
    let resources = if resources.is_empty() { default_resources() } else { resources };
    resources.into_iter().map(|resource| (Resource::named(&resource.name), resource.weight)).collect()
}

impl Fit {
    pub(super) fn new(args: NodeResourcesFitArgs, ignored: &[String]) -> Self {
        let scoring = args.scoring_strategy.unwrap_or_default();
        let strategy = match (scoring.sort.as_str(), scoring.requested_to_capacity_ratio) {
            ("MostAllocated", _) => Strategy::Most,
            // Written from 0 to 10, counted from 0 to 100.
            ("RequestedToCapacityRatio", Some(ratio)) => {
                Strategy::Shape(ratio.shape.iter().map(|point| (point.utilization, point.score * 10)).collect())
            }
            _ => Strategy::Least,
        };
        let weights = weighed(scoring.resources);
        let ignored = args.ignored_resources.into_iter().chain(ignored.iter().cloned()).collect();
        Self { ignored, ignored_groups: args.ignored_resource_groups, strategy, weights, devices: OnceLock::new() }
    }

    fn ignores(&self, resource: &str) -> bool {
        let group = || resource.split_once('/').map_or("", |(group, _)| group);
        self.ignored.iter().any(|name| name == resource) || self.ignored_groups.iter().any(|name| name == group())
    }

    /// What the node does not have and devices can stand in for is not judged here.
    fn leaves(&self, resource: &str, node: &NodeInfo, devices: Option<&Arc<Devices>>) -> bool {
        self.ignores(resource)
            || (node.allocatable.scalar(resource) == 0
                && devices.is_some_and(|devices| devices.class_of(resource).is_some()))
    }
}

/// Scores by what nodes have and what is asked of them: few answers fit most nodes of a cluster, so that answers are kept by
/// a hash of their question.
fn by_use(
    weights: &[(Resource, i64)],
    nodes: &[&NodeInfo],
    requested: impl Fn(&NodeInfo) -> &Resources,
    score: impl Fn(&NodeInfo) -> i64,
) -> Vec<i64> {
    const KEPT_BITS: u32 = 4;
    const MIX: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];
    let [(first, _), (second, _)] = weights else { return nodes.iter().map(|node| score(node)).collect() };
    let mut known: [Option<([i64; 4], i64)>; 1 << KEPT_BITS] = [None; 1 << KEPT_BITS];
    let of = |node: &&NodeInfo| {
        let (has, asked) = (&node.allocatable, requested(node));
        let question = [has.get(first), asked.get(first), has.get(second), asked.get(second)];
        let parts = question.iter().zip(MIX).map(|(part, mix)| part.cast_unsigned().wrapping_mul(mix));
        let place = &mut known[(parts.fold(0, u64::wrapping_add) >> (u64::BITS - KEPT_BITS)) as usize];
        match place {
            Some((known, answer)) if *known == question => *answer,
            _ => place.insert((question, score(node))).1,
        }
    };
    nodes.iter().map(of).collect()
}

/// The height of the line at a use.
fn height(shape: &[(i64, i64)], utilization: i64) -> i64 {
    let Some(at) = shape.iter().position(|(x, _)| utilization <= *x) else {
        return shape.last().map_or(0, |(_, score)| *score);
    };
    if at == 0 {
        return shape[0].1;
    }
    let ((left, low), (right, high)) = (shape[at - 1], shape[at]);
    low + (high - low) * (utilization - left) / (right - left)
}

/// What is missing on the node; whether there would be enough if it were empty.
fn shortages(pod: &PodInfo, node: &NodeInfo, ignores: impl Fn(&str) -> bool) -> Option<Rejection> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut preemptible = true;
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= node.allowed_pods {
        reasons.push(Cow::Borrowed("Too many pods"));
    }
    let mut check = |wanted: i64, allocatable: i64, requested: i64, reason: &dyn Fn() -> Cow<'static, str>| {
        if wanted > 0 && wanted > allocatable.saturating_sub(requested) {
            reasons.push(reason());
            preemptible &= wanted <= allocatable;
        }
    };
    let (wanted, allocatable, requested) = (&pod.requests, &node.allocatable, &node.requested);
    check(wanted.milli_cpu, allocatable.milli_cpu, requested.milli_cpu, &|| "Insufficient cpu".into());
    check(wanted.memory, allocatable.memory, requested.memory, &|| "Insufficient memory".into());
    check(wanted.ephemeral_storage, allocatable.ephemeral_storage, requested.ephemeral_storage, &|| {
        "Insufficient ephemeral-storage".into()
    });
    for (name, amount) in wanted.scalars.iter().filter(|(name, _)| !ignores(name)) {
        check(*amount, allocatable.scalar(name), requested.scalar(name), &|| format!("Insufficient {name}").into());
    }
    (!reasons.is_empty()).then_some(Rejection { reasons, preemptible, error: false })
}

impl Plugin for Fit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::Score]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED
            .and(Events::NODE_ALLOCATABLE)
            .and(Events::POD_GONE)
            .and(Events::POD_SHRUNK)
            .and(Events::DEVICE_CLASS)
    }

    fn begin(&self, surroundings: Surroundings<'_>) {
        let _ = self.devices.set(surroundings.listers.devices.clone());
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        match (happening.node, happening.pod) {
            (Some(node), None) => shortages(pod, node, |name| self.leaves(name, node, self.devices.get())).is_none(),
            _ if happening.events == Events::DEVICE_CLASS => !pod.requests.scalars.is_empty(),
            _ => true,
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> Verdict {
        let devices = Some(&cycle.listers.devices);
        shortages(cycle.pod, node, |name| self.leaves(name, node, devices)).map_or(Ok(()), Err)
    }

    fn scores(&self, cycle: &Cycle<'_>, data: Data<'_>, nodes: &[&NodeInfo]) -> Vec<i64> {
        by_use(&self.weights, nodes, |node| &node.assumed_requested, |node| self.score(cycle, data, node))
    }

    /// By default, the emptier the node would be, the better.
    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        let (mut score, mut weights) = (0_i64, 0_i64);
        for (resource, weight) in &self.weights {
            let wanted = cycle.pod.assumed_requests.get(resource);
            let allocatable = node.allocatable.get(resource);
            // An extended resource that the pod does not ask for says nothing about it.
            if allocatable == 0 || (wanted == 0 && resource.is_scalar()) {
                continue;
            }
            let requested = node.assumed_requested.get(resource).saturating_add(wanted);
            let share = |amount: i64| amount.saturating_mul(MAX_SCORE) / allocatable;
            let own = match &self.strategy {
                Strategy::Least => share(allocatable.saturating_sub(requested).max(0)),
                Strategy::Most => share(requested.min(allocatable)),
                Strategy::Shape(shape) => height(shape, if requested > allocatable { 100 } else { share(requested) }),
            };
            // A shape's zero says that the resource is not to count.
            if own > 0 || !matches!(self.strategy, Strategy::Shape(_)) {
                score += own * weight;
                weights += weight;
            }
        }
        match &self.strategy {
            _ if weights == 0 => 0,
            Strategy::Shape(_) => (score as f64 / weights as f64).round() as i64,
            _ => score / weights,
        }
    }
}

pub(super) struct BalancedAllocation {
    weights: Vec<(Resource, i64)>,
}

impl BalancedAllocation {
    pub(super) fn new(resources: Vec<ResourceSpec>) -> Self {
        Self { weights: weighed(resources) }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    /// Pods that ask for nothing balance nothing.
    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        match self.weights.iter().all(|(resource, _)| cycle.pod.requests.get(resource) == 0) {
            true => PreScore::Skip,
            false => PreScore::Continue(None),
        }
    }

    fn scores(&self, cycle: &Cycle<'_>, data: Data<'_>, nodes: &[&NodeInfo]) -> Vec<i64> {
        by_use(&self.weights, nodes, |node| &node.requested, |node| self.score(cycle, data, node))
    }

    /// Better balanced than before is above 75, worse below.
    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        let (mut before, mut after) = (Shares::default(), Shares::default());
        for (resource, _) in &self.weights {
            let (wanted, allocatable) = (cycle.pod.requests.get(resource), node.allocatable.get(resource));
            if allocatable == 0 || (wanted == 0 && resource.is_scalar()) {
                continue;
            }
            let share = |amount: i64| (amount as f64 / allocatable as f64).min(1.0);
            before.push(share(node.requested.get(resource)));
            after.push(share(node.requested.get(resource).saturating_add(wanted)));
        }
        MAX_SCORE / 2 + (MAX_SCORE / 2 + after.evenness() - before.evenness()) / 2
    }
}

/// Shares of resources in use: of two most often, and then on the stack.
#[derive(Default)]
struct Shares {
    few: [f64; 2],
    count: usize,
    more: Vec<f64>,
}

impl Shares {
    fn push(&mut self, share: f64) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = share,
            None => self.more.push(share),
        }
        self.count += 1;
    }

    /// 100 when all shares are the same; less by their standard deviation.
    fn evenness(&self) -> i64 {
        let deviation = match self.count {
            0 | 1 => 0.0,
            2 => ((self.few[0] - self.few[1]) / 2.0).abs(),
            count => {
                let all = || self.few.iter().chain(&self.more);
                let mean = all().sum::<f64>() / count as f64;
                (all().map(|share| (share - mean).powi(2)).sum::<f64>() / count as f64).sqrt()
            }
        };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}

//! NodeResourcesFit and NodeResourcesBalancedAllocation: enough of everything, and evenly used.

use std::borrow::Cow;

use crate::framework::{Cycle, Data, Events, Happening, MAX_SCORE, Plugin, Point, PreScore, Rejection, Verdict};
use crate::model::{NodeInfo, PodInfo};

/// A resource that counts in a score, and how much.
#[derive(Clone, Debug)]
struct Weight {
    resource: String,
    weight: i64,
}

fn default_weights() -> Vec<Weight> {
    ["cpu", "memory"].map(|resource| Weight { resource: resource.into(), weight: 1 }).into()
}

pub(super) struct Fit {
    weights: Vec<Weight>,
}

impl Default for Fit {
    fn default() -> Self {
        Self { weights: default_weights() }
    }
}

/// What is missing on the node; whether there would be enough if it were empty.
fn shortages(pod: &PodInfo, node: &NodeInfo) -> Option<Rejection> {
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
    for (name, amount) in &wanted.scalars {
        check(*amount, allocatable.scalar(name), requested.scalar(name), &|| format!("Insufficient {name}").into());
    }
    (!reasons.is_empty()).then_some(Rejection { reasons, preemptible })
}

impl Plugin for Fit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::Score]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::NODE_ALLOCATABLE).and(Events::POD_GONE).and(Events::POD_SHRUNK)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        match (happening.node, happening.pod) {
            (Some(node), None) => shortages(pod, node).is_none(),
            _ => true,
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> Verdict {
        shortages(cycle.pod, node).map_or(Ok(()), Err)
    }

    /// The emptier the node would be, the better.
    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        let (mut score, mut weights) = (0, 0);
        for Weight { resource, weight } in &self.weights {
            let wanted = cycle.pod.assumed_requests.get(resource);
            let allocatable = node.allocatable.get(resource);
            // An extended resource that the pod does not ask for says nothing about it.
            if allocatable == 0 || (wanted == 0 && is_scalar(resource)) {
                continue;
            }
            let requested = node.assumed_requested.get(resource).saturating_add(wanted);
            let free = allocatable.saturating_sub(requested).max(0);
            score += free.saturating_mul(MAX_SCORE) / allocatable * weight;
            weights += weight;
        }
        if weights == 0 { 0 } else { score / weights }
    }
}

fn is_scalar(resource: &str) -> bool {
    !matches!(resource, "cpu" | "memory" | "ephemeral-storage")
}

pub(super) struct BalancedAllocation {
    weights: Vec<Weight>,
}

impl Default for BalancedAllocation {
    fn default() -> Self {
        Self { weights: default_weights() }
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
        match self.weights.iter().all(|weight| cycle.pod.requests.get(&weight.resource) == 0) {
            true => PreScore::Skip,
            false => PreScore::Continue(None),
        }
    }

    /// Better balanced than before is above 75, worse below.
    fn score(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> i64 {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for Weight { resource, .. } in &self.weights {
            let (wanted, allocatable) = (cycle.pod.requests.get(resource), node.allocatable.get(resource));
            if allocatable == 0 || (wanted == 0 && is_scalar(resource)) {
                continue;
            }
            let share = |amount: i64| (amount as f64 / allocatable as f64).min(1.0);
            before.push(share(node.requested.get(resource)));
            after.push(share(node.requested.get(resource).saturating_add(wanted)));
        }
        MAX_SCORE / 2 + (MAX_SCORE / 2 + evenness(&after) - evenness(&before)) / 2
    }
}

/// 100 when all shares are the same; less by their standard deviation.
fn evenness(shares: &[f64]) -> i64 {
    let deviation = match shares {
        [] | [_] => 0.0,
        [left, right] => ((left - right) / 2.0).abs(),
        many => {
            let mean = many.iter().sum::<f64>() / many.len() as f64;
            (many.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / many.len() as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

//! DefaultPreemption: which less important pods would have to go so that the pod fits, and where that costs least.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::framework::{
    CycleState, Diagnosis, Events, NodeVerdict, Plugin, Point, PostFilter, Preemption, Rejection, Search,
};
use crate::model::{NodeInfo, PodInfo, Selector};

pub(super) const BY_SCHEDULER: &str = "PreemptionByScheduler";

pub(super) struct DefaultPreemption {
    /// How many candidate nodes are enough: a share of all, but not fewer than a number.
    pub(super) percentage: usize,
    pub(super) fewest: usize,
}

struct Candidate {
    node: String,
    /// The most important first.
    victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PostFilter]
    }

    fn events(&self) -> Events {
        Events::POD_GONE
    }

    fn post_filter(&self, search: &Search<'_>, state: &CycleState, diagnosis: &Diagnosis) -> PostFilter {
        if let Err(reason) = eligible(search, diagnosis) {
            return PostFilter::Unhelpful { reason: format!("preemption: {reason}"), clear: false };
        }
        let mut failed = Diagnosis {
            all_nodes: diagnosis.all_nodes,
            others: Some(Rejection::firm("Preemption is not helpful for scheduling")),
            ..Diagnosis::default()
        };
        let candidates = self.candidates(search, state, diagnosis, &mut failed);
        match candidates.into_iter().min_by_key(cost) {
            Some(best) => PostFilter::Preempt(Preemption { node: best.node, victims: best.victims }),
            None => PostFilter::Unhelpful { reason: format!("preemption: {}", failed.message()), clear: true },
        }
    }
}

fn eligible(search: &Search<'_>, diagnosis: &Diagnosis) -> Result<(), &'static str> {
    let pod = search.cycle.pod;
    if pod.pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = search.nominations.node_of(&pod.uid).or_else(|| pod.nominated_node());
    if let Some(node) = nominated.and_then(|name| search.cycle.cache.node(name))
        && diagnosis.is_preemptible(&node.name)
        && node.pods.iter().any(|other| other.priority < pod.priority && is_being_preempted(other))
    {
        return Err("not eligible due to a terminating pod on the nominated node.");
    }
    Ok(())
}

fn is_being_preempted(pod: &PodInfo) -> bool {
    let conditions = pod.pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.is_terminating
        && conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason.as_deref() == Some(BY_SCHEDULER)
        })
}

impl DefaultPreemption {
    fn candidates(
        &self,
        search: &Search<'_>,
        state: &CycleState,
        diagnosis: &Diagnosis,
        failed: &mut Diagnosis,
    ) -> Vec<Candidate> {
        let cache = search.cycle.cache;
        let firm = diagnosis.firm_nodes();
        let others = diagnosis.others.as_ref().is_some_and(|rejection| rejection.preemptible);
        let is_possible = |node: &&NodeInfo| firm.get(&*node.name).map_or(others, |firm| !firm);
        let possible: Vec<&NodeInfo> = cache.nodes().filter(is_possible).collect();
        if possible.is_empty() {
            return Vec::new();
        }
        let enough = (possible.len() * self.percentage / 100).max(self.fewest);
        let budgets = search.cycle.listers.budgets.list();
        let offset = rand::random_range(0..possible.len());
        let (mut found, mut harmless) = (Vec::new(), false);
        for node in possible.iter().cycle().skip(offset).take(possible.len()) {
            match victims_on(search, state, node, &budgets) {
                Ok(candidate) => {
                    harmless |= candidate.violations == 0;
                    found.push(candidate);
                }
                Err(rejection) => {
                    failed.nodes.push(NodeVerdict { node: node.name.clone(), plugin: "DefaultPreemption", rejection });
                }
            }
            if harmless && found.len() >= enough {
                break;
            }
        }
        found
    }
}

/// Takes all less important pods away, and then lets stay as many as possible, the important ones first.
fn victims_on(
    search: &Search<'_>,
    state: &CycleState,
    node: &NodeInfo,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Candidate, Rejection> {
    let pod = search.cycle.pod;
    let mut possible: Vec<Arc<PodInfo>> =
        node.pods.iter().filter(|other| other.priority < pod.priority).cloned().collect();
    if possible.is_empty() {
        return Err(Rejection::firm("No preemption victims found for incoming pod"));
    }
    let (mut node, mut state) = (node.clone(), state.clone());
    for victim in &possible {
        node.remove_pod(&victim.uid);
        search.adjust(&mut state, victim, &node, -1);
    }
    search.filter_with_nominated(&state, &node)?;
    possible.sort_by_key(|victim| importance(victim));
    let (violating, harmless) = by_violation(&possible, budgets);
    let (mut victims, mut violations) = (Vec::new(), 0);
    for (victim, violates) in violating.into_iter().map(|v| (v, true)).chain(harmless.into_iter().map(|v| (v, false))) {
        node.add_pod(victim.clone());
        search.adjust(&mut state, &victim, &node, 1);
        if search.filter_with_nominated(&state, &node).is_err() {
            node.remove_pod(&victim.uid);
            search.adjust(&mut state, &victim, &node, -1);
            violations += usize::from(violates);
            victims.push(victim);
        }
    }
    victims.sort_by_key(|victim| importance(victim));
    match victims.is_empty() {
        // Removing and adding back changed nothing, and yet it fits now: the next attempt will find it.
        true => Err(Rejection::firm("No preemption victims found for incoming pod")),
        false => Ok(Candidate { node: node.name.to_string(), victims, violations }),
    }
}

fn started(pod: &PodInfo) -> Timestamp {
    let started = pod.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    started.map_or_else(Timestamp::now, |time| time.0)
}

/// Sorts the more important before: higher priority, then running for longer.
fn importance(pod: &PodInfo) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority), started(pod))
}

/// Least is best: budgets kept, unimportant victims, few of them, started lately.
fn cost(candidate: &Candidate) -> (usize, i64, i64, usize, Reverse<Timestamp>) {
    let priorities = candidate.victims.iter().map(|victim| i64::from(victim.priority));
    let highest = priorities.clone().max().unwrap_or(i64::MIN);
    // Counted from the lowest there is, so that a few negative ones do not look cheaper than fewer of them.
    let sum = priorities.map(|priority| priority - i64::from(i32::MIN)).sum();
    let earliest = candidate.victims.iter().filter(|v| i64::from(v.priority) == highest).map(|v| started(v)).min();
    (candidate.violations, highest, sum, candidate.victims.len(), Reverse(earliest.unwrap_or_default()))
}

/// Splits off the pods whose end would break a disruption budget, given that those before them end too.
fn by_violation(pods: &[Arc<PodInfo>], budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut allowed: Vec<i32> = budgets
        .iter()
        .map(|budget| budget.status.as_ref().and_then(|status| status.disruptions_allowed))
        .map(Option::unwrap_or_default)
        .collect();
    let selectors: Vec<Selector> = budgets
        .iter()
        .map(|budget| Selector::new(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())))
        .collect();
    pods.iter().cloned().partition(|pod| {
        let mut violates = false;
        for ((budget, selector), allowed) in budgets.iter().zip(&selectors).zip(&mut allowed) {
            let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
            if budget.namespace().as_deref() != Some(pod.namespace.as_str())
                || selector.is_empty()
                || !selector.matches(&pod.labels)
                || disrupted.is_some_and(|pods| pods.contains_key(&pod.name))
            {
                continue;
            }
            *allowed -= 1;
            violates |= *allowed < 0;
        }
        violates
    })
}

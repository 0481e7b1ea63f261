//! Disruption budgets that let nobody go, or protect nothing.

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::{Finding, Reason, fit, in_namespace, named, plural, pod, said};
use crate::world::{World, is_true, number, standing};

/// A budget that lets nobody go holds up drains.
pub(super) fn findings(world: &World, budget: &Value) -> Vec<Finding> {
    overlapping(world, budget).or_else(|| blocking(world, budget)).into_iter().collect()
}

/// Pods that two budgets select can be evicted by nobody, whatever the budgets allow.
fn overlapping(world: &World, budget: &Value) -> Option<Finding> {
    let others: Vec<&Value> =
        world.all("poddisruptionbudgets").iter().filter(|other| object::name(other) != object::name(budget)).collect();
    let both = |pod: &&Value, other: &Value| selects(budget, pod) && selects(other, pod);
    let (other, pod) =
        others.iter().find_map(|other| Some((*other, world.all("pods").iter().find(|pod| both(pod, other))?)))?;
    let (name, pod) = (object::name(other), object::name(pod));
    let cause = format!(
        "pods that it selects, as {pod}, are selected by the PodDisruptionBudget {name} too: the API server evicts no pod that has more than one"
    );
    let own = object::name(budget);
    Some(
        Finding::new(Reason::BudgetsOverlap, budget, cause)
            .advise(format!("keep one of the two: kubectl delete {}pdb/{own}, or pdb/{name}", in_namespace(budget)))
            .advise(format!("or let them select different pods: kubectl edit {}pdb/{own}", in_namespace(budget))),
    )
}

/// An empty selector means all pods of the namespace; none at all means no pod.
pub(super) fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").filter(|selector| selector.is_object());
    let selector = selector.and_then(|selector| LabelSelector::from_object(selector).ok());
    let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    !over
        && object::namespace(budget) == object::namespace(pod)
        && selector.is_some_and(|selector| selector.matches(object::labels(pod)))
}

/// Whether a budget keeps this pod from being evicted, as the API server decides it: a pod that has not started goes in any
/// case, and of those that are not ready `unhealthyPodEvictionPolicy` decides.
pub(super) fn keeps(budget: &Value, pod: &Value) -> bool {
    if object::text(pod, "/status/phase") == "Pending" || number(budget, "/status/disruptionsAllowed") > 0 {
        return false;
    }
    if is_true(pod, "Ready") {
        return true;
    }
    let status = |field: &str| number(budget, &format!("/status/{field}"));
    let enough = status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0;
    object::text(budget, "/spec/unhealthyPodEvictionPolicy") != "AlwaysAllow" && !enough
}

/// How its controller has counted.
pub(super) fn counted(budget: &Value) -> String {
    let status = |field: &str| number(budget, &format!("/status/{field}"));
    let (healthy, expected, desired) = (status("currentHealthy"), status("expectedPods"), status("desiredHealthy"));
    format!("of its {expected} pods {healthy} are healthy, and {desired} must be")
}

fn blocking(world: &World, budget: &Value) -> Option<Finding> {
    if number(budget, "/metadata/generation") > number(budget, "/status/observedGeneration") {
        let cause = "the disruption controller has not looked at it yet; until then nobody may be evicted";
        return Some(Finding::new(Reason::BudgetBlocks, budget, cause).underway());
    }
    if number(budget, "/status/disruptionsAllowed") > 0 {
        return None;
    }
    let seen = world.seen("pods");
    let pods = world.selected(budget.pointer("/spec/selector"));
    let (expected, healthy, desired) = (
        number(budget, "/status/expectedPods"),
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    if pods.is_empty() && seen.is_some() {
        let cause = match budget.pointer("/spec/selector").filter(|selector| selector.is_object()) {
            Some(selector) => format!(
                "its selector {} selects no pod in namespace {}: it protects nothing",
                fit::selector_text(selector),
                object::namespace(budget)
            ),
            None => "it has no selector, and so selects no pod: it protects nothing".to_owned(),
        };
        let edit = format!("kubectl edit {}pdb/{}", in_namespace(budget), object::name(budget));
        let finding = Finding::new(Reason::BudgetSelectsNothing, budget, cause);
        // Where there are no pods at all, it is for those to come.
        let finding = if seen.is_some_and(<[Value]>::is_empty) { finding.note() } else { finding };
        return Some(finding.advise(format!("if pods are meant: {edit}")));
    }
    // The controller cannot say how many pods there should be; until it can, nobody may be evicted.
    if let Some(failed) =
        standing(budget, "DisruptionAllowed", "False").filter(|c| object::text(c, "/reason") == "SyncFailed")
    {
        let cause =
            "the disruption controller cannot say how many of its pods there should be, and so nobody may be evicted";
        return Some(Finding::new(Reason::BudgetSync, budget, cause).detail(said(failed)).advise(format!(
            "for pods without a controller that has a scale, use minAvailable with a number: kubectl edit {}pdb/{}",
            in_namespace(budget),
            object::name(budget)
        )));
    }
    // A share, or what may be missing, is counted from the replicas of controllers: pods without one count for nothing.
    let share = budget.pointer("/spec/maxUnavailable").is_some()
        || budget.pointer("/spec/minAvailable").is_some_and(Value::is_string);
    let bare =
        |pod: &&Value| !object::items(pod, "/metadata/ownerReferences").iter().any(|owner| owner["controller"] == true);
    if share && expected == 0 && !pods.is_empty() && pods.iter().all(bare) {
        let names: Vec<&str> = pods.iter().map(|pod| object::name(pod)).collect();
        let cause = format!(
            "nobody may be evicted: it is counted from the replicas of controllers, and its pods ({}) have none",
            named(&names)
        );
        return Some(Finding::new(Reason::BudgetSync, budget, cause).advise(format!(
            "for pods without a controller, use minAvailable with a number: kubectl edit {}pdb/{}",
            in_namespace(budget),
            object::name(budget)
        )));
    }
    let allows = match (budget.pointer("/spec/minAvailable"), budget.pointer("/spec/maxUnavailable")) {
        (Some(least), _) => format!("minAvailable is {least}"),
        (_, Some(most)) => format!("maxUnavailable is {most}"),
        _ => String::new(),
    };
    let cause =
        format!("it allows no eviction: {healthy} of {expected} pods are healthy, and {desired} must be ({allows})");
    let finding = Finding::new(Reason::BudgetBlocks, budget, cause);
    // What is over counts for nothing.
    let over = |pod: &Value| matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    let sick: Vec<&Value> = pods.into_iter().filter(|pod| !pod::is_serving(pod) && !over(pod)).collect();
    if seen.is_none() && healthy < expected {
        return Some(finding.detail("its pods could not be looked at"));
    }
    if sick.is_empty() {
        let edit = format!("kubectl edit {}pdb/{}", in_namespace(budget), object::name(budget));
        let least = budget.pointer("/spec/minAvailable");
        let remedy = match least.map(|least| least.as_str().unwrap_or_default()) {
            None => "raise maxUnavailable",
            Some("100%") => "lower minAvailable",
            Some(_) => "raise the replicas, or lower minAvailable",
        };
        return Some(finding.note().advise(format!("it leaves no room at all: {remedy}: {edit}")));
    }
    let names: Vec<&str> = sick.iter().map(|pod| object::name(pod)).collect();
    let finding = finding.detail(format!("{} not healthy: {}", plural(sick.len(), "pod"), named(&names)));
    let finding = match sick.iter().find_map(|pod| pod::first(world, pod)) {
        Some(inner) => Finding { underway: false, ..finding.because_of(inner) },
        None => finding,
    };
    Some(finding.advise("unhealthyPodEvictionPolicy: AlwaysAllow lets pods that are not healthy go in any case"))
}

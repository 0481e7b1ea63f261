//! Nodes and disruption budgets.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Hop, named, plural, pod, said};
use crate::world::{World, ago, condition, number, standing, time_at};

pub(super) fn node(world: &World, node: &Value) -> Vec<Finding> {
    let name = object::name(node);
    let finding = |cause: String| Finding::new(Hop::Node, node, cause);
    let Some(ready) = condition(node, "Ready") else {
        return vec![finding("its kubelet has not said anything yet".into()).advise("see that the kubelet runs there")];
    };
    let since = time_at(ready, "/lastTransitionTime").map(|then| ago(world.now, then)).unwrap_or_default();
    match object::text(ready, "/status") {
        "True" => {}
        "Unknown" => {
            let beat = time_at(ready, "/lastHeartbeatTime").map(|then| ago(world.now, then)).unwrap_or_default();
            return vec![
                finding(format!("its kubelet has said nothing since {beat}; it counts as lost since {since}")).advise(
                    format!("see that the machine {name} runs, its kubelet too, and that it reaches the API server"),
                ),
            ];
        }
        _ => {
            let said = said(ready);
            let network = said.contains("cni") || said.contains("network");
            let advice = if network {
                "see that the network plug-in is installed on it and runs"
            } else {
                "look at the kubelet's log"
            };
            return vec![
                finding(format!("its kubelet says that it is not ready since {since}")).detail(said).advise(advice),
            ];
        }
    }
    let mut found = Vec::new();
    for (kind, what) in [
        ("MemoryPressure", "memory"),
        ("DiskPressure", "disk"),
        ("PIDPressure", "process ids"),
        ("NetworkUnavailable", "network"),
    ] {
        if let Some(short) = standing(node, kind, "True") {
            let cause = format!("it is short of {what}: new pods stay away, and some may be evicted");
            found.push(finding(cause).detail(said(short)).advise("end pods or remove images and files on it"));
        }
    }
    if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        found.push(finding("it is cordoned: no new pods come".into()).advise(format!("kubectl uncordon {name}")));
    }
    found
}

/// A budget that lets nobody go holds up drains.
pub(super) fn budget(world: &World, budget: &Value) -> Option<Finding> {
    if number(budget, "/metadata/generation") > number(budget, "/status/observedGeneration") {
        let cause = "the disruption controller has not looked at it yet; until then nobody may be evicted";
        return Some(Finding::new(Hop::Controller, budget, cause).underway());
    }
    if number(budget, "/status/disruptionsAllowed") > 0 {
        return None;
    }
    let pods = world.selected(budget.pointer("/spec/selector"));
    let (expected, healthy, desired) = (
        number(budget, "/status/expectedPods"),
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    if expected == 0 && pods.is_empty() {
        return None;
    }
    let cause = format!("it allows no eviction: {healthy} of {expected} pods are healthy, and {desired} must be");
    let mut finding = Finding::new(Hop::Controller, budget, cause);
    let sick: Vec<&Value> = pods.into_iter().filter(|pod| !pod::is_serving(pod)).collect();
    if sick.is_empty() {
        return Some(
            finding
                .advise("it leaves no room at all: raise the replicas, or lower minAvailable (raise maxUnavailable)"),
        );
    }
    let names: Vec<&str> = sick.iter().map(|pod| object::name(pod)).collect();
    finding = finding.detail(format!("{} not healthy: {}", plural(sick.len(), "pod"), named(&names)));
    if let Some(inner) = sick.iter().find_map(|pod| pod::first(world, pod)) {
        finding = finding.detail(format!("{} at the {}: {}", inner.about, inner.hop.name(), inner.cause));
        finding.advice = inner.advice;
    }
    Some(finding.advise("unhealthyPodEvictionPolicy: AlwaysAllow lets sick pods go in any case"))
}

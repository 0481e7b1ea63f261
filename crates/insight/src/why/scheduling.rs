//! Pods without a node: what the scheduler says of each node, put together.

use std::collections::BTreeMap;

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use serde_json::Value;

use super::{Finding, Hop, claim, named, plural, said};
use crate::world::{World, ago, condition, standing, time_at};

pub(super) fn gated(_: &World, pod: &Value) -> Option<Finding> {
    let gates: Vec<&str> =
        object::items(pod, "/spec/schedulingGates").iter().map(|gate| object::text(gate, "/name")).collect();
    if gates.is_empty() {
        return None;
    }
    let cause = format!("scheduling gates hold it back: {}", named(&gates));
    Some(
        Finding::new(Hop::Scheduler, pod, cause)
            .advise("whoever set them removes them when it is time: see that this controller runs"),
    )
}

/// A claim that no volume is bound to keeps its pod from every node.
pub(super) fn unbound_claim(world: &World, pod: &Value) -> Option<Finding> {
    if !object::text(pod, "/spec/nodeName").is_empty() {
        return None;
    }
    let claims = world.seen("persistentvolumeclaims")?;
    for volume in object::items(pod, "/spec/volumes") {
        let name = object::text(volume, "/persistentVolumeClaim/claimName");
        if name.is_empty() {
            continue;
        }
        let Some(found) = claims.iter().find(|item| object::name(item) == name) else {
            let cause =
                format!("the claim {name} that its volume {} names does not exist", object::text(volume, "/name"));
            return Some(
                Finding::new(Hop::Storage, pod, cause).advise(format!("create the PersistentVolumeClaim {name}")),
            );
        };
        // A class that waits for its first pod waits for the scheduler, not the other way round.
        if let Some(mut finding) = claim::unbound(world, found).filter(|finding| !finding.underway) {
            finding.details.insert(0, format!("the pod waits for the claim {name}"));
            return Some(finding);
        }
    }
    None
}

pub(super) fn unschedulable(world: &World, pod: &Value) -> Option<Finding> {
    if !object::text(pod, "/spec/nodeName").is_empty() {
        return None;
    }
    let scheduled = standing(pod, "PodScheduled", "False");
    let verdict = world.verdicts.get(object::name(pod));
    let event = world.event(pod, &["FailedScheduling"]);
    let message = (verdict.map(|verdict| object::text(verdict, "/message")))
        .or_else(|| scheduled.map(|condition| object::text(condition, "/message")))
        .or_else(|| event.map(|event| object::text(event, "/message")))
        .unwrap_or_default();
    if message.is_empty() {
        return Some(unseen(world, pod));
    }
    let groups = match verdict.and_then(|verdict| verdict.get("nodes")?.as_array()).filter(|nodes| !nodes.is_empty()) {
        Some(nodes) => by_node(nodes),
        None => by_message(message),
    };
    let mut finding = Finding::new(Hop::Scheduler, pod, "no node can take it");
    if groups.is_empty() {
        finding = finding.detail(message);
    }
    for Group { reason, count, nodes } in &groups {
        let which = if nodes.is_empty() { String::new() } else { format!(" ({})", named(nodes)) };
        finding = finding.detail(format!("{}{which}: {reason}", plural(*count, "node")));
        if let Some(detail) = comparison(world, pod, reason) {
            finding = finding.detail(format!("  {detail}"));
        }
        let advice = advice(pod, reason);
        if !finding.advice.contains(&advice) {
            finding = finding.advise(advice);
        }
    }
    let nominated = object::text(pod, "/status/nominatedNodeName");
    if !nominated.is_empty() {
        finding =
            finding.detail(format!("pods of lower priority are ending on {nominated} to make room for it")).underway();
    }
    Some(finding)
}

/// Nobody has said anything of the pod yet.
fn unseen(world: &World, pod: &Value) -> Finding {
    let scheduler = match object::text(pod, "/spec/schedulerName") {
        "" => "default-scheduler",
        name => name,
    };
    let created = time_at(pod, "/metadata/creationTimestamp").unwrap_or(world.now);
    let waits = world.now.as_second() - created.as_second();
    let finding = Finding::new(Hop::Scheduler, pod, format!("the scheduler {scheduler:?} has not looked at it yet"));
    if condition(pod, "PodScheduled").is_none() && waits > 10 {
        finding
            .detail(format!("it waits for {}", ago(world.now, created)))
            .advise(format!("see that a scheduler runs that answers to the name {scheduler:?}"))
    } else {
        finding.underway()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Group<'a> {
    reason: String,
    count: usize,
    nodes: Vec<&'a str>,
}

/// The verdicts on single nodes, by reason; the one that holds for most of them first.
fn by_node(verdicts: &[Value]) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for verdict in verdicts {
        for reason in object::items(verdict, "/reasons").iter().filter_map(Value::as_str) {
            groups.entry(reason).or_default().push(object::text(verdict, "/node"));
        }
    }
    let mut groups: Vec<Group<'_>> = groups
        .into_iter()
        .map(|(reason, nodes)| Group { reason: reason.to_owned(), count: nodes.len(), nodes })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

/// The same from the sentence that everybody knows: `0/3 nodes are available: 1 …, 2 …. preemption: …`
fn by_message(message: &str) -> Vec<Group<'static>> {
    let Some((_, reasons)) = message.split_once("nodes are available: ") else { return Vec::new() };
    let end = [". preemption:", ", preemption:", ". no new claims"].iter().filter_map(|end| reasons.find(end)).min();
    let reasons = reasons[..end.unwrap_or(reasons.len())].trim_end_matches('.');
    let mut groups: Vec<Group<'static>> = Vec::new();
    for part in reasons.split(", ") {
        match part.split_once(' ').and_then(|(count, reason)| Some((count.parse().ok()?, reason))) {
            Some((count, reason)) => groups.push(Group { reason: reason.to_owned(), count, nodes: Vec::new() }),
            // A comma inside of a reason.
            None => match groups.last_mut() {
                Some(last) => last.reason = format!("{}, {part}", last.reason),
                None => return Vec::new(),
            },
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

/// What a pod asks for, all containers together.
fn requested(pod: &Value, resource: &str) -> Option<Quantity> {
    let of = |container: &Value| {
        let text = container.pointer("/resources/requests")?.get(resource)?.as_str()?;
        Quantity::parse(text).ok()
    };
    let running = object::items(pod, "/spec/containers").iter().filter_map(of).reduce(|a, b| a.add(&b));
    let largest = object::items(pod, "/spec/initContainers").iter().filter_map(of).reduce(Quantity::max);
    match (running, largest) {
        (Some(running), Some(largest)) => Some(running.max(largest)),
        (running, largest) => running.or(largest),
    }
}

/// What it asks for against what the largest node has.
fn comparison(world: &World, pod: &Value, reason: &str) -> Option<String> {
    let resource = reason.strip_prefix("Insufficient ")?.trim_end_matches('.');
    let wanted = requested(pod, resource)?;
    let has = |node: &Value| Quantity::parse(node.pointer("/status/allocatable")?.get(resource)?.as_str()?).ok();
    let largest = world.all("nodes").iter().filter_map(has).reduce(Quantity::max)?;
    let fits = largest.as_f64() >= wanted.as_f64();
    let rest = if fits { "; other pods have taken it" } else { ", so that it will never fit" };
    Some(format!("it asks for {resource} {wanted}; the largest node has {largest}{rest}"))
}

fn advice(pod: &Value, reason: &str) -> String {
    let says = |text: &str| reason.contains(text);
    if says("Insufficient") {
        "ask for less in resources.requests, end pods that are not needed, or add a node".into()
    } else if says("taint") {
        "tolerate the taint in spec.tolerations, or take it from the node: kubectl taint nodes NODE KEY-".into()
    } else if says("didn't match Pod's node affinity/selector") {
        let selector = object::map(pod, "/spec/nodeSelector");
        let asked: Vec<String> =
            selector.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        match asked.is_empty() {
            true => "no node has the labels that spec.affinity.nodeAffinity asks for: kubectl get nodes --show-labels"
                .into(),
            false => format!("no node has the labels {}: kubectl label node NODE {}", asked.join(","), asked.join(" ")),
        }
    } else if says("unschedulable") {
        "the nodes are cordoned: kubectl uncordon NODE".into()
    } else if says("anti-affinity") {
        "pods that it must not stand beside are on every node: add nodes, or soften the rule to preferred".into()
    } else if says("pod affinity") {
        "no node has the pods that it must stand beside: see that they run and their labels match".into()
    } else if says("topology spread") {
        "the spread would become too uneven: raise maxSkew, add nodes in the other zones, or use ScheduleAnyway".into()
    } else if says("free ports") {
        "its hostPort is taken on these nodes: use another one, or none".into()
    } else if says("Too many pods") {
        "the nodes are full (kubelet's --max-pods): add a node or end pods".into()
    } else if says("volume") || says("PersistentVolume") {
        "a volume can not be used on these nodes: look at the claim and at the node affinity of its volume".into()
    } else {
        "kubectl describe nodes shows what the nodes offer".into()
    }
}

/// Why the scheduler waits, where its condition names another reason than that no node fits.
pub(super) fn scheduler_error(_: &World, pod: &Value) -> Option<Finding> {
    let failed = standing(pod, "PodScheduled", "False")?;
    let reason = object::text(failed, "/reason");
    (reason == "SchedulerError")
        .then(|| Finding::new(Hop::Scheduler, pod, "the scheduler could not place it").detail(said(failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_is_taken_apart() {
        let message = "0/6 nodes are available: 1 node(s) had untolerated taint(s) {a: b, c: d}, 2 Insufficient memory, \
                       3 Insufficient cpu. preemption: 0/6 nodes are available: 6 No preemption victims found.";
        let told: Vec<(usize, String)> = by_message(message).into_iter().map(|g| (g.count, g.reason)).collect();
        assert_eq!(
            told,
            [
                (3, "Insufficient cpu".to_owned()),
                (2, "Insufficient memory".to_owned()),
                (1, "node(s) had untolerated taint(s) {a: b, c: d}".to_owned())
            ]
        );
        assert_eq!(by_message("0/1 nodes are available: persistentvolumeclaim \"x\" not found."), []);
        assert_eq!(by_message("whatever"), []);
    }
}

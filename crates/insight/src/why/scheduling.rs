//! Pods without a node: what the scheduler says of each node, checked against the nodes.

use std::collections::BTreeMap;

use ferry_meta::object;
use serde_json::Value;

use super::containers::edit;
use super::{Finding, Reason, claim, deletion, devices, fit, is_soon, is_young, named, pairs, plural, said};
use crate::gather::ALL_PODS;
use crate::world::{World, ago, condition, is_owned_by, standing, time_at};

pub(super) fn gated(_: &World, pod: &Value) -> Option<Finding> {
    let gates: Vec<&str> =
        object::items(pod, "/spec/schedulingGates").iter().map(|gate| object::text(gate, "/name")).collect();
    if gates.is_empty() || !object::text(pod, "/spec/nodeName").is_empty() {
        return None;
    }
    let cause = format!("scheduling gates hold it back: {}", named(&gates));
    Some(
        Finding::new(Reason::SchedulingGates, pod, cause)
            .advise("whoever set them removes them when it is time: see that this controller runs"),
    )
}

/// A claim that no volume is bound to keeps its pod from every node.
pub(super) fn unbound_claim(world: &World, pod: &Value) -> Option<Finding> {
    let claims = world.seen("persistentvolumeclaims")?;
    // A pod whose containers run has what it needs.
    if super::containers::any_started(pod) {
        return None;
    }
    for name in fit::volumes::claims(pod) {
        let own = fit::volumes::made_for(pod, &name);
        let Some(found) = claims.iter().find(|item| object::name(item) == name) else {
            if let Some(volume) = own {
                return Some(ephemeral(world, pod, volume, &name));
            }
            let volume = object::items(pod, "/spec/volumes")
                .iter()
                .find(|volume| object::text(volume, "/persistentVolumeClaim/claimName") == name)?;
            let cause = format!(
                "its volume {:?} needs the PersistentVolumeClaim {name:?}, and there is none in namespace {}",
                object::text(volume, "/name"),
                object::namespace(pod)
            );
            let near = super::near::sorted(&name, claims.iter().map(object::name).collect());
            let near = if near.is_empty() {
                "the namespace has no claims".to_owned()
            } else {
                format!("the namespace has {}", named(&near))
            };
            let elsewhere = super::near::elsewhere(world, "persistentvolumeclaims", &name);
            return Some(Finding::new(Reason::ClaimMissing, pod, cause).detail(elsewhere).detail(near).advise(
                format!("create the PersistentVolumeClaim {name}, or correct claimName: {}", edit(world, pod)),
            ));
        };
        if let Some(volume) = own.filter(|_| !is_owned_by(found, object::uid(pod))) {
            let cause = format!(
                "its volume {:?} is to be made as the claim {name}, and a claim of that name is there already that was not made for it",
                object::text(volume, "/name")
            );
            return Some(
                Finding::new(Reason::ClaimMissing, pod, cause)
                    .advise(format!(
                        "if that claim and what is on it are not needed: kubectl delete pvc -n {} {name}",
                        object::namespace(pod)
                    ))
                    .advise(format!("or call the volume or the pod otherwise: {}", edit(world, pod))),
            );
        }
        // The scheduler takes no claim that is about to go.
        if object::is_being_deleted(found)
            && object::text(pod, "/spec/nodeName").is_empty()
            && let Some(held) = deletion::held(world, found)
        {
            let cause = format!("its claim {name} is being deleted, and no new pod gets it");
            let finding = Finding::new(Reason::ClaimMissing, pod, cause).because_of(held);
            return Some(Finding { underway: false, ..finding });
        }
        // A class that waits for its first pod waits for the scheduler, not the other way round.
        if let Some(mut finding) = claim::findings(world, found).filter(|finding| !finding.underway && !finding.note) {
            finding.details.insert(0, format!("{} waits for the claim {name}", crate::world::title(pod)));
            return Some(finding);
        }
    }
    None
}

/// A claim that is made for the pod alone, and is not there (yet).
fn ephemeral(world: &World, pod: &Value, volume: &Value, name: &str) -> Finding {
    let cause = format!(
        "its volume {:?} waits for the claim {name}, which is made for it and is not there yet",
        object::text(volume, "/name")
    );
    let finding = Finding::new(Reason::ClaimMissing, pod, cause).underway_if(is_young(world, pod));
    match super::warning(world, pod).filter(|event| !matches!(object::text(event, "/reason"), "FailedScheduling")) {
        Some(event) => {
            finding.detail(said(event)).advise(format!("correct what the message names: {}", edit(world, pod)))
        }
        None => finding
            .advise("see that the controllers run: ferry up, ferry controller-manager or kube-controller-manager"),
    }
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
    let checked = fit::check(world, pod);
    if checked.as_ref().is_some_and(Vec::is_empty) {
        let finding = Finding::new(Reason::NoNodes, pod, "the cluster has no nodes");
        return Some(finding.advise("start one: `ferry join` on a machine, or `ferry up`"));
    }
    let groups = match verdict.and_then(|verdict| verdict.get("nodes")?.as_array()).filter(|nodes| !nodes.is_empty()) {
        Some(nodes) => by_node(nodes),
        None => by_message(message),
    };
    let checked = checked.unwrap_or_default();
    let looked = fit::lines(&checked);
    let overhead = object::map(pod, "/spec/overhead");
    let devices = !object::items(pod, "/spec/resourceClaims").is_empty();
    let reason = if devices && looked.is_empty() { Reason::DeviceClaim } else { Reason::NoNodeFits };
    let cause = match looked.as_slice() {
        [] => "no node can take it".to_owned(),
        [one] => format!("no node can take it: {one}"),
        many => format!("no node can take it: {}", many.join("; ")),
    };
    let mut finding = Finding::new(reason, pod, cause);
    if !overhead.is_empty() {
        finding = finding.detail(format!(
            "the RuntimeClass {:?} adds {} to what its containers ask for (spec.overhead)",
            object::text(pod, "/spec/runtimeClassName"),
            pairs(overhead)
        ));
    }
    if groups.is_empty() {
        finding = finding.detail(format!("the scheduler says: {message}"));
    }
    for Group { reason, count, nodes } in &groups {
        let which = if nodes.is_empty() { String::new() } else { format!(" ({})", named(nodes)) };
        finding = finding.detail(format!("the scheduler says of {}{which}: {reason}", plural(*count, "node")));
    }
    let free = checked.iter().filter(|one| one.obstacles.is_empty()).map(|one| one.node).collect::<Vec<_>>();
    // A node with nothing in its way shows that the obstacles of the others are not what it is about.
    if !free.is_empty() && nominated(pod).is_empty() {
        if let Some(taken) = devices::taken(world, pod) {
            return Some(finding.details.into_iter().fold(taken, Finding::detail));
        }
        let cause = format!("the scheduler finds no node for it: {}", first_part(message));
        // What it met a moment ago may be over: it tries again.
        let just = scheduled.and_then(|one| time_at(one, "/lastTransitionTime")).is_some_and(|at| is_soon(world, at));
        let found = Finding::new(reason, pod, cause).probably().underway_if(just);
        let found = finding.details.into_iter().fold(found, Finding::detail);
        return Some(
            found
                .detail(format!(
                    "nothing was found against {} here; the scheduler's words are all there is",
                    named(&free)
                ))
                .advise("correct what the scheduler names, and compare it with the nodes: kubectl describe nodes"),
        );
    }
    let nominated = nominated(pod);
    if !nominated.is_empty() {
        let finding = Finding { reason: Reason::Preempting, ..finding };
        // Those who are to go have a while for it; one that does not go is what it waits for.
        let there =
            |other: &&Value| object::text(other, "/spec/nodeName") == nominated && object::is_being_deleted(other);
        let going = world.all(ALL_PODS).iter().filter(there);
        if let Some(held) = going.filter_map(|other| deletion::held(world, other)).find(|held| !held.underway) {
            let cause = format!("room is made for it on {nominated}, and {} does not go", held.about);
            return Some(Finding { cause, ..finding }.because_of(held));
        }
        let cause = format!("pods of lower priority are ending on {nominated} to make room for it");
        return Some(Finding { cause, ..finding }.underway());
    }
    if let Some((init, resource)) = fit::init_that_asks(pod, &checked) {
        finding = finding.detail(format!(
            "its init container {init} asks for more {resource} than its containers together: that is what counts"
        ));
    }
    finding = finding.detail(fit::takers(world, &checked).unwrap_or_default());
    let together = fit::together(world, pod, &checked);
    finding = together.iter().fold(finding, |finding, (so, _)| finding.detail(so.clone()));
    for text in fit::advice(world, &checked, &edit(world, pod)) {
        finding = finding.advise(text);
    }
    finding = together.into_iter().fold(finding, |finding, (_, do_it)| finding.advise(do_it));
    if !overhead.is_empty() {
        finding = finding.advise(format!("or use a RuntimeClass with less overhead: {}", edit(world, pod)));
    }
    if finding.advice.is_empty() {
        finding = finding.advise("compare what the scheduler says with the nodes: kubectl describe nodes");
    }
    Some(finding)
}

/// What has to be read beside the rest for pods without a node: namespaces, where affinity means them by their labels, and
/// the room of drivers, where a volume is still to be made.
pub(crate) fn wanted(world: &World) -> Vec<&'static str> {
    let pods = || world.all("pods").iter().filter(|pod| object::text(pod, "/spec/nodeName").is_empty());
    let by_labels = |pod: &Value| {
        let kinds = ["podAffinity", "podAntiAffinity"].into_iter();
        let mut terms = kinds.flat_map(|kind| {
            let list = format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
            object::items(pod, &list).iter()
        });
        terms.any(|term| term.get("namespaceSelector").is_some())
    };
    let mut found = Vec::new();
    if pods().any(by_labels) {
        found.push("namespaces");
    }
    let tells = |driver: &Value| driver.pointer("/spec/storageCapacity").and_then(Value::as_bool) == Some(true);
    if world.all("csidrivers").iter().any(tells) && pods().any(|pod| !fit::volumes::claims(pod).is_empty()) {
        found.push(fit::volumes::CAPACITIES);
    }
    found
}

fn nominated(pod: &Value) -> &str {
    object::text(pod, "/status/nominatedNodeName")
}

/// `0/3 nodes are available: WHAT. preemption: …` → `WHAT`
fn first_part(message: &str) -> &str {
    let rest = message.split_once(" nodes are available: ").map_or(message, |(_, rest)| rest);
    rest.split(" preemption: ").next().unwrap_or(rest).trim_end_matches('.')
}

/// Nobody has said anything of the pod yet.
fn unseen(world: &World, pod: &Value) -> Finding {
    let scheduler = match object::text(pod, "/spec/schedulerName") {
        "" => "default-scheduler",
        name => name,
    };
    let created = time_at(pod, "/metadata/creationTimestamp").unwrap_or(world.now);
    let waits = world.now.as_second() - created.as_second();
    let finding =
        Finding::new(Reason::NoSuchScheduler, pod, format!("the scheduler {scheduler:?} has not looked at it yet"));
    if condition(pod, "PodScheduled").is_none() && waits > 10 {
        finding.detail(format!("it waits for {}", ago(world.now, created))).advise(match scheduler {
            "default-scheduler" => {
                "see that the scheduler runs: ferry up, ferry scheduler or kube-scheduler".to_owned()
            }
            other => format!(
                "start a scheduler of the name {other:?}, or take spec.schedulerName away: {}",
                edit(world, pod)
            ),
        })
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

/// Why the scheduler waits, where its condition names another reason than that no node fits.
pub(super) fn scheduler_error(_: &World, pod: &Value) -> Option<Finding> {
    let failed = standing(pod, "PodScheduled", "False")?;
    let reason = object::text(failed, "/reason");
    (reason == "SchedulerError")
        .then(|| Finding::new(Reason::SchedulerError, pod, "the scheduler could not place it").detail(said(failed)))
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

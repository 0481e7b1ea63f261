//! Rollouts that stand still because somebody wants it so, or because a broken pod of the old template is in the way.

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::Value;

use super::{Finding, Reason, deletion, fit, in_namespace, is_soon, named, pod};
use crate::gather::ALL_PODS;
use crate::world::{World, condition, is_owned_by, number, standing, time_at};

const REVISION: &str = "controller-revision-hash";

/// The template has changed, and nobody replaces the pods.
pub(super) fn on_delete(_: &World, target: &Value, pods: &[&Value]) -> Option<Finding> {
    let kind = object::text(target, "/kind");
    let by_hand = object::text(target, "/spec/updateStrategy/type") == "OnDelete";
    let (all, updated) = match kind {
        "DaemonSet" => {
            (number(target, "/status/currentNumberScheduled"), number(target, "/status/updatedNumberScheduled"))
        }
        _ => (number(target, "/status/replicas"), number(target, "/status/updatedReplicas")),
    };
    let changed = match kind {
        "StatefulSet" => {
            object::text(target, "/status/currentRevision") != object::text(target, "/status/updateRevision")
        }
        _ => true,
    };
    (by_hand && changed && updated < all && !pods.is_empty()).then(|| {
        let cause = format!("{} of {all} pods have the old template: its updateStrategy is OnDelete, and so they are replaced when somebody deletes them", all - updated);
        let names: Vec<&str> = pods.iter().map(|pod| object::name(pod)).collect();
        let command = format!("kubectl delete pod {}{}", in_namespace(target), names.join(" "));
        Finding::new(Reason::OnDelete, target, cause).note().advise(format!("one after the other: {command}"))
    })
}

/// Pods below the partition keep the old template, as somebody wants it.
pub(super) fn partition(_: &World, target: &Value, _: &[&Value]) -> Option<Finding> {
    let partition = number(target, "/spec/updateStrategy/rollingUpdate/partition");
    let status = |field: &str| number(target, &format!("/status/{field}"));
    let rolls = object::text(target, "/status/currentRevision") != object::text(target, "/status/updateRevision");
    let (all, updated) = (status("replicas"), status("updatedReplicas"));
    if object::text(target, "/kind") != "StatefulSet" || partition == 0 || !rolls || updated >= all {
        return None;
    }
    let cause = format!(
        "{} of {all} pods have the old template: those with an ordinal below {partition} keep it (updateStrategy.rollingUpdate.partition)",
        all - updated
    );
    let patch = r#"--type=merge -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'"#;
    let name = object::name(target);
    Some(
        Finding::new(Reason::Partition, target, cause)
            .note()
            .advise(format!("to roll it out to all: kubectl patch {}statefulset/{name} {patch}", in_namespace(target))),
    )
}

/// A pod that never became ready has a template which was changed meanwhile. A StatefulSet that waits for it in order
/// does not replace it: a correction of the template does not reach it until it is deleted.
pub(super) fn stale(target: &Value, pods: &[&Value], found: &mut [Finding]) {
    let newest = object::text(target, "/status/updateRevision");
    let ordered = object::text(target, "/spec/podManagementPolicy") != "Parallel";
    if object::text(target, "/kind") != "StatefulSet" || newest.is_empty() || !ordered {
        return;
    }
    let old = |pod: &&&Value| {
        let has = object::labels(pod).get(REVISION).and_then(Value::as_str);
        has.is_some_and(|has| has != newest) && !pod::is_serving(pod) && !object::is_being_deleted(pod)
    };
    let Some(pod) = pods.iter().find(old).map(|pod| object::name(pod)) else { return };
    let Some(first) = found.iter_mut().find(|finding| finding.about.starts_with(&format!("pod/{pod}"))) else { return };
    first.reason = Reason::OldTemplate;
    first.details.push(format!(
        "{pod} still has the old template: the StatefulSet replaces its pods in order, and waits until this one is ready"
    ));
    let delete = format!("kubectl delete {}pod/{pod}", in_namespace(target));
    first
        .advice
        .insert(0, format!("if the template is corrected, delete the pod, and it is made from the new one: {delete}"));
}

/// New pods that find no node because the old ones of the same Deployment are there, which stay until the new ones are
/// ready: a port of the node, room, an affinity or a volume that only one of them can have.
pub(super) fn in_its_own_way(world: &World, target: &Value, pods: &[&Value], found: &mut [Finding]) {
    if object::text(target, "/kind") != "Deployment" || object::text(target, "/spec/strategy/type") == "Recreate" {
        return;
    }
    let current: Vec<&str> = pods.iter().map(|pod| object::uid(pod)).collect();
    let sets: Vec<&str> = world.owned("replicasets", target).map(object::uid).collect();
    let is_old = |pod: &Value| {
        sets.iter().any(|uid| is_owned_by(pod, uid)) && !current.contains(&object::uid(pod)) && pod::is_serving(pod)
    };
    let old: Vec<&str> = world.all("pods").iter().filter(|pod| is_old(pod)).map(object::name).collect();
    let Some(stuck) = found.iter_mut().find(|one| one.reason == Reason::NoNodeFits && !one.underway) else { return };
    let waits = |pod: &&&Value| stuck.about.split(' ').next() == Some(format!("pod/{}", object::name(pod)).as_str());
    let (Some(pod), Some(all), false) = (pods.iter().find(waits), world.seen(ALL_PODS), old.is_empty()) else {
        return;
    };
    let mut without = World::new(target.clone(), world.now);
    without.put(ALL_PODS, all.iter().filter(|pod| !is_old(pod)).cloned().collect());
    for list in ["nodes", "persistentvolumeclaims", "persistentvolumes"] {
        without.put(list, world.all(list).to_vec());
    }
    let fits = |world: &World| fit::check(world, pod).is_some_and(|all| all.iter().any(|one| one.obstacles.is_empty()));
    if fits(world) || !fits(&without) {
        return;
    }
    let cause = format!(
        "its new pods find no node as long as its old ones ({}) are there, and the rollout keeps those until the new ones are ready",
        named(&old)
    );
    let patch = r#"--type=merge -p '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'"#;
    let name = object::name(target);
    let mut finding = Finding::new(Reason::OldPodsInTheWay, target, cause)
        .detail(format!("{}: {}", stuck.about, stuck.cause))
        .advise(format!("let an old pod end first: kubectl patch {}deployment/{name} {patch}", in_namespace(target)));
    finding.details.append(&mut stuck.details);
    finding.advice.append(&mut stuck.advice);
    *stuck = finding;
}

/// A Deployment that must not run two versions beside each other waits until the old pods have ended.
pub(super) fn recreate(world: &World, target: &Value) -> Option<Finding> {
    if object::text(target, "/spec/strategy/type") != "Recreate" {
        return None;
    }
    let sets: Vec<&str> = world.owned("replicasets", target).map(object::uid).collect();
    let own = |pod: &&Value| sets.iter().any(|uid| is_owned_by(pod, uid)) && object::is_being_deleted(pod);
    let old = world.all("pods").iter().find(own)?;
    let cause = format!(
        "it makes its new pods when the old ones have ended (strategy Recreate): {} has not yet",
        object::name(old)
    );
    let finding = Finding::new(Reason::PodsMissing, target, cause);
    Some(match deletion::held(world, old) {
        Some(held) => finding.because_of(held),
        None => finding.underway(),
    })
}

/// What to do where a controller does not act.
pub(super) const CONTROLLERS: &str =
    "see that the controllers run: ferry controller-manager, or kube-controller-manager";

pub(super) fn is_paused(target: &Value) -> bool {
    target.pointer("/spec/paused").and_then(Value::as_bool) == Some(true)
}

/// When somebody last changed what is wanted of it.
pub(super) fn changed(target: &Value) -> Option<Timestamp> {
    let entries = object::items(target, "/metadata/managedFields").iter();
    // Its scale is written through a subresource, its status by the controller.
    let of_spec = |entry: &&Value| matches!(object::text(entry, "/subresource"), "" | "scale");
    entries.filter(of_spec).filter_map(|entry| time_at(entry, "/time")).max()
}

/// How many pods serve that it made, of whatever template.
pub(super) fn serving(world: &World, target: &Value) -> i64 {
    let sets = world.owned("replicasets", target);
    sets.flat_map(|set| world.owned("pods", set)).filter(|pod| pod::is_serving(pod)).count() as i64
}

/// A rollout goes on when the new pods have been ready for long enough.
pub(super) fn not_long_enough(world: &World, target: &Value, pods: &[&Value]) -> Option<Finding> {
    let least = number(target, "/spec/minReadySeconds");
    let since = |pod: &&&Value| time_at(standing(pod, "Ready", "True")?, "/lastTransitionTime");
    let left =
        pods.iter().filter_map(|pod| since(&pod)).map(|at| at.as_second() + least - world.now.as_second()).max()?;
    (least > 0 && left > 0).then(|| {
        let cause =
            format!("it goes on when its new pods have been ready for {least} s (minReadySeconds): {left} s to go");
        Finding::new(Reason::MinReadySeconds, target, cause).underway()
    })
}

/// Whether its controller should have made its pods by now: nothing has changed for a while that it waits for.
pub(super) fn is_late(world: &World, target: &Value, pods: &[&Value]) -> bool {
    let sets = world.owned("replicasets", target).filter_map(changed);
    let ready = pods.iter().filter_map(|pod| time_at(condition(pod, "Ready")?, "/lastTransitionTime"));
    let conditions = object::items(target, "/status/conditions").iter();
    let conditions = conditions.filter_map(|one| time_at(one, "/lastTransitionTime"));
    let last = changed(target).into_iter().chain(sets).chain(ready).chain(conditions).max();
    last.is_some_and(|at| !is_soon(world, at))
}

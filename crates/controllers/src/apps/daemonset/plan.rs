//! On which nodes pods are to be started and which pods are to go, and the status.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::pod::{Fit, fit, is_current, node_of};
use crate::common::number::{Round, count, scaled};
use crate::common::pod::{self, Availability};

/// What is observed of a DaemonSet.
pub(super) struct Observed<'a> {
    pub(super) set: &'a DaemonSet,
    pub(super) hash: &'a str,
    pub(super) nodes: &'a [Arc<Node>],
    /// The pods that are the set's, without those that are terminal and going.
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) now: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create_on: Vec<String>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods that failed: they go too, but not faster than their back-off allows.
    pub(super) failed: Vec<Arc<Pod>>,
}

type ByNode = BTreeMap<String, Vec<Arc<Pod>>>;

fn by_node(pods: &[Arc<Pod>]) -> ByNode {
    let mut map = ByNode::new();
    for pod in pods {
        if let Some(node) = node_of(pod) {
            map.entry(node).or_default().push(pod.clone());
        }
    }
    for pods in map.values_mut() {
        // Bound before unbound, then the oldest first.
        pods.sort_by_key(|pod| (pod::node(pod).is_empty(), pod.metadata.creation_timestamp.clone(), pod.name_any()));
    }
    map
}

fn rolling(set: &DaemonSet) -> bool {
    let kind = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    kind.is_none_or(|kind| kind == "RollingUpdate")
}

/// maxSurge and maxUnavailable in nodes; one of them is at least one.
fn bounds(set: &DaemonSet, desired: i32) -> (usize, usize) {
    if !rolling(set) {
        return (0, 0);
    }
    let update = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = update.and_then(|update| update.max_surge.as_ref()).map_or(0, |n| scaled(n, desired, Round::Up));
    let unavailable =
        update.and_then(|update| update.max_unavailable.as_ref()).map_or(1, |n| scaled(n, desired, Round::Up));
    let positive = |number: i32| usize::try_from(number).unwrap_or_default();
    let (surge, unavailable) = (positive(surge), positive(unavailable));
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

fn is_available(observed: &Observed<'_>, daemon: &Pod) -> bool {
    let seconds = observed.set.spec.min_ready_seconds.unwrap_or_default();
    pod::availability(daemon, seconds, observed.now) == Availability::Available
}

/// One pod where one should be, none where none should.
pub(super) fn manage(observed: &Observed<'_>) -> Plan {
    let mut plan = Plan::default();
    let pods = by_node(observed.pods);
    let surges = bounds(observed.set, 1).0 > 0;
    for node in observed.nodes {
        let name = node.name_any();
        let there = pods.get(&name).map(Vec::as_slice).unwrap_or_default();
        match fit(observed.set, node) {
            Fit { start: true, .. } if there.is_empty() => plan.create_on.push(name),
            Fit { stay: true, start } => keep(observed, &name, there, surges, start, &mut plan),
            Fit { stay: false, .. } => {
                plan.delete.extend(there.iter().filter(|pod| !pod::is_terminating(pod)).cloned())
            }
        }
    }
    // Meant for a node that is gone: nobody will ever bind them.
    for (node, there) in pods {
        if !observed.nodes.iter().any(|known| known.metadata.name.as_deref() == Some(&node)) {
            let unbound = there.into_iter().filter(|pod| pod::node(pod).is_empty() && !pod::is_terminating(pod));
            plan.delete.extend(unbound);
        }
    }
    plan
}

fn keep(observed: &Observed<'_>, node: &str, there: &[Arc<Pod>], surges: bool, start: bool, plan: &mut Plan) {
    let mut running: Vec<&Arc<Pod>> = Vec::new();
    for daemon in there.iter().filter(|pod| !pod::is_terminating(pod)) {
        match pod::phase(daemon) {
            "Failed" => plan.failed.push(daemon.clone()),
            "Succeeded" => plan.delete.push(daemon.clone()),
            _ => running.push(daemon),
        }
    }
    if !surges {
        plan.delete.extend(running.into_iter().skip(1).cloned());
        return;
    }
    if running.is_empty() && start && there.iter().all(|pod| pod::is_terminating(pod)) {
        plan.create_on.push(node.to_owned());
    }
    // A surge allows one new beside one old, until the new one is available or the old one is not ready.
    let (new, old): (Vec<_>, Vec<_>) =
        running.into_iter().partition(|pod| is_current(observed.set, observed.hash, pod));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!pod::is_ready(old) || is_available(observed, new))
    {
        plan.delete.push((*old).clone());
    }
    plan.delete.extend(new.into_iter().skip(1).chain(old.into_iter().skip(1)).cloned());
}

/// Replaces pods of older revisions as far as the bounds allow.
pub(super) fn update(observed: &Observed<'_>) -> Plan {
    let mut plan = Plan::default();
    if !rolling(observed.set) {
        return plan;
    }
    let starts = |name: &str| {
        let node = observed.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
        node.is_some_and(|node| fit(observed.set, node).start)
    };
    let desired = observed.nodes.iter().filter(|node| fit(observed.set, node).start).count();
    let (surge, unavailable) = bounds(observed.set, count(desired));
    let mut pods = by_node(observed.pods);
    for node in observed.nodes {
        let name = node.name_any();
        if starts(&name) {
            pods.entry(name).or_default();
        }
    }
    if surge == 0 {
        replace(observed, &pods, unavailable, &mut plan);
    } else {
        replace_with_surge(observed, &pods, surge, desired, &starts, &mut plan);
    }
    plan
}

/// The pods of a node that are not going: current and older.
fn split<'a>(observed: &Observed<'_>, there: &'a [Arc<Pod>]) -> (Vec<&'a Arc<Pod>>, Vec<&'a Arc<Pod>>) {
    let alive = there.iter().filter(|pod| !pod::is_terminating(pod));
    alive.partition(|pod| is_current(observed.set, observed.hash, pod))
}

fn replace(observed: &Observed<'_>, pods: &ByNode, allowed: usize, plan: &mut Plan) {
    let mut unavailable = 0;
    let mut candidates = Vec::new();
    for there in pods.values() {
        match split(observed, there) {
            (new, old) if new.is_empty() && old.len() == 1 => {
                if is_available(observed, old[0]) {
                    candidates.push(old[0].clone());
                } else {
                    unavailable += 1;
                    plan.delete.push(old[0].clone());
                }
            }
            (new, old) if new.len() == 1 && old.is_empty() && is_available(observed, new[0]) => {}
            _ => unavailable += 1,
        }
    }
    plan.delete.extend(candidates.into_iter().take(allowed.saturating_sub(unavailable)));
}

fn replace_with_surge(
    observed: &Observed<'_>,
    pods: &ByNode,
    surge: usize,
    desired: usize,
    starts: &dyn Fn(&str) -> bool,
    plan: &mut Plan,
) {
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    for (node, there) in pods {
        let (new, old) = split(observed, there);
        if new.len() > 1 || old.len() > 1 {
            surging += 1;
            continue;
        }
        let (new, old) = (new.first(), old.first());
        available += usize::from(old.or(new).is_some_and(|pod| is_available(observed, pod)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (starts(node), is_available(observed, old)) {
                (true, true) => candidates.push(node.clone()),
                (true, false) => plan.create_on.push(node.clone()),
                (false, true) => misplaced.push((*old).clone()),
                (false, false) => plan.delete.push((*old).clone()),
            },
            (Some(new), Some(old)) if is_available(observed, new) => plan.delete.push((*old).clone()),
            (Some(_), Some(_)) => surging += 1,
        }
    }
    plan.delete.extend(misplaced.into_iter().take(available.saturating_sub(desired)));
    plan.create_on.extend(candidates.into_iter().take(surge.saturating_sub(surging)));
}

/// The status, or none when it says all this already. `processed` is false while older writes are not yet seen.
pub(super) fn status(observed: &Observed<'_>, processed: bool) -> Option<DaemonSetStatus> {
    let old = observed.set.status.clone().unwrap_or_default();
    let pods = by_node(observed.pods);
    let mut new = DaemonSetStatus {
        desired_number_scheduled: 0,
        current_number_scheduled: 0,
        number_misscheduled: 0,
        number_ready: 0,
        observed_generation: if processed { observed.set.metadata.generation } else { old.observed_generation },
        conditions: old.conditions.clone(),
        collision_count: old.collision_count,
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for node in observed.nodes {
        let first = pods.get(&node.name_any()).and_then(|there| there.first());
        if !fit(observed.set, node).start {
            new.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        new.desired_number_scheduled += 1;
        let Some(daemon) = first else { continue };
        new.current_number_scheduled += 1;
        new.number_ready += i32::from(pod::is_ready(daemon));
        available += i32::from(is_available(observed, daemon));
        updated += i32::from(is_current(observed.set, observed.hash, daemon));
    }
    let positive = |number: i32| (number != 0).then_some(number);
    new.updated_number_scheduled = positive(updated);
    new.number_available = positive(available);
    new.number_unavailable = positive(new.desired_number_scheduled - available);
    let zeroless = DaemonSetStatus {
        updated_number_scheduled: old.updated_number_scheduled.and_then(positive),
        number_available: old.number_available.and_then(positive),
        number_unavailable: old.number_unavailable.and_then(positive),
        ..old
    };
    (new != zeroless).then_some(new)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(strategy: Value) -> DaemonSet {
        let json = json!({
            "metadata": { "name": "d", "namespace": "a", "uid": "u", "generation": 2 },
            "spec": {
                "selector": {}, "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": strategy },
                "template": { "spec": { "containers": [], "nodeSelector": { "daemon": "yes" } } },
            },
        });
        serde_json::from_value(json).expect("a DaemonSet")
    }

    fn node(name: &str, daemon: bool, taint: Option<&str>) -> Arc<Node> {
        let taints: Vec<Value> = taint.map(|effect| json!({ "key": "k", "effect": effect })).into_iter().collect();
        let label = if daemon { "yes" } else { "no" };
        let json = json!({ "metadata": { "name": name, "labels": { "daemon": label } }, "spec": { "taints": taints } });
        Arc::new(serde_json::from_value(json).expect("a node"))
    }

    /// `text` is `node hash state`, where state is a phase, `ready`, or `going`.
    fn pod(text: &str) -> Arc<Pod> {
        let [node, hash, state] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("three words") };
        let phase = if state == "ready" || state == "going" { "Running" } else { state };
        let ready = if state == "ready" { "True" } else { "False" };
        let json = json!({
            "metadata": {
                "name": text.replace(' ', "-"), "labels": { "controller-revision-hash": hash },
                "deletionTimestamp": (state == "going").then_some("2026-01-01T00:00:00Z"),
            },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] },
        });
        Arc::new(serde_json::from_value(json).expect("a pod"))
    }

    fn texts(plan: &Plan) -> (Vec<String>, Vec<String>) {
        let names = plan.delete.iter().chain(&plan.failed).map(|pod| pod.name_any()).collect();
        (plan.create_on.clone(), names)
    }

    fn check(step: fn(&Observed<'_>) -> Plan, strategy: Value, pods: &[&str], create: &[&str], delete: &[&str]) {
        let nodes = [
            node("n1", true, None),
            node("n2", true, None),
            node("n3", true, None),
            node("other", false, None),
            node("no-new", true, Some("NoSchedule")),
            node("out", true, Some("NoExecute")),
        ];
        let list: Vec<Arc<Pod>> = pods.iter().map(|text| pod(text)).collect();
        let set = set(strategy);
        let observed = Observed { set: &set, hash: "new", nodes: &nodes, pods: &list, now: Timestamp::UNIX_EPOCH };
        let made = step(&observed);
        let expected = |list: &[&str]| list.iter().map(|text| text.replace(' ', "-")).collect::<Vec<_>>();
        assert_eq!(texts(&made), (expected(create), expected(delete)), "{pods:?}");
    }

    #[test]
    fn one_pod_on_each_node_that_fits() {
        check(manage, json!({}), &[], &["n1", "n2", "n3"], &[]);
        check(manage, json!({}), &["n1 new ready", "n1 old ready"], &["n2", "n3"], &["n1 old ready"]);
        check(
            manage,
            json!({}),
            &["n1 new ready", "n2 new Failed", "n3 new going", "other new ready", "no-new new ready", "out new ready"],
            &[],
            &["other new ready", "out new ready", "n2 new Failed"],
        );
        check(
            manage,
            json!({ "maxSurge": 1, "maxUnavailable": 0 }),
            &["n1 new Running", "n1 old ready", "n2 new ready", "n2 old ready", "n3 old going"],
            &["n3"],
            &["n2 old ready"],
        );
    }

    #[test]
    fn updates_stay_within_bounds() {
        let old = &["n1 old ready", "n2 old ready", "n3 old ready"];
        check(update, json!({}), old, &[], &["n1 old ready"]);
        check(update, json!({ "maxUnavailable": 2 }), old, &[], &["n1 old ready", "n2 old ready"]);
        check(update, json!({}), &["n1 new Running", "n2 old ready", "n3 old ready"], &[], &[]);
        check(update, json!({}), &["n1 new ready", "n2 old Pending", "n3 old ready"], &[], &["n2 old Pending"]);
        check(update, json!({ "maxSurge": 1, "maxUnavailable": 0 }), old, &["n1"], &[]);
        check(
            update,
            json!({ "maxSurge": 1, "maxUnavailable": 0 }),
            &["n1 new ready", "n1 old ready", "n2 old ready", "n3 old Pending"],
            &["n3", "n2"],
            &["n1 old ready"],
        );
    }

    #[test]
    fn status_counts_nodes() {
        let nodes = [node("n1", true, None), node("n2", true, None), node("n3", false, None)];
        let pods = [pod("n1 new ready"), pod("n3 new ready")];
        let mut set = set(json!({}));
        let observed = Observed { set: &set, hash: "new", nodes: &nodes, pods: &pods, now: Timestamp::UNIX_EPOCH };
        let made = status(&observed, true).expect("a change");
        assert_eq!((made.desired_number_scheduled, made.current_number_scheduled, made.number_misscheduled), (2, 1, 1));
        assert_eq!((made.number_ready, made.number_available, made.number_unavailable), (1, Some(1), Some(1)));
        assert_eq!((made.updated_number_scheduled, made.observed_generation), (Some(1), Some(2)));
        set.status = Some(made);
        let observed = Observed { set: &set, hash: "new", nodes: &nodes, pods: &pods, now: Timestamp::UNIX_EPOCH };
        assert_eq!(status(&observed, true), None);
    }
}

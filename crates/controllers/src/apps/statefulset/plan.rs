//! What to do next with the pods of a StatefulSet: in order, one at a time, unless the set allows otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;

use super::pod as identity;
use crate::common::number::{Round, scaled};
use crate::common::pod::{self, Availability};

/// As many pods are made at once, as with a ReplicaSet.
const BURST: usize = 500;

/// A revision's name and template.
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: PodTemplateSpec,
}

pub(super) struct Observed<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) current: &'a Revision,
    pub(super) update: &'a Revision,
    pub(super) collisions: i32,
    pub(super) now: Timestamp,
}

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// With the claims of its ordinal.
    Create(Box<Pod>),
    /// Makes the claims that a pod waits for, should they have gone.
    Claim(Arc<Pod>),
    Delete(Arc<Pod>),
    /// A pod whose identity was changed by hand, put right.
    Correct(Box<Pod>),
}

fn min_ready(set: &StatefulSet) -> i32 {
    set.spec.min_ready_seconds.unwrap_or_default()
}

fn is_available(observed: &Observed<'_>, pod: &Pod) -> bool {
    pod::availability(pod, min_ready(observed.set), observed.now) == Availability::Available
}

/// Up, available and here to stay.
fn is_healthy(observed: &Observed<'_>, pod: &Pod) -> bool {
    is_available(observed, pod) && !pod::is_terminating(pod)
}

fn partition(set: &StatefulSet) -> Option<i32> {
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    rolling.map(|rolling| rolling.partition.unwrap_or_default())
}

/// The pod to make at an ordinal: of the current revision below the partition, of the new one from there on. With OnDelete it is
/// the new one everywhere: whoever deleted the pod wants that.
fn missing(observed: &Observed<'_>, ordinal: i32) -> Pod {
    let set = observed.set;
    let current = || set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
    let kept = partition(set).unwrap_or_else(|| if strategy(set) == "RollingUpdate" { current() } else { 0 });
    let of = if ordinal < identity::first(set).saturating_add(kept) { observed.current } else { observed.update };
    identity::make(set, &of.template, &of.name, ordinal)
}

pub(super) fn steps(observed: &Observed<'_>) -> Vec<Step> {
    let set = observed.set;
    let mut steps = Vec::new();
    if set.metadata.deletion_timestamp.is_some() {
        return steps;
    }
    let in_order = set.spec.pod_management_policy.as_deref() != Some("Parallel");
    let mut there: BTreeMap<i32, &Arc<Pod>> = BTreeMap::new();
    let mut condemned: BTreeMap<i32, &Arc<Pod>> = BTreeMap::new();
    for pod in observed.pods {
        match identity::ordinal(set, pod) {
            Some(ordinal) if identity::is_in_range(set, ordinal) => there.insert(ordinal, pod),
            Some(ordinal) => condemned.insert(ordinal, pod),
            None => None,
        };
    }
    let range = identity::first(set)..identity::first(set).saturating_add(identity::replicas(set));
    let mut made = 0;
    for ordinal in range {
        let Some(pod) = there.get(&ordinal) else {
            steps.push(Step::Create(Box::new(missing(observed, ordinal))));
            made += 1;
            // As many as somebody asks for need not fit into memory; those that start bring this about again.
            if in_order || made == BURST {
                return steps;
            }
            continue;
        };
        if pod::is_terminal(pod) {
            // Its successor is made once it is gone.
            if !pod::is_terminating(pod) {
                steps.push(Step::Delete((*pod).clone()));
            }
            if in_order {
                return steps;
            }
            continue;
        }
        if pod::phase(pod) == "Pending" && set.spec.volume_claim_templates.as_ref().is_some_and(|all| !all.is_empty()) {
            steps.push(Step::Claim((*pod).clone()));
        }
        if in_order && !is_healthy(observed, pod) {
            return steps;
        }
        if let Some(fixed) = identity::corrected(set, pod, ordinal) {
            steps.push(Step::Correct(Box::new(fixed)));
        }
    }
    // The highest goes first; in order, nothing goes while another one is not well.
    let first_unwell = there.values().chain(condemned.values()).find(|pod| !is_healthy(observed, pod));
    for pod in condemned.values().rev() {
        if in_order {
            let unwell = !is_available(observed, pod) && first_unwell.is_some_and(|first| !Arc::ptr_eq(first, pod));
            if !pod::is_terminating(pod) && !unwell {
                steps.push(Step::Delete((*pod).clone()));
            }
            return steps;
        }
        if !pod::is_terminating(pod) {
            steps.push(Step::Delete((*pod).clone()));
        }
    }
    if steps.iter().all(|step| matches!(step, Step::Claim(_))) && strategy(set) == "RollingUpdate" {
        roll(observed, &there, in_order, &mut steps);
    }
    steps
}

fn strategy(set: &StatefulSet) -> &str {
    let strategy = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    strategy.unwrap_or("RollingUpdate")
}

/// Pods of older revisions go, the highest first, as many as may be unavailable.
fn roll(observed: &Observed<'_>, there: &BTreeMap<i32, &Arc<Pod>>, in_order: bool, steps: &mut Vec<Step>) {
    let set = observed.set;
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let one = IntOrString::Int(1);
    let allowed = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
    let allowed = usize::try_from(scaled(allowed, identity::replicas(set), Round::Down).max(1)).unwrap_or(1);
    let lowest = identity::first(set).saturating_add(partition(set).unwrap_or_default());
    let is_old = |pod: &Pod| identity::revision(pod) != observed.update.name && !pod::is_terminating(pod);
    let unwell = there.values().filter(|pod| !is_healthy(observed, pod)).count();
    let mut left = allowed.saturating_sub(unwell);
    for (_, pod) in there.range(lowest..).rev().filter(|(_, pod)| is_old(pod)) {
        // In parallel, those that are down already cost nothing to replace.
        let free = !in_order && !is_healthy(observed, pod);
        if free || left > 0 {
            steps.push(Step::Delete((*pod).clone()));
            left -= usize::from(!free);
        }
    }
}

/// The status, or none when it says all this already.
pub(super) fn status(observed: &Observed<'_>) -> Option<StatefulSetStatus> {
    let set = observed.set;
    let old = set.status.clone().unwrap_or_default();
    let mine: Vec<&Arc<Pod>> = observed.pods.iter().filter(|pod| identity::ordinal(set, pod).is_some()).collect();
    let number = |matches: &dyn Fn(&Pod) -> bool| {
        let number = mine.iter().filter(|pod| matches(pod)).count();
        i32::try_from(number).unwrap_or(i32::MAX)
    };
    let of = |revision: &Revision| number(&|pod| identity::revision(pod) == revision.name && !pod::is_terminating(pod));
    let ready = number(&|pod| pod::phase(pod) == "Running" && pod::is_ready(pod));
    let (mut current, updated) = (of(observed.current), of(observed.update));
    let mut current_revision = observed.current.name.clone();
    let (all, wanted) = (number(&|_| true), identity::replicas(set));
    if updated == wanted && ready == wanted && all == wanted && strategy(set) != "OnDelete" {
        current = updated;
        current_revision.clone_from(&observed.update.name);
    }
    let positive = |number: i32| (number != 0).then_some(number);
    let new = StatefulSetStatus {
        replicas: all,
        ready_replicas: positive(ready),
        available_replicas: Some(number(&|pod| is_available(observed, pod))),
        current_replicas: positive(current),
        updated_replicas: positive(updated),
        current_revision: Some(current_revision),
        update_revision: Some(observed.update.name.clone()),
        observed_generation: set.metadata.generation,
        collision_count: Some(observed.collisions),
        conditions: old.conditions.clone(),
    };
    let zeroless = StatefulSetStatus {
        ready_replicas: old.ready_replicas.and_then(positive),
        available_replicas: Some(old.available_replicas.unwrap_or_default()),
        current_replicas: old.current_replicas.and_then(positive),
        updated_replicas: old.updated_replicas.and_then(positive),
        collision_count: Some(old.collision_count.unwrap_or_default()),
        ..old
    };
    (new != zeroless).then_some(new)
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    fn set(spec: Value) -> StatefulSet {
        let mut json = json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "s", "generation": 1 },
            "spec": {
                "replicas": 3, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [] } },
                "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            },
            "status": { "replicas": 3, "currentReplicas": 3 },
        });
        for (key, value) in spec.as_object().expect("a spec") {
            json["spec"][key] = value.clone();
        }
        serde_json::from_value(json).expect("a set")
    }

    /// `text` is `ordinal revision state`; the state is a phase, `ready` or `going`.
    fn pod(text: &str) -> Arc<Pod> {
        let [ordinal, revision, state] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("three words") };
        let phase = if ["ready", "going"].contains(&state) { "Running" } else { state };
        let ready = if ["ready", "going"].contains(&state) { "True" } else { "False" };
        let json = json!({
            "metadata": {
                "name": format!("web-{ordinal}"),
                "labels": { "controller-revision-hash": revision, "statefulset.kubernetes.io/pod-name": format!("web-{ordinal}") },
                "deletionTimestamp": (state == "going").then_some("2026-01-01T00:00:00Z"),
            },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] },
        });
        Arc::new(serde_json::from_value(json).expect("a pod"))
    }

    fn check(spec: Value, pods: &[&str], expected: &[&str]) {
        let set = set(spec.clone());
        let list: Vec<Arc<Pod>> = pods.iter().map(|text| pod(text)).collect();
        let template = set.spec.template.clone();
        let (current, update) =
            (Revision { name: "old".into(), template: template.clone() }, Revision { name: "new".into(), template });
        let now = Timestamp::UNIX_EPOCH;
        let observed = Observed { set: &set, pods: &list, current: &current, update: &update, collisions: 0, now };
        let made: Vec<String> = steps(&observed)
            .iter()
            .map(|step| match step {
                Step::Create(pod) => format!("+{} {}", pod.name_any(), identity::revision(pod)),
                Step::Claim(pod) => format!("?{}", pod.name_any()),
                Step::Delete(pod) => format!("-{}", pod.name_any()),
                Step::Correct(pod) => format!("~{}", pod.name_any()),
            })
            .collect();
        assert_eq!(made, expected, "{spec} {pods:?}");
    }

    #[test]
    fn pods_come_and_go_in_order() {
        check(json!({}), &[], &["+web-0 new"]);
        check(json!({}), &["0 new Pending"], &[]);
        check(json!({}), &["0 new ready"], &["+web-1 new"]);
        check(json!({}), &["0 new ready", "1 new Failed"], &["-web-1"]);
        check(json!({ "podManagementPolicy": "Parallel" }), &["0 new Pending"], &["+web-1 new", "+web-2 new"]);
        check(json!({ "replicas": 1 }), &["0 new ready", "1 new ready", "2 new ready"], &["-web-2"]);
        check(json!({ "replicas": 1 }), &["0 new ready", "1 new ready", "2 new going"], &[]);
        check(json!({ "replicas": 1 }), &["0 new Pending", "1 new ready", "2 new ready"], &[]);
        check(json!({ "replicas": 1 }), &["0 new ready", "1 new Pending", "2 new Pending"], &[]);
        check(
            json!({ "replicas": 1, "podManagementPolicy": "Parallel" }),
            &["0 new ready", "1 new ready", "2 new ready"],
            &["-web-2", "-web-1"],
        );
        check(json!({ "ordinals": { "start": 5 }, "replicas": 1 }), &[], &["+web-5 new"]);
        check(json!({ "ordinals": { "start": 5 }, "replicas": 1 }), &["0 new ready", "5 new ready"], &["-web-0"]);
    }

    #[test]
    fn any_number_of_replicas_is_begun() {
        let set = set(json!({ "podManagementPolicy": "Parallel", "replicas": i32::MAX, "ordinals": { "start": 7 } }));
        let revision = |name: &str| Revision { name: name.into(), template: set.spec.template.clone() };
        let (current, update) = (revision("old"), revision("new"));
        let pods = [pod("7 new Pending")];
        let now = Timestamp::UNIX_EPOCH;
        let observed = Observed { set: &set, pods: &pods, current: &current, update: &update, collisions: 0, now };
        let made = steps(&observed);
        assert_eq!(made.len(), BURST);
        assert!(matches!(&made[0], Step::Create(pod) if pod.name_any() == "web-8"));
    }

    #[test]
    fn updates_go_from_the_top() {
        let rolling =
            |rolling: Value| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
        let old = &["0 old ready", "1 old ready", "2 old ready"];
        check(json!({}), old, &["-web-2"]);
        check(json!({}), &["0 old ready", "1 old ready", "2 new Pending"], &[]);
        check(json!({}), &["0 old ready", "1 old ready", "2 new ready"], &["-web-1"]);
        check(rolling(json!({ "partition": 2 })), &["0 old ready", "1 old ready", "2 new ready"], &[]);
        check(rolling(json!({ "partition": 2 })), &["0 old ready"], &["+web-1 old"]);
        check(rolling(json!({ "partition": 0, "maxUnavailable": 2 })), old, &["-web-2", "-web-1"]);
        check(json!({ "updateStrategy": { "type": "OnDelete" } }), old, &[]);
        check(json!({ "updateStrategy": { "type": "OnDelete" } }), &["1 old ready", "2 old ready"], &["+web-0 new"]);
        check(
            json!({ "updateStrategy": { "type": "RollingUpdate" } }),
            &["1 old ready", "2 old ready"],
            &["+web-0 old"],
        );
        // In parallel, those that are down go whatever the number, and those that are up only within it.
        let parallel = |more: Value| {
            let mut spec = rolling(more);
            spec["podManagementPolicy"] = "Parallel".into();
            spec
        };
        let down = &["0 old Pending", "1 old ready", "2 old ready"];
        check(parallel(json!({ "maxUnavailable": 1 })), down, &["-web-0"]);
        check(parallel(json!({ "maxUnavailable": 2 })), down, &["-web-2", "-web-0"]);
        check(parallel(json!({ "maxUnavailable": 1, "partition": 1 })), down, &[]);
        check(parallel(json!({})), &["0 old Pending", "1 old Pending", "2 old ready"], &["-web-1", "-web-0"]);
        check(parallel(json!({})), &["0 old ready", "1 old ready", "2 new Pending"], &[]);
    }

    #[test]
    fn a_pod_that_waits_has_its_claims_made_again() {
        let claims = json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] });
        check(claims.clone(), &["0 new Pending"], &["?web-0"]);
        check(claims.clone(), &["0 new ready"], &["+web-1 new"]);
        let names = ["data-web-0", "data-web-12", "data-web-", "data-web-a-1", "data-other-0", "logs-web-0"];
        let set = set(claims);
        let known: Vec<bool> = names.iter().map(|name| identity::may_be_claim(&set, name)).collect();
        assert_eq!(known, [true, true, false, false, false, false]);
    }

    #[test]
    fn a_pod_has_a_name_and_volumes_of_its_own() {
        let set = set(json!({ "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] }));
        let made = identity::make(&set, &set.spec.template, "r", 4);
        let spec = made.spec.expect("a spec");
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-4"), Some("web")));
        let claim = spec.volumes.expect("volumes")[0].persistent_volume_claim.clone().expect("a claim");
        assert_eq!(claim.claim_name, "data-web-4");
        let labels = made.metadata.labels.expect("labels");
        assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-4");
        assert_eq!(labels["apps.kubernetes.io/pod-index"], "4");
        assert_eq!(identity::claims(&set, 4)[0].1.labels()["app"], "web");
    }
}

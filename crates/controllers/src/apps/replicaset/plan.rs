//! What a ReplicaSet needs, as a function of what is observed.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::owner::ReplicaOwner;
use super::victims;
use crate::common::conditions;
use crate::common::number::count;
use crate::common::pod::{self, Availability};
use crate::common::selector::Selector;

/// Pods created or deleted at most in one reconciliation.
const BURST: usize = 500;
const FAILURE: &str = "ReplicaFailure";

#[derive(Debug)]
pub(super) enum Plan {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// `related` are the active pods of all owners with the same controller: those on a crowded node go first.
pub(super) fn plan<Owner: ReplicaOwner>(
    owner: &Owner,
    active: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Plan {
    let wanted = usize::try_from(owner.replicas()).unwrap_or_default();
    if active.len() < wanted {
        Plan::Create((wanted - active.len()).min(BURST))
    } else if active.len() > wanted {
        let surplus = (active.len() - wanted).min(BURST);
        Plan::Delete(victims::choose(active, related, surplus, now))
    } else {
        Plan::Nothing
    }
}

/// The status to write, or none when it says all this already. `failure` is why pods could not be made or deleted.
pub(super) fn status<Owner: ReplicaOwner>(
    owner: &Owner,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&str>,
    now: Timestamp,
) -> Option<ReplicaSetStatus> {
    let old = owner.status();
    let template_labels = owner.template().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let full = Selector::of_labels(template_labels);
    let number = |matches: &dyn Fn(&Pod) -> bool| count(active.iter().filter(|pod| matches(pod)).count());
    let available = |pod: &Pod| pod::availability(pod, owner.min_ready_seconds(), now) == Availability::Available;
    let mut new = ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: positive(number(&|pod| full.matches(pod.metadata.labels.as_ref()))),
        ready_replicas: positive(number(&pod::is_ready)),
        available_replicas: positive(number(&available)),
        terminating_replicas: Owner::COUNTS_TERMINATING.then(|| count(terminating)),
        observed_generation: owner.meta().generation,
        conditions: old.conditions.clone(),
    };
    match failure {
        Some(message) if conditions::find(old.conditions.as_ref(), FAILURE).is_none() => {
            let lacking = active.len() < usize::try_from(owner.replicas()).unwrap_or_default();
            let condition = ReplicaSetCondition {
                type_: Some(FAILURE.into()),
                status: Some("True".into()),
                reason: Some(if lacking { "FailedCreate" } else { "FailedDelete" }.into()),
                message: Some(message.into()),
                last_transition_time: Some(Time(now)),
            };
            conditions::set(&mut new.conditions, condition);
        }
        None => conditions::remove(&mut new.conditions, FAILURE),
        Some(_) => {}
    }
    (normalised(&old) != new).then_some(new)
}

/// Counters of zero are left out on the wire.
fn positive(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

fn normalised(status: &ReplicaSetStatus) -> ReplicaSetStatus {
    let field = |number: Option<i32>| number.filter(|number| *number != 0);
    ReplicaSetStatus {
        fully_labeled_replicas: field(status.fully_labeled_replicas),
        ready_replicas: field(status.ready_replicas),
        available_replicas: field(status.available_replicas),
        conditions: status.conditions.clone().filter(|list| !list.is_empty()),
        ..status.clone()
    }
}

/// When the next ready pod becomes available, if `minReadySeconds` makes one wait.
pub(super) fn next_availability<Owner: ReplicaOwner>(
    owner: &Owner,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<Duration> {
    let left = active.iter().filter_map(|pod| match pod::availability(pod, owner.min_ready_seconds(), now) {
        Availability::After(left) => Some(left),
        Availability::NotReady | Availability::Available => None,
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    fn owner(replicas: i32) -> ReplicaSet {
        let json = serde_json::json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "u", "generation": 3 },
            "spec": {
                "replicas": replicas, "minReadySeconds": 10, "selector": { "matchLabels": { "a": "b" } },
                "template": { "metadata": { "labels": { "a": "b", "c": "d" } } },
            },
        });
        serde_json::from_value(json).expect("a ReplicaSet")
    }

    /// `ready` is the second since which the pod is ready.
    fn pod(labels: &str, ready: Option<i64>) -> Arc<Pod> {
        let conditions = ready.map(|second| {
            let at = Timestamp::from_second(second).expect("a time").to_string();
            serde_json::json!([{ "type": "Ready", "status": "True", "lastTransitionTime": at }])
        });
        let labels: serde_json::Value = serde_json::from_str(labels).expect("labels");
        let json = serde_json::json!({ "metadata": { "labels": labels }, "status": { "conditions": conditions } });
        Arc::new(serde_json::from_value(json).expect("a pod"))
    }

    fn check(wanted: i32, there: usize, expected: &str) {
        let pods: Vec<Arc<Pod>> = (0..there).map(|_| pod("{}", None)).collect();
        let text = match plan(&owner(wanted), &pods, Vec::new, Timestamp::UNIX_EPOCH) {
            Plan::Nothing => "nothing".to_owned(),
            Plan::Create(number) => format!("+{number}"),
            Plan::Delete(victims) => format!("-{}", victims.len()),
        };
        assert_eq!(text, expected, "{there} of {wanted}");
    }

    #[test]
    fn pods_are_made_and_deleted_up_to_the_number() {
        check(3, 3, "nothing");
        check(3, 0, "+3");
        check(0, 2, "-2");
        check(2000, 10, "+500");
        check(1, 1000, "-500");
        check(-1, 0, "nothing");
    }

    #[test]
    fn status_counts_and_comes_to_rest() {
        let now = Timestamp::from_second(1000).expect("a time");
        let mut set = owner(4);
        let pods =
            [pod(r#"{"a":"b","c":"d"}"#, Some(900)), pod(r#"{"a":"b"}"#, Some(995)), pod(r#"{"a":"b","c":"d"}"#, None)];
        let status = status(&set, &pods, 2, None, now).expect("a change");
        assert_eq!(
            (status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas),
            (3, Some(2), Some(2), Some(1))
        );
        assert_eq!((status.terminating_replicas, status.observed_generation), (Some(2), Some(3)));
        assert_eq!(next_availability(&set, &pods, now), Some(Duration::from_secs(5)));
        set.set_status(status);
        assert_eq!(super::status(&set, &pods, 2, None, now), None);
        let failed = super::status(&set, &pods, 2, Some("no quota"), now).expect("a condition");
        assert_eq!(failed.conditions.as_ref().map(|list| list[0].reason.as_deref()), Some(Some("FailedCreate")));
        set.set_status(failed);
        assert_eq!(super::status(&set, &pods, 2, Some("still no quota"), now), None);
        let healed = super::status(&set, &pods, 2, None, now).expect("a change");
        assert_eq!(healed.conditions, None);
    }
}

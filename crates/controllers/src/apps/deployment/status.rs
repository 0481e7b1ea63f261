//! The status of a Deployment: counts, and conditions with upstream's reasons and words.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSetCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::plan::{Draft, Set};
use super::revision::REVISION;
use super::scale;
use crate::common::conditions;
use crate::common::number::total;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const COMPLETE: &str = "NewReplicaSetAvailable";

/// progressDeadlineSeconds, where progress is to be watched.
pub(super) fn deadline(draft: &Draft) -> Option<i32> {
    draft.spec().progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

pub(super) fn progressing(draft: &Draft) -> Option<&DeploymentCondition> {
    conditions::find(draft.deployment.status.as_ref()?.conditions.as_ref(), PROGRESSING)
}

pub(super) fn set_progressing(draft: &mut Draft, state: &str, reason: &str, message: String) {
    let condition = condition(PROGRESSING, state, reason, message, draft.now);
    conditions::set(&mut draft.deployment.status.get_or_insert_default().conditions, condition);
}

fn condition(kind: &str, state: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(kind.into()),
        status: Some(state.into()),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Pausing and resuming stop the clock of the progress deadline.
pub(super) fn note_pause(draft: &mut Draft) {
    if deadline(draft).is_none() {
        return;
    }
    let reason = progressing(draft).and_then(|condition| condition.reason.clone());
    if reason.as_deref() == Some(TIMED_OUT) {
        return;
    }
    let (paused, was_paused) = (draft.spec().paused == Some(true), reason.as_deref() == Some("DeploymentPaused"));
    if paused && !was_paused {
        set_progressing(draft, "Unknown", "DeploymentPaused", "Deployment is paused".into());
    } else if !paused && was_paused {
        set_progressing(draft, "Unknown", "DeploymentResumed", "Deployment is resumed".into());
    }
}

/// The counts and the Available condition; the other conditions as they are in the draft.
pub(super) fn counted(draft: &mut Draft) -> DeploymentStatus {
    let positive = |number: i32| (number > 0).then_some(number);
    let drafted = draft.deployment.status.clone().unwrap_or_default();
    let available = total(draft.all().map(Set::available));
    let all = total(draft.all().map(Set::replicas));
    let ready = |set: &Set| set.set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: draft.deployment.metadata.generation,
        replicas: positive(total(draft.all().map(Set::actual))),
        updated_replicas: positive(draft.new.as_ref().map_or(0, Set::actual)),
        ready_replicas: positive(total(draft.all().map(ready))),
        available_replicas: positive(available),
        unavailable_replicas: positive(all.saturating_sub(available)),
        terminating_replicas: terminating(draft),
        collision_count: drafted.collision_count,
        conditions: drafted.conditions.filter(|list| !list.is_empty()),
    };
    let enough = available >= draft.replicas() - scale::max_unavailable(draft);
    let (state, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    conditions::set(&mut status.conditions, condition(AVAILABLE, state, reason, message.into(), draft.now));
    status
}

/// Unknown as soon as one ReplicaSet that was looked at does not tell.
fn terminating(draft: &Draft) -> Option<i32> {
    let mut sum = 0;
    for set in draft.all() {
        let status = set.set.status.as_ref();
        match status.and_then(|status| status.terminating_replicas) {
            Some(number) => sum += number,
            None if status.and_then(|status| status.observed_generation).unwrap_or_default() == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

pub(super) fn is_complete(draft: &Draft, status: &DeploymentStatus) -> bool {
    let wanted = draft.replicas();
    let all = [status.updated_replicas, status.replicas, status.available_replicas];
    all.into_iter().all(|number| number.unwrap_or_default() == wanted)
        && status.observed_generation >= draft.deployment.metadata.generation
}

/// More new, fewer old, more ready or more available than the status said before.
fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let number = |number: Option<i32>| number.unwrap_or_default();
    let old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    number(after.updated_replicas) > number(before.updated_replicas)
        || old(after) < old(before)
        || number(after.ready_replicas) > number(before.ready_replicas)
        || number(after.available_replicas) > number(before.available_replicas)
}

/// How long until the deadline for progress; zero when it has passed.
fn time_left(draft: &Draft, progressing: Option<&DeploymentCondition>) -> Option<Duration> {
    let updated = progressing?.last_update_time.as_ref()?.0;
    let passed = Duration::try_from(draft.now.duration_since(updated)).unwrap_or_default();
    let seconds = u64::try_from(deadline(draft)?).unwrap_or_default();
    Some(Duration::from_secs(seconds).saturating_sub(passed))
}

/// The counts, and the Progressing and ReplicaFailure conditions of a rollout.
pub(super) fn of_rollout(draft: &mut Draft) -> DeploymentStatus {
    let mut status = counted(draft);
    if deadline(draft).is_none() {
        conditions::remove(&mut status.conditions, PROGRESSING);
    } else {
        estimate(draft, &mut status);
    }
    match failure(draft) {
        Some(failure) => conditions::set(&mut status.conditions, failure),
        None => conditions::remove(&mut status.conditions, FAILURE),
    }
    status
}

fn estimate(draft: &Draft, status: &mut DeploymentStatus) {
    let current = progressing(draft).cloned();
    let reason = current.as_ref().and_then(|condition| condition.reason.as_deref()).unwrap_or_default();
    if status.replicas == status.updated_replicas && reason == COMPLETE {
        return;
    }
    let subject = match &draft.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.name()),
        None => format!("Deployment \"{}\"", draft.name()),
    };
    let before = draft.observed.status.clone().unwrap_or_default();
    if is_complete(draft, status) {
        let message = format!("{subject} has successfully progressed.");
        conditions::set(&mut status.conditions, condition(PROGRESSING, "True", COMPLETE, message, draft.now));
    } else if has_progressed(&before, status) {
        let message = format!("{subject} is progressing.");
        let mut new = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, draft.now);
        if let Some(current) = current.filter(|current| current.status.as_deref() == Some("True")) {
            new.last_transition_time = current.last_transition_time;
        }
        // Its time of update must move even when the reason stays: the deadline counts from there.
        conditions::remove(&mut status.conditions, PROGRESSING);
        conditions::set(&mut status.conditions, new);
    } else if reason != COMPLETE
        && (reason == TIMED_OUT || time_left(draft, current.as_ref()).is_some_and(|left| left.is_zero()))
    {
        let message = format!("{subject} has timed out progressing.");
        conditions::set(&mut status.conditions, condition(PROGRESSING, "False", TIMED_OUT, message, draft.now));
    }
}

/// The new ReplicaSet's failure, or any other's.
fn failure(draft: &Draft) -> Option<DeploymentCondition> {
    let of = |set: &Set| conditions::find(set.set.status.as_ref()?.conditions.as_ref(), FAILURE).cloned();
    let found: ReplicaSetCondition = draft.new.as_ref().and_then(of).or_else(|| draft.old.iter().find_map(of))?;
    Some(DeploymentCondition {
        type_: found.type_,
        status: found.status,
        reason: found.reason,
        message: found.message,
        last_update_time: found.last_transition_time.clone(),
        last_transition_time: found.last_transition_time,
    })
}

/// When to look whether the deadline has passed.
pub(super) fn next_check(draft: &Draft, status: &DeploymentStatus) -> Option<Duration> {
    let current = conditions::find(status.conditions.as_ref(), PROGRESSING);
    let reason = current.and_then(|condition| condition.reason.as_deref()).unwrap_or_default();
    if is_complete(draft, status) || reason == TIMED_OUT || reason == COMPLETE {
        return None;
    }
    Some(time_left(draft, current)? + Duration::from_secs(1))
}

/// A new ReplicaSet could not be created.
pub(super) fn creation_failed(deployment: &mut Deployment, message: String, now: Timestamp) {
    let watched = deployment.spec.progress_deadline_seconds;
    if watched.is_some_and(|seconds| seconds != i32::MAX) {
        let condition = condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now);
        conditions::set(&mut deployment.status.get_or_insert_default().conditions, condition);
    }
}

/// Whether there is anything to write.
pub(super) fn differs(observed: &Deployment, planned: &Deployment) -> bool {
    let status = |deployment: &Deployment| {
        let status = deployment.status.clone().unwrap_or_default();
        let positive = |number: Option<i32>| number.filter(|number| *number != 0);
        DeploymentStatus {
            replicas: positive(status.replicas),
            updated_replicas: positive(status.updated_replicas),
            ready_replicas: positive(status.ready_replicas),
            available_replicas: positive(status.available_replicas),
            unavailable_replicas: positive(status.unavailable_replicas),
            conditions: status.conditions.filter(|list| !list.is_empty()),
            ..status
        }
    };
    status(observed) != status(planned) || observed.annotations().get(REVISION) != planned.annotations().get(REVISION)
}

//! The status of a Job: its conditions, its deadline, and moving uids into counters.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// How a Job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    failure: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    pub(super) fn failed(reason: &str, message: &str) -> Self {
        Self { failure: true, reason: reason.into(), message: message.into() }
    }

    /// A success policy is met.
    pub(super) fn enough(message: &str) -> Self {
        Self { failure: false, reason: "SuccessPolicy".into(), message: message.into() }
    }

    /// All completions are there.
    pub(super) fn reached() -> Self {
        let message = "Reached expected number of succeeded pods".into();
        Self { failure: false, reason: "CompletionsReached".into(), message }
    }

    pub(super) fn is_failure(&self) -> bool {
        self.failure
    }
}

pub(super) fn time(at: Timestamp) -> Time {
    Time(at)
}

pub(super) fn positive(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

fn is_true<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|known| known.type_ == kind && known.status == "True")
}

fn set(status: &mut JobStatus, kind: &str, state: &str, reason: &str, message: &str, now: Timestamp) {
    let condition = JobCondition {
        type_: kind.into(),
        status: state.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let list = status.conditions.get_or_insert_default();
    match list.iter_mut().find(|known| known.type_ == kind) {
        Some(known) if known.status == state => {}
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}

/// The end that was decided on before, while its pods were still being counted.
pub(super) fn announced(status: &JobStatus) -> Option<End> {
    let end = |condition: &JobCondition, failure: bool| End {
        failure,
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    };
    let success = is_true(status, "SuccessCriteriaMet").map(|condition| end(condition, false));
    success.or_else(|| is_true(status, "FailureTarget").map(|condition| end(condition, true)))
}

/// Writes the decision down before the pods that led to it go.
pub(super) fn announce(status: &mut JobStatus, end: &End, now: Timestamp) {
    let kind = if end.failure { "FailureTarget" } else { "SuccessCriteriaMet" };
    set(status, kind, "True", &end.reason, &end.message, now);
}

/// The last word, once nothing is uncounted and nothing is going any more. False when it is too early.
pub(super) fn finish(status: &mut JobStatus, end: &End, now: Timestamp) -> bool {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let some = |list: Option<Vec<String>>| list.is_some_and(|list| !list.is_empty());
    if some(uncounted.succeeded) || some(uncounted.failed) || status.terminating.unwrap_or_default() > 0 {
        return false;
    }
    set(status, if end.failure { "Failed" } else { "Complete" }, "True", &end.reason, &end.message, now);
    if !end.failure {
        status.completion_time = Some(Time(now));
    }
    true
}

/// Moves uids without a finalizer into the counters.
pub(super) fn settle(status: &mut JobStatus, tracked: &HashSet<String>) {
    let indexed = status.completed_indexes.is_some();
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let moved = |list: &mut Option<Vec<String>>| {
        let list = list.get_or_insert_default();
        let before = list.len();
        list.retain(|uid| tracked.contains(uid));
        i32::try_from(before - list.len()).unwrap_or(i32::MAX)
    };
    let (succeeded, failed) = (moved(&mut uncounted.succeeded), moved(&mut uncounted.failed));
    // Successes of indexes are counted by their index.
    if !indexed {
        status.succeeded = positive(status.succeeded.unwrap_or_default().saturating_add(succeeded));
    }
    status.failed = positive(status.failed.unwrap_or_default().saturating_add(failed));
}

/// What is left of activeDeadlineSeconds, where there is one and the Job is not suspended.
pub(super) fn deadline_left(job: &Job, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let spec = job.spec.as_ref()?;
    let seconds = u64::try_from(spec.active_deadline_seconds?).unwrap_or_default();
    if spec.suspend == Some(true) {
        return None;
    }
    let passed = Duration::try_from(now.duration_since(status.start_time.as_ref()?.0)).unwrap_or_default();
    Some(Duration::from_secs(seconds).saturating_sub(passed))
}

/// Notes that the Job was suspended or resumed, with the event for it.
pub(super) fn note_suspension(
    status: &mut JobStatus,
    suspended: bool,
    now: Timestamp,
) -> Option<(&'static str, &'static str)> {
    let was = is_true(status, "Suspended").is_some();
    if suspended && !was {
        set(status, "Suspended", "True", "JobSuspended", "Job suspended", now);
        status.start_time = None;
        return Some(("Suspended", "Job suspended"));
    }
    if !suspended && was {
        set(status, "Suspended", "False", "JobResumed", "Job resumed", now);
        status.start_time = Some(Time(now));
        return Some(("Resumed", "Job resumed"));
    }
    None
}

/// Empty lists and zeros as they stand on the wire.
pub(super) fn normalised(status: &JobStatus) -> JobStatus {
    let mut status = status.clone();
    for field in [&mut status.active, &mut status.succeeded, &mut status.failed] {
        *field = field.filter(|number| *number != 0);
    }
    if let Some(uncounted) = &mut status.uncounted_terminated_pods {
        for list in [&mut uncounted.succeeded, &mut uncounted.failed] {
            *list = list.take().filter(|list| !list.is_empty());
        }
    }
    status.conditions = status.conditions.filter(|list| !list.is_empty());
    status
}

//! What a Job needs next: whether it has ended, which pods to start and to stop, which of them to count.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::backoff::{self, Record};
use super::indexes::Indexes;
use super::pod as job_pod;
use super::policy::{self, PodFailurePolicyAction};
use super::status::{self, End};
use super::tally::{Tally, tally};
use crate::common::number::total;
use crate::common::pod;

/// Pods started or stopped in one reconciliation at most.
const BURST: usize = 500;
/// Uids in the status at most, so that it stays small.
const UNCOUNTED: usize = 500;

/// What is observed of a Job.
pub(super) struct Observed<'a> {
    pub(super) job: &'a Job,
    pub(super) pods: &'a [Arc<Pod>],
    /// Pods whose finalizer we removed and whose change has not been seen yet.
    pub(super) released: &'a HashSet<String>,
    /// Whether all pods we started and stopped have been seen.
    pub(super) settled: bool,
    pub(super) record: Record,
    pub(super) now: Timestamp,
}

impl Observed<'_> {
    pub(super) fn spec(&self) -> JobSpec {
        self.job.spec.clone().unwrap_or_default()
    }

    /// Still to be counted.
    pub(super) fn is_tracked(&self, pod: &Pod) -> bool {
        job_pod::is_tracked(pod) && !self.released.contains(pod.metadata.uid.as_deref().unwrap_or_default())
    }
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<Pod>,
    /// To be stopped without being counted.
    pub(super) discard: Vec<Arc<Pod>>,
    /// To be stopped and counted as failed, since the Job has ended.
    pub(super) stop: Vec<Arc<Pod>>,
    /// To be let go once the status is written.
    pub(super) release: Vec<Arc<Pod>>,
    /// To be written before anything is let go.
    pub(super) status: JobStatus,
    /// How the Job has ended, once all is counted.
    pub(super) end: Option<End>,
    pub(super) record: Record,
    pub(super) again: Option<Duration>,
    pub(super) events: Vec<(&'static str, &'static str)>,
}

pub(super) fn plan(observed: &Observed<'_>) -> Plan {
    let job = observed.job;
    let mut plan = Plan { status: job.status.clone().unwrap_or_default(), ..Plan::default() };
    plan.status.uncounted_terminated_pods.get_or_insert_default();
    let tally = tally(observed);
    plan.record = tally.record;
    let suspended = tally.spec.suspend == Some(true);
    if plan.status.start_time.is_none() && !suspended {
        plan.status.start_time = Some(status::time(observed.now));
    }
    let mut end = ended(observed, &tally, &plan.status);
    if let (None, Some(left)) = (&end, status::deadline_left(job, &plan.status, observed.now)) {
        plan.again = Some(left);
    }
    if end.is_some() {
        plan.stop = tally.active.iter().map(|pod| (*pod).clone()).collect();
        // Pods that have not been seen yet may still hold a finalizer.
        if !observed.settled {
            end = None;
        }
    } else {
        let manages = observed.settled && job.metadata.deletion_timestamp.is_none();
        if manages {
            manage(observed, &tally, &mut plan);
        }
        let left = tally.active.len() + plan.create.len() - plan.discard.len().min(tally.active.len());
        let complete = match tally.spec.completions {
            None => tally.succeeded > 0 && left == 0,
            Some(completions) => tally.succeeded >= completions && left == 0,
        };
        if complete {
            end = Some(End::reached());
        } else if manages {
            plan.events.extend(status::note_suspension(&mut plan.status, suspended, observed.now));
        }
    }
    count(observed, &tally, &mut end, &mut plan);
    plan.end = end;
    plan
}

/// Whether and how the Job has ended, apart from having all its completions.
fn ended(observed: &Observed<'_>, tally: &Tally<'_>, status: &JobStatus) -> Option<End> {
    if let Some(end) = status::announced(status) {
        return Some(end);
    }
    let (job, spec) = (observed.job, &tally.spec);
    for pod in observed.pods.iter().filter(|pod| job_pod::has_failed(job, pod)) {
        if let PodFailurePolicyAction::FailJob(message) = policy::judge(job, pod) {
            return Some(End::failed("PodFailurePolicy", &message));
        }
    }
    if tally.failed > spec.backoff_limit.unwrap_or(6) || restarted_too_often(observed, spec) {
        return Some(End::failed("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if status::deadline_left(job, status, observed.now) == Some(Duration::ZERO) {
        return Some(End::failed("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    if let Some(failed) = &tally.failed_indexes {
        if spec.max_failed_indexes.is_some_and(|most| failed.total() > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(End::failed("MaxFailedIndexesExceeded", message));
        }
        let all = failed.total() + tally.succeeded_indexes.total();
        if failed.total() > 0 && all >= spec.completions.unwrap_or_default() {
            return Some(End::failed("FailedIndexes", "Job has failed indexes"));
        }
    }
    if tally.indexed {
        policy::success(job, &tally.succeeded_indexes).map(|message| End::enough(&message))
    } else {
        None
    }
}

/// Containers that restart in place count too.
fn restarted_too_often(observed: &Observed<'_>, spec: &JobSpec) -> bool {
    if spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = observed.pods.iter().filter(|pod| ["Running", "Pending"].contains(&pod::phase(pod)));
    let statuses = running.flat_map(|pod| {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let init = status.and_then(|status| status.init_container_statuses.as_ref());
        containers.into_iter().chain(init).flatten()
    });
    let restarts = total(statuses.map(|status| status.restart_count));
    match spec.backoff_limit.unwrap_or(6) {
        0 => restarts > 0,
        limit => restarts >= limit,
    }
}

/// Starts and stops pods; never both at once.
fn manage(observed: &Observed<'_>, tally: &Tally<'_>, plan: &mut Plan) {
    let spec = &tally.spec;
    let active = tally.active.len();
    if spec.suspend == Some(true) {
        plan.discard = tally.active.iter().map(|pod| (*pod).clone()).collect();
        return;
    }
    let parallelism = usize::try_from(spec.parallelism.unwrap_or(1)).unwrap_or_default();
    let wanted = match spec.completions {
        None if tally.succeeded > 0 => active.min(parallelism.max(active)),
        None => parallelism,
        Some(completions) => usize::try_from(completions - tally.succeeded).unwrap_or_default().min(parallelism),
    };
    plan.discard = superfluous(tally, active.saturating_sub(wanted));
    plan.discard.truncate(BURST);
    if !plan.discard.is_empty() {
        return;
    }
    let waiting_for = if job_pod::replaces_failed_only(observed.job) { tally.terminating } else { 0 };
    let lacking = wanted.saturating_sub(active + waiting_for).min(BURST);
    if lacking == 0 {
        return;
    }
    if spec.backoff_limit_per_index.is_none() {
        let wait = tally.record.remaining(observed.now);
        if !wait.is_zero() {
            plan.again = Some(plan.again.map_or(wait, |again| again.min(wait)));
            return;
        }
    }
    if !tally.indexed {
        plan.create = vec![job_pod::make(observed.job, None, None); lacking];
        return;
    }
    start_indexes(observed, tally, lacking, plan);
}

fn start_indexes(observed: &Observed<'_>, tally: &Tally<'_>, lacking: usize, plan: &mut Plan) {
    let mut taken = tally.succeeded_indexes.clone();
    tally.active.iter().filter_map(|pod| job_pod::index(pod)).for_each(|index| taken.add(index));
    if job_pod::replaces_failed_only(observed.job) {
        let going = observed.pods.iter().filter(|pod| pod::is_terminating(pod) && !pod::is_terminal(pod));
        going.filter_map(|pod| job_pod::index(pod)).for_each(|index| taken.add(index));
    }
    if let Some(failed) = &tally.failed_indexes {
        taken.merge(failed);
    }
    for index in taken.missing(lacking, tally.spec.completions.unwrap_or_default()) {
        let previous = tally.delayed.get(&index);
        let wait = previous.map_or(Duration::ZERO, |previous| {
            let ended = job_pod::ended(previous).unwrap_or(observed.now);
            backoff::remaining(job_pod::attempts(previous), ended, observed.now)
        });
        if wait.is_zero() {
            plan.create.push(job_pod::make(observed.job, Some(index), previous.map(|pod| &***pod)));
        } else {
            plan.again = Some(plan.again.map_or(wait, |again| again.min(wait)));
        }
    }
}

/// Pods beyond the number, and those that have another's index or none.
fn superfluous(tally: &Tally<'_>, surplus: usize) -> Vec<Arc<Pod>> {
    let mut rest: Vec<&Arc<Pod>> = tally.active.clone();
    // Those that are least far go first: not bound, not running, not ready, ready for a shorter time, restarted more, younger.
    rest.sort_by_key(|pod| {
        let rank = match pod::phase(pod) {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| Reverse(time.0));
        let ready = (pod::is_ready(pod), pod::ready_since(pod).map(Reverse));
        (!pod::node(pod).is_empty(), rank, ready, Reverse(pod::most_restarts(pod)), created)
    });
    let mut chosen: Vec<Arc<Pod>> = Vec::new();
    if tally.indexed {
        let completions = tally.spec.completions.unwrap_or_default();
        let mut seen = HashSet::new();
        // From the end: of several with the same index the one that is farthest stays.
        let mut kept = Vec::new();
        for pod in rest.into_iter().rev() {
            match job_pod::index(pod).filter(|index| *index < completions) {
                Some(index) if seen.insert(index) => kept.push(pod),
                _ => chosen.push(pod.clone()),
            }
        }
        kept.reverse();
        rest = kept;
    }
    let more = surplus.saturating_sub(chosen.len());
    chosen.extend(rest.into_iter().take(more).cloned());
    chosen
}

/// Puts pods that have ended into the status and lets them go; the counters move when they are gone.
fn count(observed: &Observed<'_>, tally: &Tally<'_>, end: &mut Option<End>, plan: &mut Plan) {
    let job = observed.job;
    let completions = tally.spec.completions.unwrap_or_default();
    let tracked: HashSet<String> = observed
        .pods
        .iter()
        .filter(|pod| observed.is_tracked(pod))
        .filter_map(|pod| pod.metadata.uid.clone())
        .collect();
    status::settle(&mut plan.status, &tracked);
    let discarded: HashSet<&str> = plan.discard.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
    let uncounted = plan.status.uncounted_terminated_pods.get_or_insert_default();
    let (done, bad) = (uncounted.succeeded.get_or_insert_default(), uncounted.failed.get_or_insert_default());
    let old_indexes = job.status.as_ref().and_then(|status| status.completed_indexes.clone()).unwrap_or_default();
    let mut indexes = Indexes::parse(&old_indexes, completions);
    let mut full = false;
    let mut pods: Vec<&Arc<Pod>> = observed.pods.iter().filter(|pod| observed.is_tracked(pod)).collect();
    if tally.indexed {
        pods.sort_by_key(|pod| job_pod::index(pod));
    }
    for pod in pods {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let failed = job_pod::has_failed(job, pod);
        if discarded.contains(uid.as_str()) || !may_go(observed, tally, end.as_ref(), pod, failed) {
            continue;
        }
        plan.release.push(pod.clone());
        let index = job_pod::index(pod).filter(|index| *index < completions);
        if pod::phase(pod) == "Succeeded" && !bad.contains(&uid) {
            match index {
                Some(index) if tally.indexed => indexes.add(index),
                None if tally.indexed => {}
                _ if !done.contains(&uid) => done.push(uid),
                _ => {}
            }
        } else if failed || end.as_ref().is_some_and(End::is_failure) {
            let counts =
                policy::judge(job, pod) != PodFailurePolicyAction::Ignore && (!tally.indexed || index.is_some());
            if counts && !bad.contains(&uid) {
                bad.push(uid);
            }
        }
        if done.len() + bad.len() >= UNCOUNTED {
            full = true;
            break;
        }
    }
    if tally.indexed {
        plan.status.succeeded = status::positive(indexes.total());
        plan.status.completed_indexes = Some(indexes.to_string()).filter(|text| !text.is_empty());
        plan.status.failed_indexes = tally.failed_indexes.as_ref().map(ToString::to_string);
    }
    if let Some(end) = end {
        status::announce(&mut plan.status, end, observed.now);
    }
    if full {
        *end = None;
    }
}

fn may_go(observed: &Observed<'_>, tally: &Tally<'_>, end: Option<&End>, pod: &Arc<Pod>, failed: bool) -> bool {
    if observed.job.metadata.deletion_timestamp.is_some() || end.is_some() || pod::phase(pod) == "Succeeded" {
        return true;
    }
    let carries_count = job_pod::index(pod)
        .and_then(|index| tally.delayed.get(&index))
        .is_some_and(|delayed| delayed.metadata.uid == pod.metadata.uid);
    failed && !carries_count
}

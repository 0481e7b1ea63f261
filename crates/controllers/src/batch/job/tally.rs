//! What is counted of a Job's pods before anything is decided.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::backoff::Record;
use super::indexes::Indexes;
use super::plan::Observed;
use super::pod as job_pod;
use super::policy::{self, PodFailurePolicyAction};
use crate::common::number::total;
use crate::common::pod;

/// Counts and sets that several steps need.
pub(super) struct Tally<'a> {
    pub(super) spec: JobSpec,
    pub(super) indexed: bool,
    pub(super) active: Vec<&'a Arc<Pod>>,
    pub(super) terminating: usize,
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    pub(super) succeeded_indexes: Indexes,
    pub(super) failed_indexes: Option<Indexes>,
    /// By index: the failed pod whose count its replacement will carry on.
    pub(super) delayed: BTreeMap<i32, &'a Arc<Pod>>,
    pub(super) record: Record,
}

pub(super) fn tally<'a>(observed: &Observed<'a>) -> Tally<'a> {
    let (job, spec) = (observed.job, observed.spec());
    let old = job.status.clone().unwrap_or_default();
    let uncounted = old.uncounted_terminated_pods.clone().unwrap_or_default();
    let (done, bad) = (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
    let indexed = job_pod::is_indexed(job);
    let completions = spec.completions.unwrap_or_default();
    let in_range = |pod: &Pod| !indexed || job_pod::index(pod).is_some_and(|index| index < completions);
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let fresh = |known: &[String], pod: &Pod| observed.is_tracked(pod) && in_range(pod) && !known.contains(&uid(pod));
    let list = |matches: &dyn Fn(&Pod) -> bool| -> Vec<&'a Pod> {
        observed.pods.iter().filter(|pod| matches(pod)).map(|pod| &**pod).collect()
    };
    let new_done = list(&|pod| pod::phase(pod) == "Succeeded" && fresh(&done, pod));
    let new_bad = list(&|pod| job_pod::has_failed(job, pod) && fresh(&bad, pod));
    let counted = new_bad.iter().filter(|pod| policy::judge(job, pod) != PodFailurePolicyAction::Ignore).count();
    let number = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
    let mut tally = Tally {
        indexed,
        active: observed.pods.iter().filter(|pod| pod::is_active(pod)).collect(),
        terminating: observed.pods.iter().filter(|pod| pod::is_terminating(pod) && !pod::is_terminal(pod)).count(),
        succeeded: total([old.succeeded.unwrap_or_default(), number(new_done.len()), number(done.len())]),
        failed: total([old.failed.unwrap_or_default(), number(counted), number(bad.len())]),
        succeeded_indexes: Indexes::default(),
        failed_indexes: None,
        delayed: BTreeMap::new(),
        record: observed.record.with(&new_done, &new_bad),
        spec,
    };
    if indexed {
        by_index(observed, &mut tally, &old, completions);
    }
    tally
}

fn by_index<'a>(observed: &Observed<'a>, tally: &mut Tally<'a>, old: &JobStatus, completions: i32) {
    let job = observed.job;
    tally.succeeded_indexes = Indexes::parse(old.completed_indexes.as_deref().unwrap_or_default(), completions);
    for pod in observed.pods.iter().filter(|pod| pod::phase(pod) == "Succeeded" && observed.is_tracked(pod)) {
        if let Some(index) = job_pod::index(pod).filter(|index| *index < completions) {
            tally.succeeded_indexes.add(index);
        }
    }
    tally.succeeded = tally.succeeded_indexes.total();
    let Some(limit) = tally.spec.backoff_limit_per_index else { return };
    let mut failed = Indexes::parse(old.failed_indexes.as_deref().unwrap_or_default(), completions);
    let busy: HashSet<i32> = tally.active.iter().filter_map(|pod| job_pod::index(pod)).collect();
    for pod in observed.pods.iter().filter(|pod| job_pod::has_failed(job, pod) && observed.is_tracked(pod)) {
        let Some(index) = job_pod::index(pod).filter(|index| *index < completions) else { continue };
        let verdict = policy::judge(job, pod);
        let spent = verdict != PodFailurePolicyAction::Ignore && job_pod::failures_before(pod) >= limit;
        if !tally.succeeded_indexes.contains(index) && (verdict == PodFailurePolicyAction::FailIndex || spent) {
            failed.add(index);
        } else if !busy.contains(&index) {
            let last = tally.delayed.entry(index).or_insert(pod);
            if job_pod::attempts(pod) > job_pod::attempts(last) {
                *last = pod;
            }
        }
    }
    tally.delayed.retain(|index, _| !failed.contains(*index) && !tally.succeeded_indexes.contains(*index));
    tally.failed_indexes = Some(failed);
}

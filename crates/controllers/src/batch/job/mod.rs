//! Job: pods that run to their end, counted exactly once.
//!
//! A pod of a Job carries a finalizer until it is counted: first its uid goes into the status as uncounted, then the
//! finalizer goes, then the counter moves. Whatever is interrupted in between is finished by the next reconciliation.

mod backoff;
mod indexes;
mod plan;
mod pod;
mod policy;
mod reconcile;
mod status;
mod tally;
#[cfg(test)]
mod tests;

use k8s_openapi::api::batch::v1::Job;

pub(crate) use reconcile::start;

/// Complete or failed for good.
pub(crate) fn is_finished(job: &Job) -> bool {
    finished(job).is_some()
}

/// The condition that says that the job has ended.
pub(crate) fn finished(job: &Job) -> Option<&k8s_openapi::api::batch::v1::JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|known| ["Complete", "Failed"].contains(&known.type_.as_str()) && known.status == "True")
}

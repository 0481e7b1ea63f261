//! The group batch.

pub mod cron_job;
pub mod job;
mod job_policies;
mod job_status;

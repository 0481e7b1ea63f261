//! The group batch.

pub mod cronjob;
pub mod job;
mod job_policies;
mod job_status;

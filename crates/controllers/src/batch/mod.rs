//! The controllers of the `batch` group.

pub(crate) mod cronjob;
pub(crate) mod job;
pub(crate) mod ttl_after_finished;

//! CronJob: Jobs by the clock.

mod plan;
mod reconcile;
mod schedule;

pub(crate) use reconcile::start;

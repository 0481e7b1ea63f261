//! CronJob: Jobs by the clock.

mod plan;
mod reconcile;

pub(crate) use reconcile::start;

//! DaemonSet: one pod on every node that fits.

mod plan;
mod pod;
mod reconcile;

pub(crate) use reconcile::start;

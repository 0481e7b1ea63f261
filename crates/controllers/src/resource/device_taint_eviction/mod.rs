//! Device taint eviction: pods whose devices are tainted with NoExecute go, unless their claims tolerate it.

mod plan;
mod reconcile;
mod status;

pub(crate) use reconcile::start;

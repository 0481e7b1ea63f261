//! Disruption: how many pods of a PodDisruptionBudget may be evicted right now.

mod plan;
mod reconcile;

pub(crate) use reconcile::start;

//! Deployment: rolls from one ReplicaSet to the next.
//!
//! `plan` decides in one pass what to write: `revision` finds or makes the ReplicaSet of the current template,
//! `scale` moves replicas between them, `status` reports progress.

mod plan;
mod reconcile;
mod revision;
mod scale;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use reconcile::start;

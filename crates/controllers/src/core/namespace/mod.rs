//! Namespace: when one is deleted, deletes everything in it, then lets it go.

mod contents;
mod plan;
mod reconcile;

pub(crate) use reconcile::start;

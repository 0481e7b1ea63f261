//! PersistentVolume binder: finds a volume for every claim, and tells which volumes are free, bound or left behind.

mod choose;
mod plan;
mod reconcile;

pub(crate) use reconcile::start;

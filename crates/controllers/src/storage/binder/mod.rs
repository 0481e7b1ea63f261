//! PersistentVolume binder: finds a volume for every claim, and tells which volumes are free, bound or left behind.

mod choose;
mod plan;
mod reconcile;

pub use plan::is_default_class;
pub(crate) use reconcile::start;

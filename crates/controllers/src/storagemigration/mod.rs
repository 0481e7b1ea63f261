//! The controller of `storagemigration.k8s.io`.

mod definition;
pub(crate) mod migrator;
mod plan;

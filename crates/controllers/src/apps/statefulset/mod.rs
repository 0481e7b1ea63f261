//! StatefulSet: pods with names, an order and volumes of their own.

mod claims;
mod plan;
mod pod;
mod reconcile;

pub(crate) use reconcile::start;

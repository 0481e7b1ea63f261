//! ReplicaSet: as many pods as asked for. ReplicationController runs on the same code.

mod owner;
mod plan;
mod reconcile;
mod victims;

pub(crate) use reconcile::start;

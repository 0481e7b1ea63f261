//! Garbage collector: deletes what its owners left behind, in the background, in the foreground, or not at all.
//!
//! `graph` is who owns whom, fed by a metadata watch per resource; `plan` decides what becomes of one object;
//! `monitor` starts and stops the watches as resources come and go; `reconcile` carries out. `sweep` asks the
//! server for what the watches have not told yet.

mod graph;
mod monitor;
mod plan;
mod reconcile;
mod sweep;

pub(crate) use reconcile::start;

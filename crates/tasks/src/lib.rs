//! The task tree: every task has a name and an owner, and stops with it.
//!
//! A bare `tokio::spawn` outlives whoever started it and hides its panic; a task of a `Tasks` group does neither. Groups
//! have groups below them: whoever stops one waits for all of them. Tasks that others rely on are started as critical: they
//! are started again when they fall, and until they run again the tree says so ([`Tasks::health`]). A group may run on a
//! runtime of its own, and the watchdog of the tree looks after the runtimes.
//!
//! Must not depend on any other crate of the workspace.

mod critical;
mod group;
#[cfg(test)]
mod tests;
mod watchdog;

pub use critical::Health;
pub use group::{Ended, Tasks};

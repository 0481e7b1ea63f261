//! Dynamic resource allocation (resource.k8s.io): which devices a pod's claims get.
//!
//! [`allocate`] is a pure function of claims, slices, devices in use and a node. [`Devices`] keeps what it reads, from informers
//! and from decisions that are on their way to the API server.

mod capacity;
mod cluster;
mod inventory;
mod outcome;
mod pools;
mod search;
mod selectors;
mod taken;
mod wishes;

use std::fmt;
use std::sync::Arc;

pub use cluster::{Devices, Snapshot};
pub use inventory::Inventory;
pub use search::{Limits, Matched, Request, Trouble, allocate};
pub use selectors::Selectors;
pub use taken::Taken;
pub use wishes::{RequestProblem, WishError, Wishes};

/// A device in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

#[cfg(test)]
mod tests;

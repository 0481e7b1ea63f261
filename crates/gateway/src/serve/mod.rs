//! The data plane: sockets, connections and requests, along the tables of `resolve`.

mod access_log;
mod answer;
mod auth;
mod body;
mod cors;
mod forward;
mod hello;
mod metrics;
mod pool;
mod request;
mod sockets;
mod stream;
#[cfg(test)]
mod tests;
mod udp;
mod upgrade;

use std::sync::Arc;

use ferry_tasks::Tasks;

pub use access_log::AccessLog;
pub use metrics::{Metrics, serve_metrics};
pub use sockets::Sockets;

/// What all connections share.
pub struct Shared {
    pub pools: pool::Pools,
    pub metrics: Metrics,
    pub access_log: Option<AccessLog>,
    pub tasks: Tasks,
}

impl Shared {
    pub fn new(tasks: &Tasks, access_log: Option<AccessLog>) -> Arc<Self> {
        Arc::new(Self { pools: pool::Pools::new(tasks), metrics: Metrics::default(), access_log, tasks: tasks.clone() })
    }
}

//! The data plane: sockets, connections and requests, along the tables of `resolve`.

mod access_log;
mod answer;
mod apr1;
mod auth;
mod body;
mod compression;
mod cors;
mod fields;
mod forward;
mod hello;
mod identity;
mod line;
mod metrics;
mod passed;
mod persistence;
mod pool;
mod proxy_protocol;
mod rates;
mod request;
mod sockets;
mod stream;
#[cfg(test)]
mod tests;
mod told;
mod traced;
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
    pub passwords: auth::Passwords,
    pub rates: rates::Rates,
    /// Requests that come back are known by it.
    pub passages: passed::Passages,
    /// Who may be told the way of a request (`told`).
    pub told: told::Tokens,
    pub tasks: Tasks,
}

impl Shared {
    pub fn new(tasks: &Tasks, access_log: Option<AccessLog>) -> Arc<Self> {
        let shared = Arc::new(Self {
            pools: pool::Pools::new(tasks),
            metrics: Metrics::default(),
            access_log,
            passwords: auth::Passwords::default(),
            rates: rates::Rates::default(),
            passages: passed::Passages::default(),
            told: told::Tokens::default(),
            tasks: tasks.clone(),
        });
        let swept = shared.clone();
        tasks.spawn_until_stopped("backend connections", async move { swept.pools.sweep().await });
        shared
    }
}

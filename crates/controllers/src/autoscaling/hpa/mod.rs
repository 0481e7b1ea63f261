//! HorizontalPodAutoscaler v2: as many replicas as metrics ask for, within limits and as fast as its behaviour allows.
//!
//! `replicas.rs` computes what one metric asks for, `limits.rs` what behaviour makes of it; both are pure.

mod conditions;
mod limits;
mod mapping;
mod measure;
mod reconcile;
mod replicas;
mod source;

use std::time::Duration;

pub(crate) use reconcile::start;

/// What autoscalers go by where they say nothing themselves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often each is looked at.
    pub sync_period: Duration,
    /// How long what was recommended holds against shrinking.
    pub downscale_stabilization: Duration,
    /// By how much what is used may differ from what is wanted before anything happens.
    pub tolerance: f64,
    /// How long the processor time of a pod that just started is not believed while it is not ready.
    pub cpu_initialization_period: Duration,
    /// A pod that was not ready within this time of its start, and is not, never was.
    pub initial_readiness_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(300),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(300),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}

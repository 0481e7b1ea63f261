//! What the server tells of itself: metrics, and the flight recorder of the newest writes.

pub(crate) mod flight;
mod flow_control;
pub(crate) mod gauges;
pub(crate) mod metrics;

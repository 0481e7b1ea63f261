//! (wiring, written next)
pub const READY: &str = "ready";

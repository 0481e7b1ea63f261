//! What the tests of all crates share: the recorded data in `testdata/`, the one way to say that a test cannot run here, and
//! the report of test programs that bring their own `main`.
//!
//! For tests and chores only: `xtask/tests/layers.rs` refuses an edge to it that is no dev-dependency.

pub mod data;
pub mod linearizability;
pub mod network;
mod ports;
mod report;
mod skip;

pub use ports::free_port;
pub use report::Report;
pub use skip::{cache, cannot_run, skip};

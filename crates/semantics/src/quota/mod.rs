//! What objects count for in resource quotas. Admission reserves by it, the quota controller adds up by it.

pub mod amounts;
pub mod scope;
pub mod usage;

pub use amounts::Amounts;
pub use usage::{COMPUTE, Measure};

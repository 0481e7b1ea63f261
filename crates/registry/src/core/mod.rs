//! The core group.

pub mod persistent_volume_claim;
pub mod pod;

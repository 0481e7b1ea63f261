//! What plug-ins of a node speak: how they make themselves known, and the storage interface (CSI).
//!
//! Holds the messages, the clients and the server stubs, and nothing of either side's behaviour. It must not depend on
//! any other crate of the workspace.

mod client;

pub use client::{Channel, Registrant, Storage};
pub use tonic::Status;

/// Messages and services of `pluginregistration`.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// Messages and services of `csi.v1`.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod csi {
    tonic::include_proto!("csi.v1");

    use std::fmt::{Debug, Formatter, Result};

    impl Debug for NodeStageVolumeRequest {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.debug_struct("NodeStageVolumeRequest").field("volume_id", &self.volume_id).finish_non_exhaustive()
        }
    }

    impl Debug for NodePublishVolumeRequest {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.debug_struct("NodePublishVolumeRequest").field("volume_id", &self.volume_id).finish_non_exhaustive()
        }
    }

    impl Debug for NodeExpandVolumeRequest {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.debug_struct("NodeExpandVolumeRequest").field("volume_id", &self.volume_id).finish_non_exhaustive()
        }
    }
}

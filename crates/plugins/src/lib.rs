//! What plug-ins of a node speak: how they make themselves known, the interfaces of storage (CSI), of device plug-ins and
//! of drivers of devices (DRA), and what the kubelet tells monitoring agents of devices (PodResources).
//!
//! Holds the messages, the clients and the server stubs, and nothing of either side's behaviour. It must not depend on
//! any other crate of the workspace.

mod client;
mod server;

pub use client::{Channel, DeviceDriver, DevicePlugin, Registrant, Storage};
pub use prost::Message;
pub use server::serve;
pub use tonic::service::Routes;
pub use tonic::{Request, Response, Status, Streaming};

/// Messages and services of `pluginregistration`.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// Messages and services of `v1beta1`, the device plug-ins.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod deviceplugin {
    tonic::include_proto!("v1beta1");
}

/// Messages and services of `v1`, the PodResources.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod podresources {
    tonic::include_proto!("v1");
}

/// Messages and services of `dra.v1`.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
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

//! The Container Runtime Interface, v1: what a kubelet and a runtime say to each other over gRPC.
//!
//! Holds the messages, the client and the server stubs, how names of images are read, and nothing of either side's
//! behaviour. It must not depend on any other crate of the workspace.

mod client;
pub mod image_name;
pub mod sysctl;

pub use client::{ARCHIVE, ConnectError, CriClient, channel, endpoint};

/// Messages and services of `runtime.v1`.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("runtime.v1");

    impl std::fmt::Debug for AuthConfig {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("AuthConfig").field("server_address", &self.server_address).finish_non_exhaustive()
        }
    }
}

/// The gRPC health protocol.
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unused_qualifications, reason = "generated code")]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

pub use tonic::{Code, Status};

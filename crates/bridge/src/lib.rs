//! The default pod network of a node: a bridge, a pair of virtual devices for each pod, addresses, routes and host ports, made
//! by netlink in the calling process.
//!
//! It speaks the CNI protocol ([`Request`], `run`), so that both runtimes use it: the embedded one calls [`call`], and containerd
//! runs this program by the names of [`PROGRAMS`] ([`program`]). What it keeps is a file for each address (`records`), and the
//! name of a pod's device follows from the pod; so whatever a killed process left is recognised and taken back.
//!
//! Must not depend on any server-side crate, nor on the client.

mod attach;
mod bandwidth;
mod configuration;
mod error;
mod inside;
mod links;
mod netlink;
mod ports;
mod program;
mod records;

#[cfg(test)]
mod kernel_tests;

use serde_json::Value;

pub use attach::{prepare, restore_host_ports, run};
pub use configuration::{Request, Settings};
pub use error::BridgeError;
pub use inside::bring_up_loopback;
pub use links::remove_link;
pub use ports::table as host_ports_table;
pub use program::program;

/// The type of the plug-in in a network configuration, and the name of its program.
pub const PLUGIN: &str = "ferry-cni";

/// The names by which a runtime runs this program as a plug-in. containerd brings up each pod's loopback by a program of its
/// own choice.
pub const PROGRAMS: [&str; 2] = [PLUGIN, "loopback"];

/// Carries out a request of the CNI protocol on a thread of its own, for it blocks and enters the pod's namespace.
pub async fn call(request: Request) -> Result<Value, BridgeError> {
    netlink::on_thread(move || run(&request)).await
}

//! The pod network between nodes: how packets for the pods of another node leave this one.
//!
//! Nodes are watched; a pure plan ([`plan`]) says which routes, neighbours and forwarding entries this node needs; `kernel`
//! compares that with what the kernel has and changes only what differs. What others put there is recognised by its
//! routing protocol number and left alone. [`wireguard`] encrypts what nodes send each other: in the kernel, or in this
//! process where the kernel cannot. [`announce`] tells the machines around where the addresses of LoadBalancer Services are.
//!
//! Must not depend on any server-side crate.

pub mod announce;
mod kernel;
pub mod node;
mod once;
pub mod plan;
mod probe;
mod sync;
pub mod wireguard;

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod plan_tests;

use std::str::FromStr;

pub use kernel::Kernel;
pub use once::{pod_mtu, remove, remove_announced};
pub use probe::probe;
pub use sync::{Config, start};

/// Routes with this protocol number are Ferry's; all others are somebody else's. Numbers from 192 on are free for programs.
pub const ROUTE_PROTOCOL: &str = "213";

/// How packets travel between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Plain routes to nodes on this node's segment, VXLAN to all others.
    #[default]
    Auto,
    /// Plain routes only: every node must be on the same segment.
    Routes,
    /// VXLAN to every node.
    Vxlan,
    /// WireGuard to every node.
    Wireguard,
    /// A CNI that the user installs does everything.
    Cni,
}

impl FromStr for Mode {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        match text {
            "auto" => Ok(Self::Auto),
            "routes" => Ok(Self::Routes),
            "vxlan" => Ok(Self::Vxlan),
            "wireguard" => Ok(Self::Wireguard),
            "cni" => Ok(Self::Cni),
            other => Err(NetworkError::Mode(other.to_owned())),
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Routes => "routes",
            Self::Vxlan => "vxlan",
            Self::Wireguard => "wireguard",
            Self::Cni => "cni",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("{0:?} is no pod network; give auto, routes, vxlan, wireguard or cni")]
    Mode(String),
    #[error("cannot open a netlink socket: {0}")]
    Socket(#[source] std::io::Error),
    #[error("the kernel refused to {what}: {source}")]
    Kernel { what: String, source: rtnetlink::Error },
    #[error("cannot talk to WireGuard in the kernel: {0}")]
    Wireguard(String),
    #[error(
        "this kernel has neither WireGuard (module wireguard) nor TUN (module tun, /dev/net/tun): {0}; \
         use another --pod-network"
    )]
    Tun(#[source] std::io::Error),
    #[error("cannot listen at UDP port {0} for WireGuard: {1}")]
    Listen(u16, #[source] std::io::Error),
    #[error("{path}: {problem}")]
    Key { path: std::path::PathBuf, problem: String },
    #[error("no network device of this machine has the node's address {0}")]
    NoDevice(std::net::IpAddr),
}

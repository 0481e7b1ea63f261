//! WireGuard between nodes: packets for the pods of another node are encrypted for that node alone.
//!
//! A node keeps its private key, and tells the public one as an annotation of its own Node, which nobody else but an
//! administrator may write. The kernel's WireGuard is used where there is one; elsewhere this process does the same over a
//! TUN device.

mod engine;
mod key;
mod link;
mod netlink;
mod peers;
mod tun;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

pub use key::{PrivateKey, PublicKey};
pub(crate) use link::{Device, probe};

use crate::plan::Member;

/// The annotation of a Node that tells its public key.
pub const PUBLIC_KEY: &str = "ferry.dev/wireguard-public-key";
/// The port that every node listens at.
pub const PORT: u16 = 8478;
/// How often a node that has nothing to say is heard, in seconds: routers that translate addresses forget whom they let
/// through after half a minute or more.
pub(crate) const KEEPALIVE: u16 = 25;
/// What WireGuard adds to a packet: outer IP and UDP headers, its own header and the authentication tag.
const OVERHEAD_V4: u32 = 60;
const OVERHEAD_V6: u32 = 80;

/// The WireGuard device of a node as it is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wireguard {
    pub mtu: u32,
    /// What this node sends by itself has one of these as its source, so that the answer comes back the same way.
    pub addresses: BTreeSet<IpAddr>,
    pub peers: BTreeMap<PublicKey, Peer>,
}

impl Wireguard {
    pub(crate) fn new(own: &Member, underlay_mtu: u32) -> Self {
        Self {
            mtu: mtu(underlay_mtu, IpAddr::from([0, 0, 0, 0])),
            addresses: own.pod_cidrs.iter().map(IpNet::network).collect(),
            peers: BTreeMap::new(),
        }
    }
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub node: String,
    /// Where it is told to be; once it was heard from elsewhere, that counts.
    pub endpoint: SocketAddr,
    /// Packets to these are for it, and what it sends has to come from these.
    pub ranges: BTreeSet<IpNet>,
}

/// What is left for a packet when the other node is reached at this address.
pub(crate) fn mtu(underlay: u32, endpoint: IpAddr) -> u32 {
    underlay.saturating_sub(if endpoint.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 })
}

//! From the nodes of the cluster to what the kernel of this one must know. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ferry_semantics::cidr::number;
use ipnet::IpNet;
use sha2::{Digest, Sha256};

use crate::Mode;
use crate::wireguard::{self, Peer, PublicKey, Wireguard};

/// What VXLAN adds to a packet: outer Ethernet, IP, UDP and VXLAN headers.
const OVERHEAD_V4: u32 = 50;
const OVERHEAD_V6: u32 = 70;

/// The loopback takes larger packets than a pod's device can.
const MOST: u32 = 65_535;

/// The device that holds this node's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    pub index: u32,
    pub mtu: u32,
    /// Its addresses with their prefix lengths: whoever is in one of these is on the same segment.
    pub networks: Vec<IpNet>,
}

/// A node as the network sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub pod_cidrs: Vec<IpNet>,
    /// Of WireGuard, where it has told one.
    pub public_key: Option<PublicKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// This node's end of the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub local: IpAddr,
    pub underlay: u32,
    pub mac: Mac,
    pub mtu: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The other node's address, on the underlay.
    Underlay(IpAddr),
    /// The other end of the tunnel; the address need not be anybody's.
    Tunnel(IpAddr),
    /// The WireGuard device, which knows by itself whose range it is.
    Wireguard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub destination: IpNet,
    pub way: Way,
}

/// Which link-layer address the other end of the tunnel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    pub address: IpAddr,
    pub mac: Mac,
}

/// Which node a link-layer address is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forwarding {
    pub mac: Mac,
    pub node: IpAddr,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub tunnel: Option<Tunnel>,
    pub routes: BTreeSet<Route>,
    pub neighbours: BTreeSet<Neighbour>,
    pub forwarding: BTreeSet<Forwarding>,
    pub wireguard: Option<Wireguard>,
    /// Nodes that cannot be reached, and why.
    pub unreachable: Vec<(String, String)>,
}

/// Nodes agree on each other's link-layer addresses without telling: a range belongs to one node only.
pub fn mac_of(pod_cidr: &IpNet) -> Mac {
    let digest = Sha256::digest(pod_cidr.to_string().as_bytes());
    // A locally administered unicast address.
    let mut mac = [0x0e, 0, 0, 0, 0, 0];
    mac[1..].copy_from_slice(&digest[..5]);
    Mac(mac)
}

pub fn plan(mode: Mode, own: &Member, underlay: &Underlay, others: &[Member]) -> Plan {
    let mut plan = Plan::default();
    if mode == Mode::Cni {
        return plan;
    }
    if mode == Mode::Wireguard {
        plan.wireguard = Some(Wireguard::new(own, underlay.mtu));
    }
    let mut taken = Taken::default();
    own.pod_cidrs.iter().for_each(|range| taken.insert(range, &own.name));
    let mut sorted: Vec<&Member> = others.iter().filter(|other| other.name != own.name).collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    for other in sorted {
        for range in &other.pod_cidrs {
            if let Some(holder) = taken.holder(range) {
                plan.unreachable.push((other.name.clone(), format!("its pod range {range} overlaps that of {holder}")));
                continue;
            }
            match reach(mode, own, underlay, other, range) {
                Ok(Way::Wireguard) => add_wireguard(&mut plan, own, underlay, other, range),
                Ok(way) => add(&mut plan, own, underlay, other, range, way),
                Err(reason) => plan.unreachable.push((other.name.clone(), reason)),
            }
            taken.insert(range, &other.name);
        }
    }
    plan
}

/// The ranges that somebody has, none of which overlaps another: by family and first address, with the last address and the holder. So
/// the cost of a node does not grow with their number.
#[derive(Default)]
struct Taken<'a>(BTreeMap<(bool, u128), (u128, &'a str)>);

impl<'a> Taken<'a> {
    /// Who has a part of this range.
    fn holder(&self, range: &IpNet) -> Option<&'a str> {
        let (first, last) = (number(range.network()), number(range.broadcast()));
        let family = range.addr().is_ipv4();
        // Of those that begin before its end, the last one reaches farthest.
        let (_, (end, holder)) = self.0.range((family, 0)..=(family, last)).next_back()?;
        (*end >= first).then_some(holder)
    }

    fn insert(&mut self, range: &IpNet, holder: &'a str) {
        if self.holder(range).is_none() {
            let key = (range.addr().is_ipv4(), number(range.network()));
            self.0.insert(key, (number(range.broadcast()), holder));
        }
    }
}

/// The largest packet of pods. With plain routes, that of the device; where only some nodes are behind a tunnel, the kernel
/// tells senders of its smaller one.
pub fn pod_mtu(mode: Mode, underlay: &Underlay, node: IpAddr) -> u32 {
    let mtu = match mode {
        Mode::Vxlan => underlay.mtu.saturating_sub(overhead(node)),
        Mode::Wireguard => wireguard::mtu(underlay.mtu, node),
        Mode::Auto | Mode::Routes | Mode::Cni => underlay.mtu,
    };
    mtu.min(MOST)
}

fn overhead(local: IpAddr) -> u32 {
    if local.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 }
}

/// How packets for a range of another node leave this one.
fn reach(mode: Mode, own: &Member, underlay: &Underlay, other: &Member, range: &IpNet) -> Result<Way, String> {
    let same_family = |address: &&IpAddr| address.is_ipv4() == range.addr().is_ipv4();
    let direct = other
        .addresses
        .iter()
        .filter(same_family)
        .find(|address| underlay.networks.iter().any(|network| network.contains(*address)));
    match (mode, direct) {
        (Mode::Wireguard, _) => Ok(Way::Wireguard),
        (Mode::Auto | Mode::Routes, Some(address)) => Ok(Way::Underlay(*address)),
        (Mode::Routes, None) => {
            Err(format!("none of its addresses is on this node's segment; --pod-network vxlan reaches it ({range})"))
        }
        _ => match endpoints(own, other) {
            Some(_) => Ok(Way::Tunnel(other_end(other, range))),
            None => Err("it has no address of a family that this node has".to_owned()),
        },
    }
}

/// The address that stands for the other end. One in the range would do for IPv6, too, if the kernel did not refuse a gateway
/// that a route to somewhere else covers.
fn other_end(other: &Member, range: &IpNet) -> IpAddr {
    match (range, other.pod_cidrs.first()) {
        (IpNet::V6(_), Some(first)) => {
            let Mac(mac) = mac_of(&first.trunc());
            let pair = |at: usize| u16::from_be_bytes([mac[at], mac[at + 1]]);
            IpAddr::from([0xfe80, 0, 0, 0, 0, pair(0), pair(2), pair(4)])
        }
        _ => range.network(),
    }
}

/// The addresses between which a tunnel runs: of one family, IPv4 first.
fn endpoints(own: &Member, other: &Member) -> Option<(IpAddr, IpAddr)> {
    let of = |member: &Member, v4: bool| member.addresses.iter().copied().find(|address| address.is_ipv4() == v4);
    [true, false].into_iter().find_map(|v4| Some((of(own, v4)?, of(other, v4)?)))
}

/// The route is there even while nothing can be sent: otherwise packets would leave by another one, readable for everybody.
fn add_wireguard(plan: &mut Plan, own: &Member, underlay: &Underlay, other: &Member, range: &IpNet) {
    plan.routes.insert(Route { destination: range.trunc(), way: Way::Wireguard });
    let Some(device) = &mut plan.wireguard else { return };
    let peer = match (other.public_key, endpoints(own, other)) {
        (None, _) => Err("it has not told its WireGuard key; it runs with another --pod-network, or an older version"),
        (_, None) => Err("it has no address of a family that this node has"),
        (Some(key), _) if Some(key) == own.public_key => Err("it claims this node's own WireGuard key"),
        (Some(key), Some((_, node))) => Ok((key, node)),
    };
    let added = peer.map_err(str::to_owned).and_then(|(key, node)| {
        let peer = device.peers.entry(key).or_insert_with(|| Peer {
            node: other.name.clone(),
            endpoint: SocketAddr::new(node, wireguard::PORT),
            ranges: BTreeSet::new(),
        });
        // Whose key it is cannot be told by what they say; one of them has to stay out.
        if peer.node != other.name {
            return Err(format!("it claims the WireGuard key of {}", peer.node));
        }
        peer.ranges.insert(range.trunc());
        Ok(node)
    });
    match added {
        Ok(node) => device.mtu = device.mtu.min(wireguard::mtu(underlay.mtu, node)),
        Err(reason) => plan.unreachable.push((other.name.clone(), reason)),
    }
}

fn add(plan: &mut Plan, own: &Member, underlay: &Underlay, other: &Member, range: &IpNet, way: Way) {
    plan.routes.insert(Route { destination: range.trunc(), way });
    let (Way::Tunnel(address), Some((local, node))) = (way, endpoints(own, other)) else { return };
    let Some(first) = other.pod_cidrs.first() else { return };
    let mac = mac_of(&first.trunc());
    plan.neighbours.insert(Neighbour { address, mac });
    plan.forwarding.insert(Forwarding { mac, node });
    if plan.tunnel.is_none()
        && let Some(own_range) = own.pod_cidrs.first()
    {
        plan.tunnel = Some(Tunnel {
            local,
            underlay: underlay.index,
            mac: mac_of(&own_range.trunc()),
            mtu: underlay.mtu.saturating_sub(overhead(local)),
        });
    }
}

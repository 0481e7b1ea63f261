//! The ports of a bridge: which pod is at the other end of each.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::netlink::{attributes, dump, number_attribute, text};

const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const PATIENCE: Duration = Duration::from_secs(5);

/// Attributes of a link.
const HARDWARE: u16 = 1;
const NAME: u16 = 3;
const PEER: u16 = 5;
const MASTER: u16 = 10;
const PEER_NAMESPACE: u16 = 37;
const OF_NAMESPACE: u16 = 46;
/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const IN_NAMESPACE: u16 = 10;

const FOURTH: u8 = 2;
const SIXTH: u8 = 10;

/// One end of a pair of devices: the other end is in the network of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Of the device at the bridge: never used again while the machine runs.
    pub index: u32,
    pub name: String,
    /// Of the pod's end, as the addresses are.
    pub hardware: [u8; 6],
    pub addresses: BTreeSet<IpAddr>,
}

/// What the kernel tells about a link.
#[derive(Default)]
struct Link {
    index: u32,
    name: String,
    master: Option<u32>,
    hardware: Option<[u8; 6]>,
    /// The other end's number, and which namespace that is in.
    peer: Option<u32>,
    namespace: Option<u32>,
}

/// The ports of a bridge but for those that are `known` by their numbers, in the network that this thread is in. Whoever has
/// processes in a pod's network with the right to change it can change what is told here: ask before there are any. The second
/// list has the numbers of all ports. Blocks for as long as the kernel takes.
pub fn bridge_ports(bridge: &str, known: &BTreeSet<u32>) -> std::io::Result<(Vec<Port>, BTreeSet<u32>)> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    // Without it the kernel overlooks whose addresses are asked for, and tells its own.
    socket.set_netlink_get_strict_chk(true)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let links = links(&socket, &[])?;
    let Some(master) = links.iter().find(|link| link.name == bridge).map(|link| link.index) else {
        return Ok((Vec::new(), BTreeSet::new()));
    };
    let at_bridge = || links.iter().filter(|link| link.master == Some(master));
    let mut ports = Vec::new();
    for link in at_bridge().filter(|link| !known.contains(&link.index)) {
        let (Some(peer), Some(namespace)) = (link.peer, link.namespace) else { continue };
        let target = number_attribute(OF_NAMESPACE, namespace);
        // A pod may be gone by now.
        let Ok(others) = self::links(&socket, &target) else { continue };
        let Some(hardware) = others.iter().find(|other| other.index == peer).and_then(|other| other.hardware) else {
            continue;
        };
        let mut found = BTreeSet::from([IpAddr::V6(link_local(hardware))]);
        for family in [FOURTH, SIXTH] {
            // A kernel without IPv6 has none to tell.
            if let Ok(more) = addresses(&socket, family, namespace, peer) {
                found.extend(more);
            }
        }
        ports.push(Port { index: link.index, name: link.name.clone(), hardware, addresses: found });
    }
    Ok((ports, at_bridge().map(|link| link.index).collect()))
}

/// The address that the kernel gives every device of its own accord.
fn link_local(hardware: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = hardware;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

fn word(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn links(socket: &Socket, filter: &[u8]) -> std::io::Result<Vec<Link>> {
    let mut found = Vec::new();
    // The rest of the header: nothing in particular is asked for.
    let request = [&[0; 12][..], filter].concat();
    dump(socket, GET_LINK, 0, &request, |body| {
        let (Some(index), Some(rest)) = (body.get(4..8).and_then(word), body.get(16..)) else { return };
        let mut link = Link { index, ..Link::default() };
        for (kind, value, _) in attributes(rest) {
            match kind {
                HARDWARE => link.hardware = value.try_into().ok(),
                NAME => link.name = text(value),
                PEER => link.peer = word(value),
                MASTER => link.master = word(value),
                PEER_NAMESPACE => link.namespace = word(value),
                _ => {}
            }
        }
        found.push(link);
    })?;
    Ok(found)
}

fn addresses(socket: &Socket, family: u8, namespace: u32, device: u32) -> std::io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    let request = [&device.to_ne_bytes()[..], &number_attribute(IN_NAMESPACE, namespace)].concat();
    dump(socket, GET_ADDRESS, family, &request, |body| {
        let Some(rest) = body.get(8..) else { return };
        if body.get(4..8).and_then(word) != Some(device) {
            return;
        }
        let (mut address, mut local) = (None, None);
        for (kind, value, _) in attributes(rest) {
            match kind {
                ADDRESS => address = read(value),
                LOCAL => local = read(value),
                _ => {}
            }
        }
        // On a point-to-point link the address is the other end's.
        found.extend(local.or(address));
    })?;
    Ok(found)
}

fn read(value: &[u8]) -> Option<IpAddr> {
    let fourth = <[u8; 4]>::try_from(value).map(|bytes| Ipv4Addr::from(bytes).into());
    fourth.or_else(|_| <[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

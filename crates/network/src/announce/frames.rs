//! What is said to the machines around when an address comes to this node: a gratuitous ARP, or an unsolicited neighbour
//! advertisement. Sent as frames, for the address is none of the node's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};

use super::kernel::Where;

const TO_ALL: [u8; 6] = [0xff; 6];
/// The hardware address of ff02::1.
const TO_ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// A device, as `struct sockaddr_ll`.
#[repr(C)]
struct Device {
    family: u16,
    protocol: u16,
    index: i32,
    hardware: u16,
    kind: u8,
    length: u8,
    address: [u8; 8],
}

#[expect(unsafe_code, reason = "rustix has no address of a device")]
// SAFETY: the structure has the kernel's layout, and lives as long as the call.
unsafe impl SocketAddrArg for Device {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(std::ptr::from_ref(self).cast(), size_of::<Self>() as SocketAddrLen)
    }
}

pub(super) fn say(place: &Where) -> io::Result<()> {
    let frame = match place.address {
        IpAddr::V4(address) => gratuitous_arp(address, place.mac.0),
        IpAddr::V6(address) => advertisement(address, place.mac.0),
    };
    // Without a protocol it receives nothing.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let device = Device {
        family: AddressFamily::PACKET.as_raw(),
        protocol: 0,
        index: i32::try_from(place.device).unwrap_or_default(),
        hardware: 0,
        kind: 0,
        length: 6,
        address: [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
    };
    sendto(&socket, &frame, SendFlags::DONTWAIT, &device)?;
    Ok(())
}

fn gratuitous_arp(address: Ipv4Addr, mac: [u8; 6]) -> Vec<u8> {
    let mut frame = [&TO_ALL[..], &mac, &[0x08, 0x06]].concat();
    // Ethernet, IPv4, sizes of both, a request for its own address.
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(address.octets());
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame
}

fn advertisement(address: Ipv6Addr, mac: [u8; 6]) -> Vec<u8> {
    let (from, to) = (address.octets(), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets());
    // Type 136; overrides what was known; the target; its hardware address.
    let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    message.extend(from);
    message.extend([2, 1]);
    message.extend(mac);
    let length = message.len() as u16;
    let sum = checksum(&[&from[..], &to, &u32::from(length).to_be_bytes(), &[0, 0, 0, 58], &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [&TO_ALL_NODES[..], &mac, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(length.to_be_bytes());
    // ICMPv6, and a hop limit that no router could have left.
    frame.extend([58, 255]);
    frame.extend(from);
    frame.extend(to);
    frame.extend(message);
    frame
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| (u32::from(pair[0]) << 8) | pair.get(1).map_or(0, |byte| u32::from(*byte)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

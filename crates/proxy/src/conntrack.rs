//! Flows of datagrams that the kernel remembers towards endpoints that are gone.
//!
//! A datagram has no end that the kernel could see: while a client keeps sending from one port, its datagrams go where
//! the first one went, whatever the rules say by then. Such flows are taken out of the kernel's table.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use crate::endpoints::Endpoint;

/// Where clients send datagrams; without an address it is a port of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frontend {
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) port: u16,
}

/// Frontends whose endpoints changed, with those they have now.
pub(crate) type Changes = BTreeMap<Frontend, BTreeSet<Endpoint>>;

const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const FAMILY_IPV4: u8 = 2;
const UDP: u8 = 17;
/// Set on flows whose destination was rewritten.
const REWRITTEN: u32 = 1 << 5;
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends the flows that no longer fit. Blocks for as long as the kernel takes to list its table.
pub(crate) fn end_stale(changes: &Changes) -> std::io::Result<usize> {
    let socket = open()?;
    send(&socket, GET, REQUEST | DUMP, &[])?;
    let mut stale = Vec::new();
    'dump: loop {
        let bytes = receive(&socket)?;
        for (kind, body) in messages(&bytes) {
            match kind {
                DONE => break 'dump,
                ERROR => return Err(error_of(body).unwrap_or_else(|| Error::other("the dump ended early"))),
                _ => stale.extend(Flow::parse(body).filter(|flow| is_stale(flow, changes)).map(|flow| flow.original)),
            }
        }
    }
    for original in &stale {
        send(&socket, DELETE, REQUEST | ACKNOWLEDGE, original)?;
        let bytes = receive(&socket)?;
        for (_, body) in messages(&bytes).filter(|(kind, _)| *kind == ERROR) {
            // A flow that ended by itself meanwhile is what we want.
            if let Some(error) = error_of(body).filter(|error| error.kind() != std::io::ErrorKind::NotFound) {
                return Err(error);
            }
        }
    }
    Ok(stale.len())
}

fn is_stale(flow: &Flow, changes: &Changes) -> bool {
    let Endpoint { address, port } = flow.destination;
    let exact = changes.get(&Frontend { address: Some(address), port });
    // A port of the node is known by the port alone, so that flows which merely pass through must be left out.
    let node_port = || changes.get(&Frontend { address: None, port }).filter(|_| flow.rewritten);
    exact.or_else(node_port).is_some_and(|endpoints| !endpoints.contains(&flow.answering))
}

/// One remembered flow of datagrams.
#[derive(Debug)]
struct Flow {
    destination: Endpoint,
    /// Who answers: another than the destination where it was rewritten.
    answering: Endpoint,
    rewritten: bool,
    /// The attribute that names the flow, as the kernel wrote it.
    original: Vec<u8>,
}

impl Flow {
    fn parse(body: &[u8]) -> Option<Self> {
        let (mut original, mut reply, mut status) = (None, None, 0);
        for (kind, value, whole) in attributes(body.get(4..)?) {
            match kind {
                1 => original = Some((value, whole)),
                2 => reply = Some(value),
                3 => status = u32::from_be_bytes(value.try_into().ok()?),
                _ => {}
            }
        }
        let (original, whole) = original?;
        let (protocol, _, destination) = tuple(original)?;
        let (_, answering, _) = tuple(reply?)?;
        (protocol == UDP).then(|| Self {
            destination,
            answering,
            rewritten: status & REWRITTEN != 0,
            original: whole.to_vec(),
        })
    }
}

/// Protocol, source and destination of one direction.
fn tuple(bytes: &[u8]) -> Option<(u8, Endpoint, Endpoint)> {
    let (mut source, mut destination, mut source_port, mut destination_port, mut protocol) = (None, None, 0, 0, 0);
    let address = |value: &[u8]| <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from);
    let port = |value: &[u8]| value.try_into().map(u16::from_be_bytes).unwrap_or_default();
    for (kind, value, _) in attributes(bytes) {
        for (inner, value, _) in attributes(value) {
            match (kind, inner) {
                (1, 1) => source = address(value),
                (1, 2) => destination = address(value),
                (2, 1) => protocol = value.first().copied()?,
                (2, 2) => source_port = port(value),
                (2, 3) => destination_port = port(value),
                _ => {}
            }
        }
    }
    let source = Endpoint { address: source?, port: source_port };
    Some((protocol, source, Endpoint { address: destination?, port: destination_port }))
}

/// Type, value and whole bytes of each attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
        let (value, whole) = (bytes.get(4..length)?, bytes.get(..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value, whole))
    })
}

/// Type and body of each message.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(16..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Nothing when it is an acknowledgement.
fn error_of(body: &[u8]) -> Option<Error> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code != 0).then(|| Error::from_raw_os_error(-code))
}

fn open() -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn send(socket: &OwnedFd, kind: u16, flags: u16, attributes: &[u8]) -> std::io::Result<()> {
    let length = 16 + 4 + attributes.len();
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([FAMILY_IPV4, 0, 0, 0]);
    message.extend(attributes);
    sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 64 * 1024];
    let (_, length) = recv(socket, buffer.as_mut_slice(), RecvFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_messages_end_the_walk() {
        for bytes in [&[][..], &[1], &[0; 16], &[255; 40], &[4, 0, 1, 0, 4, 0, 1, 0], &[3, 0, 1, 0]] {
            assert!(messages(bytes).count() <= 1);
            assert!(attributes(bytes).count() <= 2);
            assert!(Flow::parse(bytes).is_none());
        }
    }

    #[test]
    fn only_flows_to_other_endpoints_are_stale() {
        let endpoint = |text: &str| {
            let (address, port) = text.split_once(':').expect("an endpoint");
            Endpoint { address: address.parse().expect("an address"), port: port.parse().expect("a port") }
        };
        let changes: Changes = [
            (Frontend { address: Some([10, 96, 0, 10].into()), port: 53 }, [endpoint("10.244.0.5:53")].into()),
            (Frontend { address: None, port: 30053 }, [endpoint("10.244.0.5:53")].into()),
        ]
        .into();
        for (destination, answering, rewritten, expected) in [
            ("10.96.0.10:53", "10.244.0.5:53", true, false),
            ("10.96.0.10:53", "10.244.0.6:53", true, true),
            ("10.96.0.10:53", "10.96.0.10:53", false, true),
            ("10.96.0.11:53", "10.244.0.6:53", true, false),
            ("192.0.2.1:30053", "10.244.0.6:53", true, true),
            ("192.0.2.1:30053", "192.0.2.1:30053", false, false),
        ] {
            let (to, by) = (endpoint(destination), endpoint(answering));
            let flow = Flow { destination: to, answering: by, rewritten, original: Vec::new() };
            assert_eq!(is_stale(&flow, &changes), expected, "{destination} answered by {answering}");
        }
    }
}

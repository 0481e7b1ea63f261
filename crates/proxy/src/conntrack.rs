//! Flows of datagrams that the kernel remembers towards endpoints that are gone.
//!
//! A datagram has no end that the kernel could see: while a client keeps sending from one port, its datagrams go where
//! the first one went, whatever the rules say by then. Such flows are taken out of the kernel's table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferry_nft::netlink::{ACKNOWLEDGE, ERROR, REQUEST, attributes, dump, error_of, messages, open, receive, send};

use crate::endpoints::Endpoint;
use crate::family::Family;

/// Where clients send datagrams; without an address it is a port of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frontend {
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Frontends whose endpoints changed, with those they have now.
pub(crate) type Changes = BTreeMap<Frontend, BTreeSet<Endpoint>>;

const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
const UDP: u8 = 17;
/// Set on flows whose destination was rewritten.
const REWRITTEN: u32 = 1 << 5;

/// Ends the flows that no longer fit. Blocks for as long as the kernel takes to list its table.
pub(crate) fn end_stale(family: Family, changes: &Changes) -> std::io::Result<usize> {
    let socket = open()?;
    let mut stale = Vec::new();
    dump(&socket, GET, family.number(), &[], |body| {
        stale.extend(Flow::parse(body).filter(|flow| is_stale(flow, changes)).map(|flow| flow.original));
    })?;
    for original in &stale {
        send(&socket, DELETE, REQUEST | ACKNOWLEDGE, family.number(), original)?;
        let bytes = receive(&socket)?;
        for message in messages(&bytes).filter(|message| message.kind == ERROR) {
            // A flow that ended by itself meanwhile is what we want.
            if let Some(error) = error_of(message.body).filter(|error| error.kind() != std::io::ErrorKind::NotFound) {
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
    let v4 = |value: &[u8]| <[u8; 4]>::try_from(value).ok().map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    let v6 = |value: &[u8]| <[u8; 16]>::try_from(value).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)));
    let port = |value: &[u8]| value.try_into().map(u16::from_be_bytes).unwrap_or_default();
    for (kind, value, _) in attributes(bytes) {
        for (inner, value, _) in attributes(value) {
            match (kind, inner) {
                (1, 1) => source = v4(value),
                (1, 2) => destination = v4(value),
                (1, 3) => source = v6(value),
                (1, 4) => destination = v6(value),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_messages_are_no_flows() {
        for bytes in [&[][..], &[1], &[0; 16], &[255; 40], &[4, 0, 1, 0, 4, 0, 1, 0], &[3, 0, 1, 0]] {
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
            (Frontend { address: Some(IpAddr::from([10, 96, 0, 10])), port: 53 }, [endpoint("10.244.0.5:53")].into()),
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

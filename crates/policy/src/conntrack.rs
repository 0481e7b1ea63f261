//! Flows of datagrams that a policy forbids by now.
//!
//! Of a connection every packet from its client is judged, and without those its server falls silent soon: it waits to be
//! answered. A server of datagrams may go on for ever, and what it sends is an answer as long as the kernel remembers the flow.
//! So such flows are taken out of the kernel's table.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;

use ferry_nft::local_addresses;
use ferry_nft::netlink::{ACKNOWLEDGE, ERROR, REQUEST, attributes, dump, error_of, messages, open, receive, send};

const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
const FAMILIES: [u8; 2] = [2, 10];
const UDP: u8 = 17;

/// One remembered flow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) from: IpAddr,
    /// Behind a Service, the pod.
    pub(crate) to: IpAddr,
    pub(crate) port: u16,
    family: u8,
    /// The attribute that names the flow, as the kernel wrote it.
    original: Vec<u8>,
}

/// The flows of datagrams from or to these addresses that pass this node. Those that begin or end on it are not forwarded, and
/// policies do not judge them. Blocks for as long as the kernel takes to list its table.
pub(crate) fn flows(addresses: &BTreeSet<IpAddr>) -> std::io::Result<Vec<Flow>> {
    let own = local_addresses()?;
    let socket = open()?;
    let mut found = Vec::new();
    for family in FAMILIES {
        dump(&socket, GET, family, &[], |body| {
            let flow = Flow::parse(family, body).filter(|flow| !own.contains(&flow.from) && !own.contains(&flow.to));
            found.extend(flow.filter(|flow| addresses.contains(&flow.from) || addresses.contains(&flow.to)));
        })?;
    }
    Ok(found)
}

/// Makes the kernel forget them. Blocks.
pub(crate) fn forget(flows: &[Flow]) -> std::io::Result<()> {
    let socket = open()?;
    for flow in flows {
        send(&socket, DELETE, REQUEST | ACKNOWLEDGE, flow.family, &flow.original)?;
        let bytes = receive(&socket)?;
        for message in messages(&bytes).filter(|message| message.kind == ERROR) {
            // A flow that ended by itself meanwhile is what we want.
            if let Some(error) = error_of(message.body).filter(|error| error.kind() != ErrorKind::NotFound) {
                return Err(error);
            }
        }
    }
    Ok(())
}

impl Flow {
    fn parse(family: u8, body: &[u8]) -> Option<Self> {
        let (mut original, mut reply) = (None, None);
        for (kind, value, whole) in attributes(body.get(4..)?) {
            match kind {
                1 => original = Some((value, whole)),
                2 => reply = Some(value),
                _ => {}
            }
        }
        let (original, whole) = original?;
        let asked = tuple(original)?;
        let answer = tuple(reply?)?;
        (asked.protocol == UDP).then(|| Self {
            from: asked.source,
            to: answer.source,
            port: answer.source_port,
            family,
            original: whole.to_vec(),
        })
    }
}

struct Tuple {
    protocol: u8,
    source: IpAddr,
    source_port: u16,
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (mut source, mut source_port, mut protocol) = (None, 0, 0);
    for (kind, value, _) in attributes(bytes) {
        for (inner, value, _) in attributes(value) {
            match (kind, inner) {
                (1, 1) => source = <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
                (1, 3) => source = <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
                (2, 1) => protocol = value.first().copied()?,
                (2, 2) => source_port = value.try_into().map(u16::from_be_bytes).unwrap_or_default(),
                _ => {}
            }
        }
    }
    Some(Tuple { protocol, source: source?, source_port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_messages_are_no_flows() {
        for bytes in [&[][..], &[1], &[0; 16], &[255; 40], &[4, 0, 1, 0, 4, 0, 1, 0], &[3, 0, 1, 0]] {
            assert!(Flow::parse(2, bytes).is_none());
        }
    }
}

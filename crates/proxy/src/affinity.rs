//! Which clients the kernel remembers for Services with session affinity. A table that is written anew would forget them: they
//! are read before, and written again with the time that they have left.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::net::IpAddr;

use ferry_nft::netlink::{attributes, dump, open, text_attribute};

use crate::family::Family;

/// `NFT_MSG_GETSETELEM` of the subsystem nftables.
const GET_ELEMENTS: u16 = (10 << 8) | 13;
/// More clients than this are not carried over.
const MOST: usize = 100_000;
const IN_ONE_LINE: usize = 500;

/// A client, and how many milliseconds it is still remembered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Client {
    address: IpAddr,
    left: u64,
}

/// The commands that put the clients back into sets of these names, each with the seconds that an entry of it lives. Blocks for as long
/// as the kernel takes to list them.
pub(crate) fn remembered(family: Family, table: &str, sets: &BTreeMap<String, u32>) -> std::io::Result<String> {
    let mut text = String::new();
    if sets.is_empty() {
        return Ok(text);
    }
    let (socket, mut room) = (open()?, MOST);
    for (set, seconds) in sets {
        let asked = [text_attribute(1, table), text_attribute(2, set)].concat();
        let mut clients = Vec::new();
        let listed = dump(&socket, GET_ELEMENTS, family.number(), &asked, |body| clients.extend(read(body)));
        match listed {
            // The table, or this set of it, was not there.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other?,
        }
        clients.truncate(room);
        room -= clients.len();
        for some in clients.chunks(IN_ONE_LINE) {
            let all: Vec<String> = some
                .iter()
                .map(|Client { address, left }| format!("{address} timeout {seconds}s expires {left}ms"))
                .collect();
            let _ = writeln!(text, "add element {} {table} {set} {{ {} }}", family.word(), all.join(", "));
        }
    }
    Ok(text)
}

/// The clients of one message.
fn read(body: &[u8]) -> Vec<Client> {
    let lists = attributes(body.get(4..).unwrap_or_default()).filter(|(kind, _, _)| *kind == 3);
    lists.flat_map(|(_, list, _)| attributes(list)).filter_map(|(_, element, _)| client(element)).collect()
}

fn client(element: &[u8]) -> Option<Client> {
    let (mut address, mut left) = (None, None);
    for (kind, value, _) in attributes(element) {
        match kind {
            1 => address = attributes(value).find(|(kind, _, _)| *kind == 1).and_then(|(_, bytes, _)| parse(bytes)),
            5 => left = Some(u64::from_be_bytes(value.try_into().ok()?)),
            _ => {}
        }
    }
    Some(Client { address: address?, left: left.filter(|left| *left > 0)? })
}

fn parse(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_messages_are_no_clients() {
        for bytes in [&[][..], &[1], &[0; 16], &[255; 40], &[0, 0, 0, 0, 8, 0, 3, 128, 4, 0, 1, 128]] {
            assert!(read(bytes).is_empty());
        }
    }
}

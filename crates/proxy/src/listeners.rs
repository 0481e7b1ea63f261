//! What the node itself listens on: such ports are never a Service's.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::Service;

use crate::family::Family;

/// No more of a file is read: sockets are made by anyone.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// No more ports are told to others: an annotation of the Node has to hold them.
const MOST_NAMES: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listener {
    protocol: &'static str,
    port: u16,
    /// That of no one is every address of IPv4, or of both families.
    address: IpAddr,
}

impl Listener {
    /// Whether packets to that address come to it. A socket for all of IPv6 takes connections of IPv4 too, unless it says
    /// otherwise, which is not told here.
    fn hears(&self, to: IpAddr) -> bool {
        self.address == to || (self.address.is_unspecified() && (self.address.is_ipv6() || to.is_ipv4()))
    }

    /// Whether others can reach it by an address of that family.
    fn is_reachable(&self, family: Family) -> bool {
        let is_of = family.has(&self.address) || (self.address.is_unspecified() && self.address.is_ipv6());
        is_of && !self.address.is_loopback()
    }
}

/// The addresses of the node, and the ports that it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listeners {
    addresses: BTreeSet<IpAddr>,
    listeners: BTreeSet<Listener>,
    /// Ports that the kernel gives to clients.
    for_clients: RangeInclusive<u16>,
}

impl Default for Listeners {
    fn default() -> Self {
        Self { addresses: BTreeSet::new(), listeners: BTreeSet::new(), for_clients: 32768..=60999 }
    }
}

impl Listeners {
    /// As the kernel tells it now. Blocks for as long as it takes to read a few files of `/proc`.
    pub(crate) fn read() -> Self {
        let mut listeners: Vec<Listener> = Vec::new();
        for file in ["tcp", "tcp6"] {
            // Those that listen stand first: the many connections of a busy node are not read.
            listeners.extend(lines(file).skip(1).map_while(|line| listener("tcp", "0A", &line)));
        }
        for file in ["udp", "udp6"] {
            listeners.extend(lines(file).skip(1).filter_map(|line| listener("udp", "07", &line)));
        }
        Self {
            addresses: ferry_nft::local_addresses().unwrap_or_default(),
            listeners: listeners.into_iter().collect(),
            for_clients: ports_for_clients().unwrap_or(Self::default().for_clients),
        }
    }

    /// Whether the node listens there, at an address of its own.
    pub(crate) fn has(&self, address: IpAddr, protocol: &str, port: u16) -> bool {
        self.addresses.contains(&address) && self.of(protocol, port).any(|known| known.hears(address))
    }

    /// Whether an address is one of the node's.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// `tcp/22` and the like: what others can reach. Clients' sockets for datagrams look like servers'; those at ports that
    /// the kernel gives to clients are left out.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let reachable = |known: &&Listener| !known.address.is_loopback();
        let is_client = |known: &&Listener| known.protocol == "udp" && self.for_clients.contains(&known.port);
        let all = self.listeners.iter().filter(reachable).filter(|known| !is_client(known));
        all.map(|known| format!("{}/{}", known.protocol, known.port)).take(MOST_NAMES).collect()
    }

    /// Whether it listens on that port at any address by which others reach it.
    pub(crate) fn has_port(&self, family: Family, protocol: &str, port: u16) -> bool {
        self.of(protocol, port).any(|known| known.is_reachable(family))
    }

    fn of(&self, protocol: &str, port: u16) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().filter(move |known| known.protocol == protocol && known.port == port)
    }

    pub(crate) fn changed_to(&self, new: &Self) -> Moved {
        let ports = self.listeners.symmetric_difference(&new.listeners).map(|known| (known.protocol, known.port));
        Moved { ports: ports.collect(), addresses: self.addresses != new.addresses }
    }

    #[cfg(test)]
    pub(crate) fn of_test(addresses: &[&str], listening: &[(&'static str, Option<&str>, u16)]) -> Self {
        let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
        Self {
            addresses: addresses.iter().map(|text| parse(text)).collect(),
            listeners: listening
                .iter()
                .map(|(protocol, address, port)| Listener {
                    protocol,
                    port: *port,
                    address: parse(address.unwrap_or("::")),
                })
                .collect(),
            ..Self::default()
        }
    }
}

/// What the node came to listen on, or no longer does.
pub(crate) struct Moved {
    ports: BTreeSet<(&'static str, u16)>,
    addresses: bool,
}

impl Moved {
    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty() && !self.addresses
    }

    /// Whether it may be of matter for this Service.
    pub(crate) fn concern(&self, service: &Service) -> bool {
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let mut numbers = ports.flat_map(|port| [Some(port.port), port.node_port]).flatten();
        self.addresses || numbers.any(|number| self.ports.iter().any(|(_, moved)| i32::from(*moved) == number))
    }
}

/// Of the network that this thread is in.
fn lines(file: &str) -> impl Iterator<Item = String> {
    let file = File::open(format!("/proc/thread-self/net/{file}")).ok();
    file.into_iter().flat_map(|file| BufReader::new(file.take(MOST_BYTES)).lines().map_while(Result::ok))
}

/// The socket of a line of `/proc/net/tcp` and its kin. None where it is in another state.
fn listener(protocol: &'static str, state: &str, line: &str) -> Option<Listener> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = fields.next()?;
    if fields.nth(1)? != state {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(address)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(address.get(index * 8..index * 8 + 8)?)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(Listener { protocol, port, address })
}

fn ports_for_clients() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn sockets_are_read_as_the_kernel_writes_them() {
        let check = |line: &str, want: Option<(u16, &str)>| {
            let got = listener("tcp", "0A", line).map(|one| (one.port, one.address.to_string()));
            assert_eq!(got, want.map(|(port, address)| (port, address.to_owned())), "{line}");
        };
        let rest = "00000000:00000000 00:00000000 00000000     0        0 12345 1";
        if cfg!(target_endian = "little") {
            let other = format!("   4: 000000FD000000000000000001000000:0016 {}:0000 0A {rest}", "0".repeat(32));
            check(&other, Some((22, "fd00::1")));
            check(&format!("   0: 0100007F:1F90 00000000:0000 0A {rest}"), Some((8080, "127.0.0.1")));
            check(
                &format!("   1: 0000000000000000FFFF00000500000A:0016 {}:0000 0A {rest}", "0".repeat(32)),
                Some((22, "10.0.0.5")),
            );
        }
        check(&format!("   2: 00000000:0016 00000000:0000 0A {rest}"), Some((22, "0.0.0.0")));
        check(&format!("   3: {}:0016 {}:0000 0A {rest}", "0".repeat(32), "0".repeat(32)), Some((22, "::")));
        check(&format!("   5: 0100007F:1F90 0100007F:C000 01 {rest}"), None);
        for broken in ["", "0:", "0: x:y 0 0A", "0: 00000000 0 0A", "0: 0000:0016 0 0A"] {
            check(broken, None);
        }
    }

    #[test]
    fn this_machine_is_read() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("its address").port();
        let datagrams = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port");
        let udp = datagrams.local_addr().expect("its address").port();
        let open = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
        let all = Listeners::read();
        assert!(all.has(LOCALHOST, "tcp", port) && !all.has_port(Family::Ipv4, "tcp", port));
        assert!(all.has(LOCALHOST, "udp", udp) && all.has_port(Family::Ipv4, "udp", udp));
        assert!(!all.has_port(Family::Ipv6, "udp", udp), "of the other family");
        assert!(!all.has(IpAddr::from([192, 0, 2, 1]), "udp", udp), "an address of somebody else");
        assert!(all.is_own(LOCALHOST) && !all.is_own(IpAddr::from([192, 0, 2, 1])));
        let names = all.names();
        assert!(!names.contains(&format!("tcp/{port}")), "others cannot reach it");
        assert!(!names.contains(&format!("udp/{udp}")), "as any client's");
        assert!(names.contains(&format!("tcp/{}", open.local_addr().expect("its address").port())));
    }
}

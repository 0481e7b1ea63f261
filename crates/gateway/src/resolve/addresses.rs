//! Which address a Gateway has. Ports of one address belong to one Gateway; who has an address keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// A port, and whether it is one of datagrams.
pub type Port = (u16, bool);

/// Gateways beyond those that the machine's own addresses have room for get addresses that reach this machine alone.
const OVERFLOW: [u8; 2] = [127, 64];

pub struct Wanted {
    /// The ports of its listeners.
    pub ports: BTreeSet<Port>,
    /// What its status says.
    pub had: Vec<IpAddr>,
    /// What its spec asks for.
    pub asked: Vec<IpAddr>,
}

pub fn is_overflow(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[..2] == OVERFLOW)
}

/// The addresses of each, in the same order; what was asked for and cannot be given is left out. The oldest come first. Of the
/// addresses `others`, which other machines have, a Gateway gets those that it asks for.
pub fn assign(gateways: &[Wanted], own: &[IpAddr], others: &[IpAddr]) -> Vec<Vec<IpAddr>> {
    let mut taken: BTreeMap<IpAddr, BTreeSet<Port>> = BTreeMap::new();
    let mut given = vec![Vec::new(); gateways.len()];
    let usable = |address: &IpAddr| own.contains(address) || is_overflow(*address);
    for (place, wanted) in gateways.iter().enumerate() {
        let keeps: Vec<IpAddr> = match wanted.asked.is_empty() {
            true => wanted.had.iter().copied().find(usable).into_iter().collect(),
            false => wanted.asked.iter().copied().filter(|one| usable(one) || others.contains(one)).collect(),
        };
        for address in keeps {
            let ports = taken.entry(address).or_default();
            if ports.is_disjoint(&wanted.ports) {
                ports.extend(&wanted.ports);
                given[place].push(address);
            }
        }
    }
    for (place, wanted) in gateways.iter().enumerate() {
        if !given[place].is_empty() || !wanted.asked.is_empty() {
            continue;
        }
        let overflow = (1..=u16::MAX - 1).map(|number| {
            let [third, fourth] = number.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(OVERFLOW[0], OVERFLOW[1], third, fourth))
        });
        let free = own
            .iter()
            .copied()
            .chain(overflow)
            .find(|address| taken.get(address).is_none_or(|ports| ports.is_disjoint(&wanted.ports)));
        if let Some(address) = free {
            taken.entry(address).or_default().extend(&wanted.ports);
            given[place].push(address);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gateways: &[(&[u16], &str, &[&str])], want: &[&str]) {
        let own = ["10.0.0.1".parse().unwrap()];
        let wanted: Vec<Wanted> = gateways
            .iter()
            .map(|(ports, had, asked)| Wanted {
                ports: ports.iter().map(|port| (*port, false)).collect(),
                had: had.split(' ').filter_map(|text| text.parse().ok()).collect(),
                asked: asked.iter().map(|text| text.parse().unwrap()).collect(),
            })
            .collect();
        let given: Vec<String> = assign(&wanted, &own, &["10.0.0.2".parse().unwrap()])
            .iter()
            .map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(given, want);
    }

    #[test]
    fn the_oldest_has_the_machine_and_nobody_moves() {
        check(&[(&[80, 443], "", &[]), (&[80], "", &[]), (&[8080], "", &[])], &["10.0.0.1", "127.64.0.1", "10.0.0.1"]);
        check(&[(&[80], "127.64.0.7", &[]), (&[80], "10.0.0.1", &[])], &["127.64.0.7", "10.0.0.1"]);
        // An address that was given to somebody else, or is not ours, is not kept.
        check(&[(&[80], "10.0.0.1", &[]), (&[80], "10.0.0.1", &[])], &["10.0.0.1", "127.64.0.1"]);
        check(&[(&[80], "192.0.2.1", &[])], &["10.0.0.1"]);
        // Other machines may come first in the status.
        check(&[(&[80], "", &[]), (&[80], "10.0.0.2 10.0.0.1", &[])], &["127.64.0.1", "10.0.0.1"]);
    }

    #[test]
    fn only_what_was_asked_for_is_given() {
        check(&[(&[80], "", &["127.64.9.9"]), (&[80], "", &["192.0.2.1"])], &["127.64.9.9", ""]);
        check(&[(&[80], "", &["10.0.0.2"]), (&[80], "", &["10.0.0.2"])], &["10.0.0.2", ""]);
        check(&[(&[80], "", &[]), (&[80], "", &["10.0.0.1"])], &["127.64.0.1", "10.0.0.1"]);
    }
}

//! The ranges that addresses of Services come from: those of the flag, and the ServiceCIDRs that were added.

use std::net::IpAddr;

use ferry_meta::{GroupResource, ObjectReader, object};
use ferry_semantics::cidr::{self, IpNet};
use rand::Rng;
use serde_json::Value;

/// Of ranges with more than this many addresses a part is kept for those that people choose.
const SMALLEST_WITH_RESERVE: u128 = 16;
/// No range of IPv6 is larger than this: nobody could count its addresses.
const SHORTEST_IPV6_PREFIX: u8 = 64;

/// One range, by its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range(IpNet);

impl Range {
    pub fn parse(text: &str) -> Option<Self> {
        let range = cidr::parse(text)?.trunc();
        let countable = matches!(range, IpNet::V4(_)) || range.prefix_len() >= SHORTEST_IPV6_PREFIX;
        countable.then_some(Self(range))
    }

    fn is_ipv6(self) -> bool {
        matches!(self.0, IpNet::V6(_))
    }

    pub fn family(self) -> &'static str {
        if self.is_ipv6() { "IPv6" } else { "IPv4" }
    }

    fn address(self, number: u128) -> IpAddr {
        cidr::address(&self.0, number).unwrap_or(self.0.broadcast())
    }

    /// The first and the last address that a Service may have: neither the network's own nor, of IPv4, the broadcast.
    fn ends(self) -> (u128, u128) {
        let (base, end) = (cidr::number(self.0.network()), cidr::number(self.0.broadcast()));
        (base.saturating_add(1), if self.is_ipv6() { end } else { end.saturating_sub(1) })
    }

    pub fn first(self) -> IpAddr {
        self.address(self.ends().0)
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let (first, last) = self.ends();
        address.is_ipv6() == self.is_ipv6() && (first..=last).contains(&cidr::number(address))
    }

    /// Some address that is not taken. The lower part is kept for those that people choose, while there are others.
    pub fn free(self, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let (first, last) = self.ends();
        let size = cidr::size(&self.0);
        let reserved = if size <= SMALLEST_WITH_RESERVE { 0 } else { (size / 16).clamp(16, 256) };
        let upper = (first + reserved, last);
        [upper, (first, upper.0 - 1)].into_iter().find_map(|(from, to)| {
            if from > to {
                return None;
            }
            let start = rand::rng().random_range(from..=to);
            // What is taken is finite, so is the way to what is free.
            (start..=to).chain(from..start).map(|number| self.address(number)).find(|address| !taken(*address))
        })
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What the server is told at its start: a range, or one of each family. The first is what Services get by default.
#[derive(Clone, Debug)]
pub struct ServiceNetwork {
    ranges: Vec<Range>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no range such as 10.96.0.0/16, nor two of different families such as 10.96.0.0/16,fd00:96::/112")]
pub struct BadNetwork(String);

impl ServiceNetwork {
    pub fn parse(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let usable = |Range(range): &Range| {
            let shortest = if matches!(range, IpNet::V4(_)) { 8 } else { SHORTEST_IPV6_PREFIX };
            (shortest..=range.max_prefix_len() - 2).contains(&range.prefix_len())
        };
        let read = |part: &str| Range::parse(part.trim()).filter(usable).ok_or_else(bad);
        let ranges: Vec<Range> = text.split(',').map(read).collect::<Result<_, _>>()?;
        match &*ranges {
            [_] => Ok(Self { ranges }),
            [one, other] if one.is_ipv6() != other.is_ipv6() => Ok(Self { ranges }),
            _ => Err(bad()),
        }
    }

    /// The address of the `kubernetes` Service.
    pub fn first(&self) -> IpAddr {
        self.ranges[0].first()
    }

    /// The families that Services may have, the default first.
    pub fn families(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| range.family()).collect()
    }

    /// As ServiceCIDRs list them.
    pub fn texts(&self) -> Vec<String> {
        self.ranges.iter().map(Range::to_string).collect()
    }
}

/// The name of the ServiceCIDR that the server makes of its own ranges.
pub(crate) const DEFAULT: &str = "kubernetes";

/// Where addresses of a family may come from now: from ServiceCIDRs that are ready and stay. One of which nobody says whether it
/// is ready is: there may be no controller manager.
pub(super) fn usable(network: &ServiceNetwork, reader: &dyn ObjectReader, family: &str) -> Vec<Range> {
    let mut found: Vec<Range> = Vec::new();
    let objects = reader.list(&GroupResource::new("networking.k8s.io", "servicecidrs"), "");
    let leaves = |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    let serves = |one: &Value| !leaves(one) && matches!(ready(one), "" | "True");
    if objects.iter().all(|one| object::name(one) != DEFAULT || serves(one)) {
        found.extend(&network.ranges);
    }
    let usable = objects.iter().filter(|one| serves(one));
    let listed = usable.flat_map(|one| object::items(one, "/spec/cidrs")).filter_map(Value::as_str);
    found.extend(listed.filter_map(Range::parse));
    let mut kept: Vec<Range> = Vec::new();
    for range in found {
        if range.family() == family && !kept.contains(&range) {
            kept.push(range);
        }
    }
    kept
}

fn ready(range: &Value) -> &str {
    let conditions = object::items(range, "/status/conditions");
    let found = conditions.iter().find(|condition| object::text(condition, "/type") == "Ready");
    found.map_or("", |condition| object::text(condition, "/status"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranges_are_read_and_hand_out_what_they_have() {
        for (text, first, count) in [
            ("10.96.0.0/16", "10.96.0.1", 65534_usize),
            ("10.96.7.9/24", "10.96.7.1", 254),
            ("10.0.0.0/28", "10.0.0.1", 14),
            ("10.0.0.0/30", "10.0.0.1", 2),
            ("10.0.0.0/31", "10.0.0.1", 0),
            ("0.0.0.0/32", "0.0.0.1", 0),
            ("fd00::/120", "fd00::1", 255),
        ] {
            let range = Range::parse(text).expect("a range");
            assert_eq!(range.first().to_string(), first, "{text}");
            let mut taken = BTreeSet::new();
            while let Some(address) = range.free(|address| taken.contains(&address)).filter(|_| taken.len() < 300) {
                assert!(range.contains(address) && taken.insert(address), "{text}: {address}");
            }
            assert_eq!(taken.len(), count.min(300), "{text}");
        }
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/63", "fd00::/129", "x/8", "10.0.0.0/-1"] {
            assert_eq!(Range::parse(bad), None, "{bad}");
        }
        let wide = Range::parse("fd00::/64").expect("a range");
        assert!(wide.free(|_| false).is_some_and(|address| wide.contains(address)));
        // The lower part comes last.
        let range = Range::parse("10.0.0.0/24").expect("a range");
        let upper: Vec<bool> = (0..50).map(|_| range.free(|_| false) >= "10.0.0.17".parse().ok()).collect();
        assert!(upper.iter().all(|upper| *upper));
    }

    #[test]
    fn networks_have_one_range_of_a_family() {
        assert_eq!(ServiceNetwork::parse("10.96.0.0/16,fd00::/112").expect("two").families(), ["IPv4", "IPv6"]);
        assert_eq!(ServiceNetwork::parse("fd00::/112").expect("one").first().to_string(), "fd00::1");
        for bad in ["", "10.96.0.0/16,10.97.0.0/16", "10.96.0.0/16,fd00::/112,fd01::/112", "10.0.0.0/7", "10.0.0.0/31"]
        {
            assert!(ServiceNetwork::parse(bad).is_err(), "{bad}");
        }
    }
}

//! Ranges of addresses, of which there may be very many: whether an address is in one is found without looking at each.

use std::net::IpAddr;

use ipnet::IpNet;

/// The first and the last address of each, none of which meets another; sorted. Those of IPv4 are apart from those of IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

/// Sorts them and joins those that meet.
fn joined<T: Copy + Ord>(mut all: Vec<(T, T)>) -> Box<[(T, T)]> {
    all.sort();
    let mut kept: Vec<(T, T)> = Vec::new();
    for (first, last) in all {
        match kept.last_mut() {
            Some((_, end)) if first <= *end => *end = (*end).max(last),
            _ => kept.push((first, last)),
        }
    }
    kept.into()
}

fn has<T: Copy + Ord>(all: &[(T, T)], one: T) -> bool {
    let behind = all.partition_point(|(first, _)| *first <= one);
    behind.checked_sub(1).and_then(|place| all.get(place)).is_some_and(|(_, last)| one <= *last)
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// `address` is an address of IPv4 where it stands for one.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => has(&self.v4, address.to_bits()),
            IpAddr::V6(address) => has(&self.v6, address.to_bits()),
        }
    }
}

impl FromIterator<IpNet> for Ranges {
    fn from_iter<I: IntoIterator<Item = IpNet>>(all: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in all {
            match range {
                IpNet::V4(range) => v4.push((range.network().to_bits(), range.broadcast().to_bits())),
                IpNet::V6(range) => v6.push((range.network().to_bits(), range.broadcast().to_bits())),
            }
        }
        Self { v4: joined(v4), v6: joined(v6) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_range_or_it_is_not() {
        let texts = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "0.0.0.0/32", "2001:db8::/32", "255.255.255.255/32"];
        let ranges: Ranges = texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect();
        for (address, want) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("0.0.0.0", true),
            ("0.0.0.1", false),
            ("255.255.255.255", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::a00:1", false),
        ] {
            assert_eq!(ranges.contains(address.parse().unwrap()), want, "{address}");
        }
        assert!(!Ranges::default().contains("10.0.0.1".parse().unwrap()) && Ranges::default().is_empty());
    }

    /// Each request looked at each of them.
    #[test]
    fn many_ranges_are_as_good_as_few() {
        let net = |number: u32| IpNet::new(IpAddr::V4((number * 2).into()), 32).unwrap();
        let ranges: Ranges = (0..100_000).map(net).collect();
        let began = std::time::Instant::now();
        let found = (0..200_000_u32).filter(|number| ranges.contains(IpAddr::V4((*number).into()))).count();
        assert_eq!(found, 100_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

//! Ranges of addresses, as flags and fields have them: `10.96.0.0/16`, `fd00::/112`. The arithmetic is `ipnet`'s.

use std::net::IpAddr;

pub use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// An address and a prefix length without leading zeros; bits behind the prefix may be set.
pub fn parse(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let plain = length.bytes().all(|b| b.is_ascii_digit()) && (length.len() == 1 || !length.starts_with('0'));
    IpNet::new(address.parse().ok()?, length.parse().ok().filter(|_| plain)?).ok()
}

/// Whether they have an address in common.
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// An address as a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of a range's family with that number.
pub fn address(range: &IpNet, number: u128) -> Option<IpAddr> {
    match range {
        IpNet::V4(_) => u32::try_from(number).ok().map(|number| IpAddr::V4(number.into())),
        IpNet::V6(_) => Some(IpAddr::V6(number.into())),
    }
}

/// How many addresses it has; as many as can be counted where there are more.
pub fn size(range: &IpNet) -> u128 {
    1_u128.checked_shl(u32::from(range.max_prefix_len() - range.prefix_len())).unwrap_or(u128::MAX)
}

/// Its n-th address, from 0.
pub fn nth(range: &IpNet, n: u128) -> Option<IpAddr> {
    let number = number(range.network()).checked_add(n).filter(|_| n < size(range))?;
    address(range, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_go_reads_them() {
        let check = |text: &str, network: &str| {
            assert_eq!(parse(text).map(|range| range.trunc().to_string()).as_deref(), Some(network), "{text}");
        };
        check("10.96.0.0/16", "10.96.0.0/16");
        check("10.96.7.9/24", "10.96.7.0/24");
        check("0.0.0.0/0", "0.0.0.0/0");
        check("fd00::1/64", "fd00::/64");
        check("::/0", "::/0");
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "010.0.0.0/8",
            "fd00::/129",
            "x/8",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn ranges_overlap_where_they_share_an_address() {
        let check = |one: &str, other: &str, expected: bool| {
            let (one, other) = (parse(one).expect("a range"), parse(other).expect("a range"));
            assert_eq!((overlap(&one, &other), overlap(&other, &one)), (expected, expected), "{one} {other}");
        };
        check("10.0.0.0/8", "10.96.0.0/16", true);
        check("10.0.0.5/8", "10.96.0.0/16", true);
        check("10.0.0.0/16", "10.1.0.0/16", false);
        check("0.0.0.0/0", "::/0", false);
    }

    #[test]
    fn addresses_are_counted_from_the_first() {
        let check = |range: &str, n: u128, expected: Option<&str>| {
            let range = parse(range).expect("a range");
            assert_eq!(nth(&range, n).map(|address| address.to_string()).as_deref(), expected, "{range} {n}");
        };
        check("10.0.0.0/24", 0, Some("10.0.0.0"));
        check("10.0.0.9/24", 255, Some("10.0.0.255"));
        check("10.0.0.0/24", 256, None);
        check("255.255.255.255/32", 0, Some("255.255.255.255"));
        check("fd00::/64", 1, Some("fd00::1"));
        check("::/0", u128::MAX - 1, Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"));
        assert_eq!(size(&parse("::/0").expect("a range")), u128::MAX);
        assert_eq!(size(&parse("0.0.0.0/0").expect("a range")), 1 << 32);
    }
}

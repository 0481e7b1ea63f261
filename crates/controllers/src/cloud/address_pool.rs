//! Addresses that are given away one by one: `192.0.2.0/28`, `192.0.2.10-192.0.2.50`, several of them with commas, of both families.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ferry_semantics::cidr::{self, IpNet};

/// From the first to the last, which are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: IpAddr,
    last: IpAddr,
}

impl Span {
    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && self.first <= address && address <= self.last
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let is_ipv4 = self.first.is_ipv4();
        (cidr::number(self.first)..=cidr::number(self.last)).map(move |number| match u32::try_from(number) {
            Ok(number) if is_ipv4 => IpAddr::V4(number.into()),
            _ => IpAddr::V6(number.into()),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPool {
    spans: Vec<Span>,
    text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AddressPoolError {
    #[error("{0:?} is no range of addresses; write it like 192.0.2.0/28, 192.0.2.10-192.0.2.50 or fd00:1::/120")]
    Range(String),
    #[error("{0:?} has an address that cannot be given to anybody: {1}")]
    Address(String, IpAddr),
}

impl FromStr for AddressPool {
    type Err = AddressPoolError;

    fn from_str(text: &str) -> Result<Self, AddressPoolError> {
        let spans = text.split(',').map(|part| span(part.trim())).collect::<Result<_, _>>()?;
        Ok(Self { spans, text: text.to_owned() })
    }
}

impl fmt::Display for AddressPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn span(text: &str) -> Result<Span, AddressPoolError> {
    let malformed = || AddressPoolError::Range(text.to_owned());
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => {
            let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| malformed());
            (address(first)?, address(last)?)
        }
        None => {
            let range = cidr::parse(text).ok_or_else(malformed)?.trunc();
            // The network's own address and the one of all machines are nobody's.
            let edge = u128::from(matches!(range, IpNet::V4(range) if range.prefix_len() < 31));
            let of = |number| cidr::nth(&range, number).ok_or_else(malformed);
            (of(edge)?, of(cidr::size(&range) - 1 - edge)?)
        }
    };
    if first.is_ipv4() != last.is_ipv4() || first > last {
        return Err(malformed());
    }
    for address in [first, last] {
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return Err(AddressPoolError::Address(text.to_owned(), address));
        }
    }
    Ok(Span { first, last })
}

impl AddressPool {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.spans.iter().any(|span| span.contains(address))
    }

    /// Whether it has addresses of a range.
    pub fn overlaps(&self, range: &IpNet) -> bool {
        self.spans
            .iter()
            .any(|span| range.contains(&span.first) || range.contains(&span.last) || span.contains(range.network()))
    }

    pub fn has_family(&self, is_ipv4: bool) -> bool {
        self.spans.iter().any(|span| span.first.is_ipv4() == is_ipv4)
    }

    /// The first of a family that is free.
    pub fn first_free(&self, is_ipv4: bool, is_taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let spans = self.spans.iter().filter(|span| span.first.is_ipv4() == is_ipv4);
        spans.flat_map(Span::addresses).find(|address| !is_taken(*address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_read_and_used_up() {
        let pool: AddressPool = "192.0.2.0/30, 198.51.100.7-198.51.100.8,fd00::/127".parse().expect("a pool");
        let mut taken = Vec::new();
        while let Some(next) = pool.first_free(true, |address| taken.contains(&address)) {
            taken.push(next);
        }
        let texts: Vec<String> = taken.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["192.0.2.1", "192.0.2.2", "198.51.100.7", "198.51.100.8"]);
        assert!(taken.iter().all(|address| pool.contains(*address)));
        assert_eq!(pool.first_free(false, |_| false), Some("fd00::".parse().expect("an address")));
        assert!(pool.has_family(false) && !pool.contains("192.0.2.3".parse().expect("an address")));
        for (range, expected) in [
            ("192.0.2.2/32", true),
            ("198.51.100.0/24", true),
            ("198.51.100.8/30", true),
            ("10.0.0.0/8", false),
            ("fd00::/64", true),
        ] {
            assert_eq!(pool.overlaps(&cidr::parse(range).expect("a range")), expected, "{range}");
        }
        assert_eq!(pool.to_string().parse::<AddressPool>().expect("as it was"), pool);
        // Far more than could be tried one by one.
        let wide: AddressPool = "fd00::/8".parse().expect("a pool");
        assert_eq!(wide.first_free(false, |_| false), Some("fd00::".parse().expect("an address")));
        for bad in [
            "",
            "192.0.2.9",
            "192.0.2.9-192.0.2.1",
            "192.0.2.1-fd00::1",
            "x/8",
            "127.0.0.0/8",
            "224.0.0.0/4",
            "0.0.0.0-1.1.1.1",
        ] {
            assert!(bad.parse::<AddressPool>().is_err(), "{bad}");
        }
    }
}

//! The two families of addresses: each has a table of its own, of the same name and the same shape.

use std::net::IpAddr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// As nftables calls its tables and the headers of its packets.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
        }
    }

    /// The type of its addresses in sets and maps.
    pub(crate) fn address_type(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4_addr",
            Self::Ipv6 => "ipv6_addr",
        }
    }

    /// The `addressType` of EndpointSlices.
    pub(crate) fn slice_type(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    pub(crate) fn loopback(self) -> &'static str {
        match self {
            Self::Ipv4 => "127.0.0.0/8",
            Self::Ipv6 => "::1/128",
        }
    }

    /// As a table has it.
    pub(crate) fn of_nft(self) -> ferry_nft::Family {
        match self {
            Self::Ipv4 => ferry_nft::Family::Ip,
            Self::Ipv6 => ferry_nft::Family::Ip6,
        }
    }

    /// As the kernel numbers it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }

    pub(crate) fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Self::Ipv4)
    }

    /// An address of this family.
    pub(crate) fn parse(self, text: &str) -> Option<IpAddr> {
        text.parse().ok().filter(|address| self.has(address))
    }

    /// The ranges of this family.
    pub(crate) fn ranges(self, all: &[String]) -> Vec<String> {
        all.iter().filter(|range| range.contains(':') == (self == Self::Ipv6)).cloned().collect()
    }
}

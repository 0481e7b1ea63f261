//! Ranges of addresses as flags have them: one, or one of each family.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use ferry_semantics::cidr::{self, IpNet};

/// One range such as `10.244.0.0/16` or `fd00:10:244::/56`.
pub fn parse(flag: &str, text: &str) -> Result<IpNet> {
    let Some(range) = cidr::parse(text) else {
        bail!("--{flag} {text:?} is no range of addresses; write it like 10.244.0.0/16 or fd00:10:244::/56");
    };
    ensure!(
        range == range.trunc(),
        "--{flag} {text:?} has bits set behind its prefix length; the range's first address is {}",
        range.network()
    );
    Ok(range)
}

/// The n-th address of a range, or its first where it has not as many.
pub fn nth(range: &IpNet, n: u32) -> IpAddr {
    cidr::nth(range, n.into()).unwrap_or(range.network())
}

/// Of a cluster with one family of addresses, or with both. The first is what pods and Services have first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    first: IpNet,
    second: Option<IpNet>,
}

impl Ranges {
    pub fn parse(flag: &str, text: &str) -> Result<Self> {
        let mut parts = text.split(',').map(str::trim);
        let first = parse(flag, parts.next().unwrap_or_default())?;
        let second = parts.next().map(|part| parse(flag, part)).transpose()?;
        ensure!(parts.next().is_none(), "--{flag} {text:?} has more than two ranges");
        ensure!(
            second.is_none_or(|second| is_ipv4(&second) != is_ipv4(&first)),
            "--{flag} {text:?} has two ranges of one family; give one of IPv4 and one of IPv6"
        );
        Ok(Self { first, second })
    }

    /// From a list that is known to be good, such as a Node's.
    pub fn of(flag: &str, list: &[String]) -> Result<Self> {
        Self::parse(flag, &list.join(",")).with_context(|| format!("the node's ranges {list:?}"))
    }

    pub fn first(&self) -> IpNet {
        self.first
    }

    pub fn iter(&self) -> impl Iterator<Item = IpNet> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// As text, one by one.
    pub fn texts(&self) -> Vec<String> {
        self.iter().map(|range| range.to_string()).collect()
    }

    pub fn contains(&self, address: &IpAddr) -> bool {
        self.iter().any(|range| range.contains(address))
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.iter().any(|one| other.iter().any(|other| cidr::overlap(&one, &other)))
    }

    /// The n-th address of each.
    pub fn nth(&self, n: u32) -> Vec<IpAddr> {
        self.iter().map(|range| nth(&range, n)).collect()
    }

    /// Whether the families are the same, in the same order.
    pub fn is_like(&self, other: &Self) -> bool {
        let families = |ranges: &Self| ranges.iter().map(|range| is_ipv4(&range)).collect::<Vec<_>>();
        families(self) == families(other)
    }

    pub fn has_ipv6(&self) -> bool {
        self.iter().any(|range| !is_ipv4(&range))
    }
}

pub fn is_ipv4(range: &IpNet) -> bool {
    range.addr().is_ipv4()
}

impl std::fmt::Display for Ranges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.texts().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let check = |text: &str, why: &str| {
            let error = Ranges::parse("x", text).unwrap_err().to_string();
            assert!(error.contains("--x") && error.contains(why), "{text}: {error}");
        };
        for bad in ["10.96.0.0", "10.96.0.0/33", "x/8", "", "10.96.0.0/16,", "fd00::/129"] {
            check(bad, "is no range of addresses");
        }
        check("10.96.0.1/16", "the range's first address is 10.96.0.0");
        check("10.96.0.0/16,10.97.0.0/16", "two ranges of one family");
        check("10.96.0.0/16,fd00::/64,fd01::/64", "more than two");
        let both = Ranges::parse("x", "10.96.0.0/16, fd00::/112").unwrap();
        assert_eq!(both.to_string(), "10.96.0.0/16,fd00::/112");
        assert_eq!(both.nth(10).iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.96.0.10", "fd00::a"]);
        assert!(both.contains(&"fd00::ffff".parse().unwrap()) && !both.contains(&"10.97.0.1".parse().unwrap()));
        let one = Ranges::parse("x", "fd00::/64").unwrap();
        assert!(both.overlaps(&one) && one.has_ipv6() && !one.is_like(&both));
    }
}

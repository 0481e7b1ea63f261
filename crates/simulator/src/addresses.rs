//! Addresses of simulated pods: from their node's range, or from a spare range when it has none.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use ferry_semantics::cidr;

#[derive(Default)]
struct Pool {
    next: u32,
    taken: HashSet<Ipv4Addr>,
}

pub(crate) struct Addresses {
    spare: Ipv4Addr,
    /// By range; the spare range is under the empty string.
    pools: HashMap<String, Pool>,
    /// By the pod's uid: its range and its address.
    given: HashMap<String, (String, Ipv4Addr)>,
}

impl Addresses {
    pub(crate) fn new(spare: Ipv4Addr) -> Self {
        Self { spare, pools: HashMap::new(), given: HashMap::new() }
    }

    /// The address of the pod: the one it has, or a free one. None when the range is used up.
    pub(crate) fn of(&mut self, uid: &str, range: Option<&str>) -> Option<Ipv4Addr> {
        if let Some((_, address)) = self.given.get(uid) {
            return Some(*address);
        }
        let (name, base, size) = self.range(range);
        let pool = self.pools.entry(name.clone()).or_default();
        // The first address is the gateway's, the last the broadcast address.
        let usable = size.saturating_sub(2).max(1);
        let free = (0..usable)
            .map(|step| Ipv4Addr::from(base.wrapping_add(1 + (pool.next + step) % usable)))
            .find(|address| !pool.taken.contains(address))?;
        pool.next = u32::from(free).wrapping_sub(base) % usable;
        pool.taken.insert(free);
        self.given.insert(uid.to_owned(), (name, free));
        Some(free)
    }

    /// A pod has this address already, from an earlier run.
    pub(crate) fn occupy(&mut self, uid: &str, range: Option<&str>, address: Ipv4Addr) {
        if self.given.contains_key(uid) {
            return;
        }
        let (name, ..) = self.range(range);
        self.pools.entry(name.clone()).or_default().taken.insert(address);
        self.given.insert(uid.to_owned(), (name, address));
    }

    pub(crate) fn release(&mut self, uid: &str) {
        if let Some((range, address)) = self.given.remove(uid)
            && let Some(pool) = self.pools.get_mut(&range)
        {
            pool.taken.remove(&address);
        }
    }

    fn range(&self, range: Option<&str>) -> (String, u32, u32) {
        match range.and_then(|text| Some((text, parse(text)?))) {
            Some((text, (base, size))) => (text.to_owned(), base, size),
            None => (String::new(), u32::from(self.spare), 1 << 20),
        }
    }
}

/// The first address as a number, and how many there are. Of IPv4 alone.
fn parse(range: &str) -> Option<(u32, u32)> {
    let range = cidr::parse(range).filter(|range| range.addr().is_ipv4())?;
    let base = u32::try_from(cidr::number(range.network())).ok()?;
    Some((base, u32::try_from(cidr::size(&range)).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_once_and_rest_before_they_are_given_again() {
        let mut addresses = Addresses::new(Ipv4Addr::new(100, 64, 0, 0));
        let mut of = |uid: &str, range| addresses.of(uid, range).map(|a| a.to_string());
        let range = Some("10.1.2.0/29");
        assert_eq!(of("a", range).as_deref(), Some("10.1.2.1"));
        assert_eq!(of("a", range).as_deref(), Some("10.1.2.1"));
        assert_eq!(of("b", range).as_deref(), Some("10.1.2.2"));
        assert_eq!(of("c", None).as_deref(), Some("100.64.0.1"));
        assert_eq!(of("d", Some("nonsense")).as_deref(), Some("100.64.0.2"));
        addresses.release("a");
        addresses.occupy("x", range, Ipv4Addr::new(10, 1, 2, 4));
        let given: Vec<_> = (0..5).map(|n| addresses.of(&format!("n{n}"), range).map(|a| a.octets()[3])).collect();
        assert_eq!(given, [Some(3), Some(5), Some(6), Some(1), None]);
    }
}

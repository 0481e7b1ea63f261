//! Who holds an address or a port that several Services claim. What the cluster gave beats what a Service says of itself, the
//! older Service beats the younger one, and an address that is a Service's ClusterIP is nobody else's at any port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferry_nft::Protocol;

use crate::fragment::Front;
use crate::service_address::ServiceAddress;
use crate::table::Owner;

/// How an address came to a Service; the first is the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The API server allocated it: a ClusterIP or a node port.
    Allocated,
    /// A controller wrote it into the status.
    LoadBalancer,
    /// The Service names it itself (`externalIPs`).
    Named,
}

/// What decides between claims, the lowest first: rank, then since when the Service exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    pub(crate) rank: Rank,
    pub(crate) since: i64,
    /// Whether the address is one of the node's own, at which node ports are reached too.
    pub(crate) at_node: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The strongest first. Mostly there is one.
    places: BTreeMap<ServiceAddress, Vec<(Standing, Owner)>>,
    /// ClusterIPs, and whose they are, in order.
    cluster_addresses: BTreeMap<IpAddr, Vec<Owner>>,
    /// By the port of the node, who claims it at one of the node's addresses.
    at_node: BTreeMap<ServiceAddress, BTreeSet<(ServiceAddress, Owner)>>,
}

/// The same port as one of the node.
fn of_node(place: &ServiceAddress) -> ServiceAddress {
    ServiceAddress { address: None, ..*place }
}

fn insert<T: Ord>(list: &mut Vec<T>, one: T) {
    if let Err(index) = list.binary_search(&one) {
        list.reserve_exact(1);
        list.insert(index, one);
    }
}

fn take_out<T: Ord>(list: &mut Vec<T>, one: &T) {
    if let Ok(index) = list.binary_search(one) {
        list.remove(index);
    }
}

impl Claims {
    pub(crate) fn add(&mut self, owner: &Owner, fronts: &[(ServiceAddress, Front)], addresses: &[IpAddr]) {
        for (place, Front { standing, .. }) in fronts {
            insert(self.places.entry(*place).or_default(), (*standing, owner.clone()));
            if standing.at_node {
                self.at_node.entry(of_node(place)).or_default().insert((*place, owner.clone()));
            }
        }
        for address in addresses {
            insert(self.cluster_addresses.entry(*address).or_default(), owner.clone());
        }
    }

    pub(crate) fn remove(&mut self, owner: &Owner, fronts: &[(ServiceAddress, Front)], addresses: &[IpAddr]) {
        for (place, Front { standing, .. }) in fronts {
            if let Some(claims) = self.places.get_mut(place) {
                take_out(claims, &(*standing, owner.clone()));
                if claims.is_empty() {
                    self.places.remove(place);
                }
            }
            let port = of_node(place);
            if let Some(claims) = self.at_node.get_mut(&port).filter(|_| standing.at_node) {
                claims.remove(&(*place, owner.clone()));
                if claims.is_empty() {
                    self.at_node.remove(&port);
                }
            }
        }
        for address in addresses {
            if let Some(owners) = self.cluster_addresses.get_mut(address) {
                take_out(owners, owner);
                if owners.is_empty() {
                    self.cluster_addresses.remove(address);
                }
            }
        }
    }

    pub(crate) fn is_cluster_address(&self, address: &IpAddr) -> bool {
        self.cluster_addresses.contains_key(address)
    }

    pub(crate) fn cluster_addresses(&self) -> impl Iterator<Item = &IpAddr> {
        self.cluster_addresses.keys()
    }

    /// Whose ClusterIP an address is, other than this one's.
    fn cluster_owner(&self, address: &IpAddr, other_than: &Owner) -> Option<&Owner> {
        self.cluster_addresses.get(address)?.iter().find(|owner| *owner != other_than)
    }

    /// Why this claim counts for nothing, whoever else there is.
    fn obstacle(&self, place: &ServiceAddress, standing: &Standing, owner: &Owner) -> Option<String> {
        if standing.rank == Rank::Allocated {
            return None;
        }
        let address = place.address?;
        if let Some(other) = self.cluster_owner(&address, owner) {
            return Some(format!("{address} is the ClusterIP of Service {other}"));
        }
        let node_port = self.places.get(&of_node(place)).filter(|_| standing.at_node)?;
        let (_, other) = node_port.first().filter(|(_, other)| other != owner)?;
        Some(format!("it is the node port of Service {other}"))
    }

    /// Who has the place.
    pub(crate) fn holder(&self, place: &ServiceAddress) -> Option<&Owner> {
        let mut claims = self.places.get(place)?.iter();
        let (_, owner) = claims.find(|(standing, owner)| self.obstacle(place, standing, owner).is_none())?;
        Some(owner)
    }

    /// The places at an address.
    pub(crate) fn at(&self, address: IpAddr) -> impl Iterator<Item = &ServiceAddress> {
        let all = self.places.range(ServiceAddress::at(address, Protocol::Tcp, 0)..);
        all.map(|(place, _)| place).take_while(move |place| place.address == Some(address))
    }

    /// The places at addresses of the node that have this port of the node.
    pub(crate) fn beside(&self, port: &ServiceAddress) -> impl Iterator<Item = &ServiceAddress> {
        self.at_node.get(port).into_iter().flatten().map(|(place, _)| place)
    }

    /// Who claims the place in vain, and why.
    pub(crate) fn refused(&self, place: &ServiceAddress) -> Vec<(Owner, String)> {
        let claims = self.places.get(place).map(Vec::as_slice).unwrap_or_default();
        if let [(standing, owner)] = claims
            && self.obstacle(place, standing, owner).is_none()
        {
            return Vec::new();
        }
        let holder = self.holder(place);
        let mut refused = Vec::new();
        for (standing, owner) in claims.iter().filter(|(_, owner)| Some(owner) != holder) {
            let why = self.obstacle(place, standing, owner);
            let why = why.unwrap_or_else(|| format!("Service {} has it", holder.map_or("", |owner| &**owner)));
            refused.push((owner.clone(), format!("{place} is not served for this Service: {why}")));
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::Fragment;

    fn place(address: &str, port: u16) -> ServiceAddress {
        ServiceAddress::at(ip(address), Protocol::Tcp, port)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn standing(rank: Rank, since: i64, at_node: bool) -> Standing {
        Standing { rank, since, at_node }
    }

    fn of(claims: &[(ServiceAddress, Standing)], addresses: &[&str]) -> Fragment {
        let mut fragment = Fragment::default();
        fragment.claim(claims.iter().copied());
        fragment.cluster_addresses = addresses.iter().map(|text| ip(text)).collect();
        fragment
    }

    fn add(claims: &mut Claims, owner: &str, fragment: &Fragment) {
        claims.add(&owner.into(), &fragment.fronts, &fragment.cluster_addresses);
    }

    fn holder<'a>(claims: &'a Claims, place: &ServiceAddress) -> Option<&'a str> {
        claims.holder(place).map(|owner| &**owner)
    }

    #[test]
    fn what_was_given_beats_what_is_said_and_the_older_beats_the_younger() {
        let mut claims = Claims::default();
        let place = place("10.0.0.1", 80);
        for (owner, rank, since, want) in [
            ("a/young", Rank::Named, 9, "a/young"),
            ("z/old", Rank::Named, 1, "z/old"),
            ("z/balanced", Rank::LoadBalancer, 20, "z/balanced"),
            ("a/same", Rank::LoadBalancer, 20, "a/same"),
            ("z/cluster", Rank::Allocated, 99, "z/cluster"),
        ] {
            add(&mut claims, owner, &of(&[(place, standing(rank, since, false))], &[]));
            assert_eq!(holder(&claims, &place), Some(want));
        }
        let refused: Vec<Owner> = claims.refused(&place).into_iter().map(|(owner, _)| owner).collect();
        assert_eq!(refused, ["a/same", "z/balanced", "z/old", "a/young"].map(Owner::from));
        let (_, why) = &claims.refused(&place)[0];
        assert_eq!(why, "TCP port 80 of 10.0.0.1 is not served for this Service: Service z/cluster has it");
    }

    #[test]
    fn a_cluster_address_is_its_owners_at_every_port() {
        let mut claims = Claims::default();
        let [dns, web] = [53, 80].map(|port| place("10.96.0.10", port));
        let own = of(&[(dns, standing(Rank::Allocated, 0, false))], &["10.96.0.10"]);
        add(&mut claims, "kube-system/kube-dns", &own);
        let taken = [dns, web].map(|place| (place, standing(Rank::Named, 0, false)));
        add(&mut claims, "a/thief", &of(&taken, &["10.96.0.99"]));
        assert_eq!(holder(&claims, &dns), Some("kube-system/kube-dns"));
        assert_eq!(holder(&claims, &web), None);
        assert_eq!(claims.at(ip("10.96.0.10")).count(), 2);
        assert_eq!(claims.at(ip("10.96.0.1")).count(), 0);
        let (owner, why) = &claims.refused(&web)[0];
        assert!(**owner == *"a/thief" && why.ends_with("10.96.0.10 is the ClusterIP of Service kube-system/kube-dns"));
        claims.remove(&"kube-system/kube-dns".into(), &own.fronts, &own.cluster_addresses);
        assert_eq!(holder(&claims, &dns), Some("a/thief"));
        assert!(claims.refused(&web).is_empty());
        // One's own address may be named too.
        let named = place("10.96.0.99", 80);
        add(&mut claims, "a/thief", &of(&[(named, standing(Rank::Named, 0, false))], &[]));
        assert_eq!(holder(&claims, &named), Some("a/thief"));
    }

    #[test]
    fn a_node_port_is_its_owners_at_every_address_of_the_node() {
        let mut claims = Claims::default();
        let (here, elsewhere) = (place("192.0.2.5", 30080), place("203.0.113.7", 30080));
        let taken = of(&[(here, standing(Rank::LoadBalancer, 0, true))], &[]);
        add(&mut claims, "a/thief", &taken);
        add(&mut claims, "a/thief", &of(&[(elsewhere, standing(Rank::Named, 0, false))], &[]));
        assert_eq!(holder(&claims, &here), Some("a/thief"));
        let node_port = ServiceAddress::of_node(Protocol::Tcp, 30080);
        let own = of(&[(node_port, standing(Rank::Allocated, 0, false))], &[]);
        add(&mut claims, "z/web", &own);
        assert_eq!(holder(&claims, &here), None);
        assert_eq!(holder(&claims, &elsewhere), Some("a/thief"));
        assert_eq!(claims.beside(&node_port).collect::<Vec<_>>(), [&here]);
        let why = "TCP port 30080 of 192.0.2.5 is not served for this Service: it is the node port of Service z/web";
        assert_eq!(claims.refused(&here), [(Owner::from("a/thief"), why.to_owned())]);
        claims.remove(&"z/web".into(), &own.fronts, &[]);
        assert_eq!(holder(&claims, &here), Some("a/thief"));
        claims.remove(&"a/thief".into(), &taken.fronts, &[]);
        assert_eq!(claims.beside(&node_port).count(), 0);
    }
}

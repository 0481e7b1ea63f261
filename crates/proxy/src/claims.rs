//! Who holds an address or a port that several Services claim. What the cluster gave beats what a Service says of itself, the
//! older Service beats the younger one, and an address that is a Service's ClusterIP is nobody else's at any port.

use std::collections::{BTreeMap, BTreeSet};

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

/// `10.0.0.1 . tcp . 80`, or `tcp . 30080` for a port of the node.
pub(crate) type Place = String;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    places: BTreeMap<Place, BTreeSet<(Standing, Owner)>>,
    /// ClusterIPs, and whose they are.
    cluster_addresses: BTreeMap<String, BTreeSet<Owner>>,
    /// By the port of the node, who claims it at one of the node's addresses.
    at_node: BTreeMap<Place, BTreeSet<(Place, Owner)>>,
}

/// The address of a place, and the same port as one of the node. A port of the node has no address.
fn parts(place: &str) -> (&str, &str) {
    match place.split_once(" . ") {
        Some((address, port)) if port.contains(" . ") => (address, port),
        _ => ("", place),
    }
}

impl Claims {
    pub(crate) fn add(&mut self, owner: &Owner, places: &BTreeMap<Place, Standing>, addresses: &BTreeSet<String>) {
        for (place, standing) in places {
            self.places.entry(place.clone()).or_default().insert((*standing, owner.clone()));
            if standing.at_node {
                let port = parts(place).1.to_owned();
                self.at_node.entry(port).or_default().insert((place.clone(), owner.clone()));
            }
        }
        for address in addresses {
            self.cluster_addresses.entry(address.clone()).or_default().insert(owner.clone());
        }
    }

    pub(crate) fn remove(&mut self, owner: &Owner, places: &BTreeMap<Place, Standing>, addresses: &BTreeSet<String>) {
        for (place, standing) in places {
            if let Some(claims) = self.places.get_mut(place) {
                claims.remove(&(*standing, owner.clone()));
                if claims.is_empty() {
                    self.places.remove(place);
                }
            }
            let port = parts(place).1;
            if let Some(claims) = self.at_node.get_mut(port).filter(|_| standing.at_node) {
                claims.remove(&(place.clone(), owner.clone()));
                if claims.is_empty() {
                    self.at_node.remove(port);
                }
            }
        }
        for address in addresses {
            if let Some(owners) = self.cluster_addresses.get_mut(address) {
                owners.remove(owner);
                if owners.is_empty() {
                    self.cluster_addresses.remove(address);
                }
            }
        }
    }

    /// Whose ClusterIP an address is, other than this one's.
    fn cluster_owner(&self, address: &str, other_than: &Owner) -> Option<&Owner> {
        self.cluster_addresses.get(address)?.iter().find(|owner| *owner != other_than)
    }

    /// Why this claim counts for nothing, whoever else there is.
    fn obstacle(&self, place: &str, standing: &Standing, owner: &Owner) -> Option<String> {
        if standing.rank == Rank::Allocated {
            return None;
        }
        let (address, port) = parts(place);
        if let Some(other) = self.cluster_owner(address, owner) {
            return Some(format!("{address} is the ClusterIP of Service {other}"));
        }
        let node_port = self.places.get(port).filter(|_| standing.at_node)?;
        let (_, other) = node_port.first().filter(|(_, other)| other != owner)?;
        Some(format!("it is the node port of Service {other}"))
    }

    /// Who has the place.
    pub(crate) fn holder(&self, place: &str) -> Option<&Owner> {
        let mut claims = self.places.get(place)?.iter();
        let (_, owner) = claims.find(|(standing, owner)| self.obstacle(place, standing, owner).is_none())?;
        Some(owner)
    }

    /// The places at an address.
    pub(crate) fn at(&self, address: &str) -> impl Iterator<Item = &Place> {
        let begin = format!("{address} . ");
        self.places.range(begin.clone()..).map(|(place, _)| place).take_while(move |place| place.starts_with(&begin))
    }

    /// The places at addresses of the node that have this port of the node.
    pub(crate) fn beside(&self, port: &str) -> impl Iterator<Item = &Place> {
        self.at_node.get(port).into_iter().flatten().map(|(place, _)| place)
    }

    /// Who claims the place in vain, and why.
    pub(crate) fn refused(&self, place: &str) -> Vec<(Owner, String)> {
        let holder = self.holder(place);
        let claims = self.places.get(place).into_iter().flatten();
        let mut refused = Vec::new();
        for (standing, owner) in claims.filter(|(_, owner)| Some(owner) != holder) {
            let why = self.obstacle(place, standing, owner);
            let why = why.unwrap_or_else(|| format!("Service {} has it", holder.map_or("", String::as_str)));
            refused.push((owner.clone(), format!("{} is not served for this Service: {why}", readable(place))));
        }
        refused
    }
}

/// As a person writes it.
pub(crate) fn readable(place: &str) -> String {
    match place.split(" . ").collect::<Vec<_>>().as_slice() {
        [address, protocol, port] => format!("{} port {port} of {address}", protocol.to_uppercase()),
        [protocol, port] => format!("{} port {port} of the node", protocol.to_uppercase()),
        _ => place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_beats_what_is_said_and_the_older_beats_the_younger() {
        let mut claims = Claims::default();
        let place = "10.0.0.1 . tcp . 80".to_owned();
        let mut add = |owner: &str, rank, since| {
            let places = [(place.clone(), Standing { rank, since, at_node: false })].into();
            claims.add(&owner.to_owned(), &places, &BTreeSet::new());
            claims.holder(&place).cloned()
        };
        assert_eq!(add("a/young", Rank::Named, 9).as_deref(), Some("a/young"));
        assert_eq!(add("z/old", Rank::Named, 1).as_deref(), Some("z/old"));
        assert_eq!(add("z/balanced", Rank::LoadBalancer, 20).as_deref(), Some("z/balanced"));
        assert_eq!(add("a/same", Rank::LoadBalancer, 20).as_deref(), Some("a/same"));
        assert_eq!(add("z/cluster", Rank::Allocated, 99).as_deref(), Some("z/cluster"));
        let refused: Vec<String> = claims.refused(&place).into_iter().map(|(owner, _)| owner).collect();
        assert_eq!(refused, ["a/same", "z/balanced", "z/old", "a/young"]);
        let (_, why) = &claims.refused(&place)[0];
        assert_eq!(why, "TCP port 80 of 10.0.0.1 is not served for this Service: Service z/cluster has it");
    }

    #[test]
    fn a_cluster_address_is_its_owners_at_every_port() {
        let mut claims = Claims::default();
        let dns: BTreeSet<String> = ["10.96.0.10".to_owned()].into();
        let standing = |rank| Standing { rank, since: 0, at_node: false };
        let places = [("10.96.0.10 . udp . 53".to_owned(), standing(Rank::Allocated))].into();
        claims.add(&"kube-system/kube-dns".to_owned(), &places, &dns);
        let taken: BTreeMap<_, _> =
            [53, 80].map(|port| (format!("10.96.0.10 . udp . {port}"), standing(Rank::Named))).into();
        claims.add(&"a/thief".to_owned(), &taken, &["10.96.0.99".to_owned()].into());
        assert_eq!(claims.holder("10.96.0.10 . udp . 53").map(String::as_str), Some("kube-system/kube-dns"));
        assert_eq!(claims.holder("10.96.0.10 . udp . 80"), None);
        assert_eq!(claims.at("10.96.0.10").count(), 2);
        assert_eq!(claims.at("10.96.0.1").count(), 0);
        let (owner, why) = &claims.refused("10.96.0.10 . udp . 80")[0];
        assert!(owner == "a/thief" && why.ends_with("10.96.0.10 is the ClusterIP of Service kube-system/kube-dns"));
        claims.remove(&"kube-system/kube-dns".to_owned(), &places, &dns);
        assert_eq!(claims.holder("10.96.0.10 . udp . 53").map(String::as_str), Some("a/thief"));
        // One's own address may be named too.
        let own = [("10.96.0.99 . tcp . 80".to_owned(), standing(Rank::Named))].into();
        claims.add(&"a/thief".to_owned(), &own, &BTreeSet::new());
        assert_eq!(claims.holder("10.96.0.99 . tcp . 80").map(String::as_str), Some("a/thief"));
    }
    #[test]
    fn a_node_port_is_its_owners_at_every_address_of_the_node() {
        let mut claims = Claims::default();
        let standing = |rank, at_node| Standing { rank, since: 0, at_node };
        let place = "192.0.2.5 . tcp . 30080".to_owned();
        let taken = [(place.clone(), standing(Rank::LoadBalancer, true))].into();
        claims.add(&"a/thief".to_owned(), &taken, &BTreeSet::new());
        let elsewhere = [("203.0.113.7 . tcp . 30080".to_owned(), standing(Rank::Named, false))].into();
        claims.add(&"a/thief".to_owned(), &elsewhere, &BTreeSet::new());
        assert_eq!(claims.holder(&place).map(String::as_str), Some("a/thief"));
        let node_port = [("tcp . 30080".to_owned(), standing(Rank::Allocated, false))].into();
        claims.add(&"z/web".to_owned(), &node_port, &BTreeSet::new());
        assert_eq!(claims.holder(&place), None);
        assert_eq!(claims.holder("203.0.113.7 . tcp . 30080").map(String::as_str), Some("a/thief"));
        assert_eq!(claims.beside("tcp . 30080").collect::<Vec<_>>(), [&place]);
        let why = "TCP port 30080 of 192.0.2.5 is not served for this Service: it is the node port of Service z/web";
        assert_eq!(claims.refused(&place), [("a/thief".to_owned(), why.to_owned())]);
        claims.remove(&"z/web".to_owned(), &node_port, &BTreeSet::new());
        assert_eq!(claims.holder(&place).map(String::as_str), Some("a/thief"));
        claims.remove(&"a/thief".to_owned(), &taken, &BTreeSet::new());
        assert_eq!(claims.beside("tcp . 30080").count(), 0);
    }
}

//! What one Service contributes to the table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferry_nft::{Element, Part, Protocol, Value, Verdict};

use crate::claims::Standing;
use crate::conntrack::Changes;
use crate::endpoints::Endpoint;
use crate::frame::REJECT_CHAIN;
use crate::health::Check;
use crate::service_address::ServiceAddress;
use crate::shape::{LOCAL, Shape};

/// The maps and sets of the frame whose elements come from Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Collection {
    Services,
    NodePorts,
    NoEndpoints,
    NoEndpointNodePorts,
    Firewall,
    ClusterAddresses,
    Hairpin,
    Endpoints(Protocol),
    NodeEndpoints(Protocol),
}

impl Collection {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::NoEndpoints => "no-endpoints",
            Self::NoEndpointNodePorts => "no-endpoint-node-ports",
            Self::Firewall => "firewall",
            Self::ClusterAddresses => "cluster-addresses",
            Self::Hairpin => "hairpin",
            Self::Endpoints(Protocol::Tcp) => "endpoints-tcp",
            Self::Endpoints(Protocol::Udp) => "endpoints-udp",
            Self::Endpoints(Protocol::Sctp) => "endpoints-sctp",
            Self::NodeEndpoints(Protocol::Tcp) => "node-endpoints-tcp",
            Self::NodeEndpoints(Protocol::Udp) => "node-endpoints-udp",
            Self::NodeEndpoints(Protocol::Sctp) => "node-endpoints-sctp",
        }
    }
}

/// Endpoints in order.
pub(crate) type List = Arc<[Endpoint]>;

/// The chain that packets for a place take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Shared(Shape),
    /// One of the Service's own, by its name.
    Own(Box<str>),
}

/// What becomes of packets that no endpoint may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Elsewhere there are some: nothing is answered, so that a load balancer tries another node.
    Drop,
    Reject,
}

/// A place, as one Service wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) standing: Standing,
    pub(crate) serves: Option<Target>,
    pub(crate) refuses: Option<Refusal>,
    /// A chain of the Service's own.
    pub(crate) firewall: Option<Box<str>>,
    /// What a shared chain chooses from.
    pub(crate) any: List,
    pub(crate) local: List,
}

/// Chains and sets are the Service's own; places may be claimed by others too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) chains: BTreeMap<String, Vec<String>>,
    /// Sets of client addresses, by name, with the seconds an entry lives.
    pub(crate) affinities: BTreeMap<String, u32>,
    /// In the order of their places.
    pub(crate) fronts: Vec<(ServiceAddress, Front)>,
    /// Endpoints that may be sent to themselves, in order.
    pub(crate) hairpin: Vec<IpAddr>,
    /// Where datagrams for it arrive, and who may answer them.
    pub(crate) datagrams: Changes,
    pub(crate) cluster_addresses: Vec<IpAddr>,
    /// What it asked for and does not get on this node, for its owner to read.
    pub(crate) refused: BTreeSet<String>,
    /// Where load balancers ask for its endpoints on this node.
    pub(crate) health: Option<Check>,
}

impl Fragment {
    fn find(&self, place: &ServiceAddress) -> Result<usize, usize> {
        self.fronts.binary_search_by(|(known, _)| known.cmp(place))
    }

    /// Everything that it claims, at once: places one by one, each in front of all others, would be moved again and again. The
    /// strongest of several claims on one place counts.
    pub(crate) fn claim(&mut self, places: impl IntoIterator<Item = (ServiceAddress, Standing)>) {
        let mut claimed: Vec<_> = places.into_iter().collect();
        claimed.sort_unstable();
        claimed.dedup_by(|(later, _), (first, _)| later == first);
        let none = || Arc::from([]);
        let front =
            |standing| Front { standing, serves: None, refuses: None, firewall: None, any: none(), local: none() };
        self.fronts = claimed.into_iter().map(|(place, standing)| (place, front(standing))).collect();
    }

    pub(crate) fn front(&self, place: &ServiceAddress) -> Option<&Front> {
        self.find(place).ok().map(|index| &self.fronts[index].1)
    }

    /// The front at a place that is claimed.
    pub(crate) fn front_mut(&mut self, place: &ServiceAddress) -> Option<&mut Front> {
        self.find(place).ok().map(|index| &mut self.fronts[index].1)
    }

    /// In order, and without room for more.
    pub(crate) fn settled(mut self) -> Self {
        self.hairpin.sort_unstable();
        self.hairpin.dedup();
        self.hairpin.shrink_to_fit();
        self.fronts.shrink_to_fit();
        self
    }

    /// The shared chains that it needs.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = Shape> + '_ {
        let own = self.fronts.iter().filter_map(|(_, front)| match front.serves {
            Some(Target::Shared(shape)) => Some(shape),
            _ => None,
        });
        own.flat_map(|shape| shape.parts().into_iter().chain([shape]))
    }
}

impl Front {
    /// What stands in maps for it.
    pub(crate) fn elements(&self, place: &ServiceAddress, mut each: impl FnMut(Collection, Element)) {
        let (serving, refusing, endpoints) = match place.address {
            Some(_) => (Collection::Services, Collection::NoEndpoints, Collection::Endpoints(place.protocol)),
            None => (Collection::NodePorts, Collection::NoEndpointNodePorts, Collection::NodeEndpoints(place.protocol)),
        };
        let goes = |verdict| Element { key: place.key(), value: Some(Value::Verdict(verdict)) };
        let to = |chain: String| Verdict::Goto(chain.into());
        match &self.serves {
            Some(Target::Shared(shape)) => each(serving, goes(to(shape.name()))),
            Some(Target::Own(chain)) => each(serving, goes(to(chain.to_string()))),
            None => {}
        }
        match self.refuses {
            Some(Refusal::Drop) => each(refusing, goes(Verdict::Drop)),
            Some(Refusal::Reject) => each(refusing, goes(Verdict::Goto(REJECT_CHAIN.into()))),
            None => {}
        }
        if let Some(chain) = &self.firewall {
            each(Collection::Firewall, goes(to(chain.to_string())));
        }
        for (first, list) in [(0, &self.any), (LOCAL, &self.local)] {
            for (number, endpoint) in (first..).zip(list.iter()) {
                let address = place.address.map(Part::Address);
                let key = address.into_iter().chain([Part::Port(place.port), Part::Number(number)]).collect();
                let data = vec![Part::Address(endpoint.address), Part::Port(endpoint.port)];
                each(endpoints, Element { key, value: Some(Value::Data(data)) });
            }
        }
    }
}

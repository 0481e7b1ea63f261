//! What the kernel has, and the changes that make it what was planned.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::link::{InfoData, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::{AddressFamily, address::AddressAttribute};
use rtnetlink::{Handle, LinkUnspec, LinkVxlan, RouteMessageBuilder};

use crate::NetworkError;
use crate::plan::{Forwarding, Mac, Neighbour, Plan, Route, Tunnel, Underlay, Way};

/// `ROUTE_PROTOCOL` as the kernel has it.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(213);
/// The main table: what every other route is in, too.
const TABLE: u8 = 254;
/// The port and network identifier that flannel uses by default would meet a flannel beside it.
const VXLAN_PORT: u16 = 8477;
const VXLAN_ID: u32 = 4242;

/// A way to the kernel of the network namespace that it was opened in.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) handle: Handle,
    /// The name of the tunnel's device.
    device: String,
}

/// The devices that routes of a plan lead to, beside the underlay.
#[derive(Clone, Copy)]
struct Devices {
    tunnel: Option<u32>,
    wireguard: Option<u32>,
}

pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let what = what.into();
    move |source| NetworkError::Kernel { what, source }
}

impl Kernel {
    pub fn new(handle: Handle, device: &str) -> Self {
        Self { handle, device: device.to_owned() }
    }

    /// The device that has this address.
    pub async fn underlay(&self, address: IpAddr) -> Result<Underlay, NetworkError> {
        let addresses: Vec<_> =
            self.handle.address().get().execute().try_collect().await.map_err(refused("list addresses"))?;
        let of = |message: &rtnetlink::packet_route::address::AddressMessage| {
            message
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    // On a point-to-point link the address is the other end's.
                    AddressAttribute::Local(address) => Some(*address),
                    _ => None,
                })
                .or_else(|| {
                    message.attributes.iter().find_map(|attribute| match attribute {
                        AddressAttribute::Address(address) => Some(*address),
                        _ => None,
                    })
                })
        };
        let index = addresses.iter().find(|message| of(message) == Some(address)).map(|message| message.header.index);
        let index = index.ok_or(NetworkError::NoDevice(address))?;
        let networks = addresses
            .iter()
            .filter(|message| message.header.index == index)
            .filter_map(|message| IpNet::new(of(message)?, message.header.prefix_len).ok())
            .collect();
        let links: Vec<LinkMessage> = self
            .handle
            .link()
            .get()
            .match_index(index)
            .execute()
            .try_collect()
            .await
            .map_err(refused("show the node's device"))?;
        let mtu = links.iter().flat_map(|link| &link.attributes).find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        Ok(Underlay { index, mtu: mtu.unwrap_or(1500), networks })
    }

    /// Makes the kernel what was planned, and returns how many things that changed. The WireGuard device of the plan, if it
    /// has one, is there by now and has this index.
    pub async fn apply(&self, plan: &Plan, wireguard: Option<u32>) -> Result<usize, NetworkError> {
        let mut changes = 0;
        let tunnel = match &plan.tunnel {
            Some(tunnel) => {
                let (index, made) = self.ensure_tunnel(tunnel).await?;
                changes += usize::from(made);
                changes += self.ensure_neighbours(index, plan).await?;
                Some(index)
            }
            None => None,
        };
        changes += self.ensure_routes(plan, Devices { tunnel, wireguard }).await?;
        if tunnel.is_none() {
            changes += self.remove_link(&self.device).await?;
        }
        Ok(changes)
    }

    /// Removes a device, if there is one; returns how many that were.
    pub(crate) async fn remove_link(&self, name: &str) -> Result<usize, NetworkError> {
        let Some(link) = self.link(name).await? else { return Ok(0) };
        let removed = self.handle.link().del(link.header.index).execute().await;
        removed.map(|()| 1).map_err(refused(format!("remove the device {name}")))
    }

    pub(crate) async fn link(&self, name: &str) -> Result<Option<LinkMessage>, NetworkError> {
        let mut links = self.handle.link().get().match_name(name.to_owned()).execute();
        match links.try_next().await {
            Ok(link) => Ok(link),
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -NO_DEVICE => Ok(None),
            Err(error) => Err(refused(format!("show the device {name}"))(error)),
        }
    }

    /// The index of the tunnel's device, and whether it had to be made.
    async fn ensure_tunnel(&self, wanted: &Tunnel) -> Result<(u32, bool), NetworkError> {
        if let Some(link) = self.link(&self.device).await? {
            if is_tunnel(&link, wanted) {
                return Ok((link.header.index, false));
            }
            // Its properties cannot be changed while it exists.
            self.handle.link().del(link.header.index).execute().await.map_err(refused("replace the tunnel"))?;
        }
        let message = LinkVxlan::new(&self.device, VXLAN_ID).port(VXLAN_PORT).learning(false).dev(wanted.underlay);
        let message = match wanted.local {
            IpAddr::V4(address) => message.local(address),
            IpAddr::V6(address) => message.local6(address),
        };
        let message = message.address(wanted.mac.0.to_vec()).mtu(wanted.mtu).up().build();
        self.handle
            .link()
            .add(message)
            .execute()
            .await
            .map_err(refused(format!("make the VXLAN device {} (is the kernel module vxlan there?)", self.device)))?;
        let link = self.link(&self.device).await?.ok_or_else(|| NetworkError::Kernel {
            what: format!("show the new device {}", self.device),
            source: rtnetlink::Error::RequestFailed,
        })?;
        // Made down by some kernels, whatever the request says.
        let up = LinkUnspec::new_with_index(link.header.index).up().build();
        self.handle.link().set(up).execute().await.map_err(refused("bring up the tunnel"))?;
        Ok((link.header.index, true))
    }

    async fn ensure_neighbours(&self, index: u32, plan: &Plan) -> Result<usize, NetworkError> {
        let mut changes = 0;
        let (have, messages) = self.neighbours(index).await?;
        for neighbour in plan.neighbours.difference(&have) {
            self.handle
                .neighbours()
                .add(index, neighbour.address)
                .link_layer_address(&neighbour.mac.0)
                .replace()
                .execute()
                .await
                .map_err(refused(format!("add the neighbour {}", neighbour.address)))?;
            changes += 1;
        }
        // An address that has another link-layer address now was replaced above; only those that are gone are removed.
        let wanted: BTreeSet<IpAddr> = plan.neighbours.iter().map(|neighbour| neighbour.address).collect();
        for (neighbour, message) in &messages {
            if !wanted.contains(&neighbour.address) {
                self.remove_neighbour(message.clone()).await?;
                changes += 1;
            }
        }
        let (have, messages) = self.forwarding(index).await?;
        for entry in plan.forwarding.difference(&have) {
            self.handle
                .neighbours()
                .add_bridge(index, &entry.mac.0)
                .destination(entry.node)
                .flags(NeighbourFlags::Own)
                .replace()
                .execute()
                .await
                .map_err(refused(format!("add the forwarding entry of {}", entry.node)))?;
            changes += 1;
        }
        let wanted: BTreeSet<Mac> = plan.forwarding.iter().map(|entry| entry.mac).collect();
        for (entry, message) in &messages {
            if !wanted.contains(&entry.mac) {
                self.remove_neighbour(message.clone()).await?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    pub(crate) async fn remove_neighbour(&self, message: NeighbourMessage) -> Result<(), NetworkError> {
        match self.handle.neighbours().del(message).execute().await {
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -NO_ENTRY => Ok(()),
            other => other.map_err(refused("remove a neighbour")),
        }
    }

    /// Permanent neighbours of the tunnel's device; what the kernel finds out by itself does not count.
    async fn neighbours(
        &self,
        index: u32,
    ) -> Result<(BTreeSet<Neighbour>, Vec<(Neighbour, NeighbourMessage)>), NetworkError> {
        let all: Vec<NeighbourMessage> =
            self.handle.neighbours().get().execute().try_collect().await.map_err(refused("list neighbours"))?;
        let found: Vec<_> = all
            .into_iter()
            .filter(|message| message.header.ifindex == index && message.header.state == NeighbourState::Permanent)
            .filter_map(|message| {
                let address = address_of_neighbour(&message)?;
                Some((Neighbour { address, mac: mac(&message)? }, message))
            })
            .collect();
        Ok((found.iter().map(|(neighbour, _)| *neighbour).collect(), found))
    }

    async fn forwarding(
        &self,
        index: u32,
    ) -> Result<(BTreeSet<Forwarding>, Vec<(Forwarding, NeighbourMessage)>), NetworkError> {
        let request = self.handle.neighbours().get().set_address_family(AddressFamily::Bridge);
        let all: Vec<NeighbourMessage> =
            request.execute().try_collect().await.map_err(refused("list forwarding entries"))?;
        let found: Vec<_> = all
            .into_iter()
            .filter(|message| message.header.ifindex == index)
            .filter_map(|message| {
                let node = match destination(&message)? {
                    NeighbourAddress::Inet(address) => IpAddr::V4(address),
                    NeighbourAddress::Inet6(address) => IpAddr::V6(address),
                    // A family that the message's own cannot tell: four bytes or sixteen.
                    NeighbourAddress::Other(bytes) => match <[u8; 4]>::try_from(bytes.as_slice()) {
                        Ok(bytes) => IpAddr::from(bytes),
                        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?),
                    },
                    _ => return None,
                };
                Some((Forwarding { mac: mac(&message)?, node }, message))
            })
            .collect();
        Ok((found.iter().map(|(entry, _)| *entry).collect(), found))
    }

    async fn ensure_routes(&self, plan: &Plan, devices: Devices) -> Result<usize, NetworkError> {
        let mut have = BTreeSet::new();
        let mut messages = Vec::new();
        for message in self.routes_of(PROTOCOL).await? {
            if let Some(route) = read(&message, devices) {
                have.insert(route);
                messages.push((Some(route), message));
            } else {
                messages.push((None, message));
            }
        }
        let mut changes = 0;
        for route in plan.routes.difference(&have) {
            self.add_route(route, devices).await?;
            changes += 1;
        }
        let wanted: BTreeSet<IpNet> = plan.routes.iter().map(|route| route.destination).collect();
        for (route, message) in messages {
            // One to the same range was replaced by the new one.
            let is_replaced = destination_of(&message).is_some_and(|destination| wanted.contains(&destination));
            if route.is_some_and(|route| plan.routes.contains(&route)) || is_replaced {
                continue;
            }
            self.remove_route(message).await?;
            changes += 1;
        }
        Ok(changes)
    }

    pub(crate) async fn remove_route(&self, message: RouteMessage) -> Result<(), NetworkError> {
        match self.handle.route().del(message).execute().await {
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -NO_PROCESS => Ok(()),
            other => other.map_err(refused("remove a route")),
        }
    }

    /// The routes of a protocol number, of both families.
    pub(crate) async fn routes_of(&self, protocol: RouteProtocol) -> Result<Vec<RouteMessage>, NetworkError> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut wanted = RouteMessage::default();
            wanted.header.address_family = family;
            let found: Vec<RouteMessage> =
                self.handle.route().get(wanted).execute().try_collect().await.map_err(refused("list routes"))?;
            routes.extend(found.into_iter().filter(|route| route.header.protocol == protocol));
        }
        Ok(routes)
    }

    async fn add_route(&self, route: &Route, devices: Devices) -> Result<(), NetworkError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| NetworkError::Kernel {
            what: format!("{what} a route to {}: {error}", route.destination),
            source: rtnetlink::Error::RequestFailed,
        };
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(route.destination.network(), route.destination.prefix_len())
            .map_err(|error| failed("describe", &error))?
            .protocol(PROTOCOL)
            .scope(RouteScope::Universe)
            .kind(RouteType::Unicast);
        let message = match route.way {
            Way::Underlay(gateway) | Way::Tunnel(gateway) => {
                message.gateway(gateway).map_err(|error| failed("describe", &error))?
            }
            Way::Wireguard => message.scope(RouteScope::Link),
        };
        let message = match (route.way, devices.tunnel, devices.wireguard) {
            (Way::Underlay(_), ..) => message,
            (Way::Tunnel(_), Some(index), _) => message.output_interface(index).onlink(),
            (Way::Wireguard, _, Some(index)) => message.output_interface(index),
            (Way::Tunnel(_) | Way::Wireguard, ..) => return Err(failed("add", &"its device is not there")),
        };
        let mut message = message.build();
        message.header.table = TABLE;
        self.handle
            .route()
            .add(message)
            .replace()
            .execute()
            .await
            .map_err(refused(format!("add a route to {} by way of {:?}", route.destination, route.way)))
    }

    /// The largest packet of pods that the way to every other node takes. None where no device has the node's address.
    pub(crate) async fn pod_mtu(&self, address: IpAddr, mode: crate::Mode) -> Option<u32> {
        let underlay = self.underlay(address).await.ok()?;
        Some(crate::plan::pod_mtu(mode, &underlay, address))
    }

    /// Takes away everything that this crate ever made.
    pub async fn clear(&self) -> Result<(), NetworkError> {
        self.apply(&Plan::default(), None).await.map(drop)
    }
}

const NO_ENTRY: i32 = 2;
const NO_PROCESS: i32 = 3;
const NO_DEVICE: i32 = 19;

fn destination(message: &NeighbourMessage) -> Option<NeighbourAddress> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(address) => Some(address.clone()),
        _ => None,
    })
}

pub(crate) fn address_of_neighbour(message: &NeighbourMessage) -> Option<IpAddr> {
    match destination(message)? {
        NeighbourAddress::Inet(address) => Some(IpAddr::V4(address)),
        NeighbourAddress::Inet6(address) => Some(IpAddr::V6(address)),
        _ => None,
    }
}

fn mac(message: &NeighbourMessage) -> Option<Mac> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
        _ => None,
    })
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

pub(crate) fn destination_of(message: &RouteMessage) -> Option<IpNet> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => address_of(address),
        _ => None,
    })?;
    IpNet::new(address, message.header.destination_prefix_length).ok()
}

/// A route as it would have been planned; none where it looks otherwise and is to be made anew.
fn read(message: &RouteMessage, devices: Devices) -> Option<Route> {
    let destination = destination_of(message)?;
    let gateway = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => address_of(address),
        _ => None,
    });
    let device = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let Some(gateway) = gateway else {
        let is_wireguard = devices.wireguard.is_some() && device == devices.wireguard;
        return is_wireguard.then_some(Route { destination, way: Way::Wireguard });
    };
    let behind = devices.tunnel.is_some() && device == devices.tunnel;
    let is_whole = !behind || message.header.flags.contains(RouteFlags::Onlink);
    is_whole.then_some(Route { destination, way: if behind { Way::Tunnel(gateway) } else { Way::Underlay(gateway) } })
}

fn is_tunnel(link: &LinkMessage, wanted: &Tunnel) -> bool {
    let mut same = (false, false, false, false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(address) => same.0 = address == &wanted.mac.0,
            LinkAttribute::Mtu(mtu) => same.1 = *mtu == wanted.mtu,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    let LinkInfo::Data(InfoData::Vxlan(data)) = info else { continue };
                    for property in data {
                        match property {
                            InfoVxlan::Local(address) => same.2 = IpAddr::V4(*address) == wanted.local,
                            InfoVxlan::Local6(address) => same.2 = IpAddr::V6(*address) == wanted.local,
                            InfoVxlan::Link(index) => same.3 = *index == wanted.underlay,
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }
    same == (true, true, true, true)
}

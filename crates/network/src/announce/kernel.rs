//! What the kernel needs to answer for an address that is not the node's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::TryStreamExt;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope, RouteType};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, RouteMessageBuilder};

use crate::kernel::{Kernel, destination_of, refused};
use crate::plan::Mac;
use crate::{NetworkError, plan::Underlay};

/// Another than that of routes between nodes, which are compared with their plan.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(214);
const MAIN_TABLE: u8 = 254;

/// An address, and the device where it is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Where {
    pub(super) address: IpAddr,
    pub(super) device: u32,
    pub(super) mac: Mac,
}

pub(super) struct Announcer {
    kernel: Kernel,
    device: String,
}

impl Announcer {
    pub(super) fn new(handle: Handle, device: &str) -> Self {
        Self { kernel: Kernel::new(handle, ""), device: device.to_owned() }
    }

    /// Makes the kernel answer for exactly these, and tells where. Those of a family that the node has no address of are left out.
    pub(super) async fn apply(
        &self,
        node_ips: &[IpAddr],
        wanted: &BTreeSet<IpAddr>,
    ) -> Result<Vec<Where>, NetworkError> {
        if wanted.is_empty() {
            self.clear().await?;
            return Ok(Vec::new());
        }
        let sink = self.ensure_sink().await?;
        let mut places = Vec::new();
        for node_ip in node_ips {
            let addresses: Vec<IpAddr> =
                wanted.iter().copied().filter(|address| address.is_ipv4() == node_ip.is_ipv4()).collect();
            if addresses.is_empty() {
                continue;
            }
            let Underlay { index: device, .. } = self.kernel.underlay(*node_ip).await?;
            let link = self.link(device).await?;
            answer_at_once(&link, node_ip.is_ipv4());
            let mac = mac(&link).ok_or(NetworkError::NoDevice(*node_ip))?;
            places.extend(addresses.into_iter().map(|address| Where { address, device, mac }));
        }
        let (routes, proxies) = (self.routes().await?, self.proxies().await?);
        let has_route = |place: &&Where| !routes.iter().any(|(address, _)| *address == place.address);
        for place in places.iter().filter(has_route) {
            self.add_route(place.address, sink).await?;
        }
        for place in &places {
            let request = self.kernel.handle.neighbours().add(place.device, place.address).flags(NeighbourFlags::Proxy);
            let added = request.replace().execute().await;
            added.map_err(refused(format!("answer for {}", place.address)))?;
        }
        let is_wanted = |address: IpAddr, device: Option<u32>| {
            places.iter().any(|place| place.address == address && device.is_none_or(|device| place.device == device))
        };
        // Only what has a route of ours was announced by us.
        for (address, message) in proxies {
            let is_ours = routes.iter().any(|(ours, _)| *ours == address);
            if is_ours && !is_wanted(address, Some(message.header.ifindex)) {
                self.remove_proxy(message).await?;
            }
        }
        for (address, message) in routes {
            if !is_wanted(address, None) {
                self.remove_route(message).await?;
            }
        }
        Ok(places)
    }

    /// Takes away everything that was ever announced.
    pub(super) async fn clear(&self) -> Result<(), NetworkError> {
        let routes = self.routes().await?;
        for (address, message) in self.proxies().await? {
            if routes.iter().any(|(ours, _)| *ours == address) {
                self.remove_proxy(message).await?;
            }
        }
        for (_, message) in routes {
            self.remove_route(message).await?;
        }
        self.kernel.remove_link(&self.device).await.map(drop)
    }

    /// The bridge without ports.
    async fn ensure_sink(&self) -> Result<u32, NetworkError> {
        if let Some(link) = self.kernel.link(&self.device).await? {
            return Ok(link.header.index);
        }
        let message = LinkBridge::new(&self.device).up().build();
        let made = self.kernel.handle.link().add(message).execute().await;
        made.map_err(refused(format!("make the bridge {}", self.device)))?;
        let link = self.kernel.link(&self.device).await?.ok_or_else(|| NetworkError::Kernel {
            what: format!("show the new bridge {}", self.device),
            source: rtnetlink::Error::RequestFailed,
        })?;
        let up = LinkUnspec::new_with_index(link.header.index).up().build();
        self.kernel.handle.link().set(up).execute().await.map_err(refused("bring up a bridge"))?;
        Ok(link.header.index)
    }

    async fn link(&self, index: u32) -> Result<LinkMessage, NetworkError> {
        let mut links = self.kernel.handle.link().get().match_index(index).execute();
        let found = links.try_next().await.map_err(refused("show the node's device"))?;
        found.ok_or(NetworkError::Kernel {
            what: "show the node's device".to_owned(),
            source: rtnetlink::Error::RequestFailed,
        })
    }

    async fn routes(&self) -> Result<Vec<(IpAddr, RouteMessage)>, NetworkError> {
        let all = self.kernel.routes_of(PROTOCOL).await?;
        let host = |message: RouteMessage| {
            let range = destination_of(&message)?;
            (range.prefix_len() == range.max_prefix_len()).then(|| (range.addr(), message))
        };
        Ok(all.into_iter().filter_map(host).collect())
    }

    async fn proxies(&self) -> Result<Vec<(IpAddr, NeighbourMessage)>, NetworkError> {
        let request = self.kernel.handle.neighbours().get().proxies();
        let all: Vec<NeighbourMessage> = request.execute().try_collect().await.map_err(refused("list neighbours"))?;
        let of = |message: NeighbourMessage| Some((crate::kernel::address_of_neighbour(&message)?, message));
        Ok(all.into_iter().filter_map(of).collect())
    }

    async fn add_route(&self, address: IpAddr, sink: u32) -> Result<(), NetworkError> {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let message = RouteMessageBuilder::<IpAddr>::new().destination_prefix(address, length);
        let message = message.map_err(|error| NetworkError::Kernel {
            what: format!("describe a route to {address}: {error}"),
            source: rtnetlink::Error::RequestFailed,
        })?;
        let message =
            message.protocol(PROTOCOL).scope(RouteScope::Link).kind(RouteType::Unicast).output_interface(sink);
        let mut message = message.build();
        message.header.table = MAIN_TABLE;
        let added = self.kernel.handle.route().add(message).replace().execute().await;
        added.map_err(refused(format!("add a route to {address}")))
    }

    async fn remove_route(&self, message: RouteMessage) -> Result<(), NetworkError> {
        self.kernel.remove_route(message).await
    }

    async fn remove_proxy(&self, message: NeighbourMessage) -> Result<(), NetworkError> {
        self.kernel.remove_neighbour(message).await
    }
}

/// Takes away what a node announced. For `ferry down`.
pub(crate) async fn clear(handle: Handle, device: &str) -> Result<(), NetworkError> {
    Announcer::new(handle, device).clear().await
}

fn mac(link: &LinkMessage) -> Option<Mac> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
        _ => None,
    })
}

/// The kernel lets others answer first, for it takes itself to be somebody's stand-in. Here there are no others.
fn answer_at_once(link: &LinkMessage, is_ipv4: bool) {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    });
    let Some(name) = name.filter(|name| !name.contains('/') && !name.starts_with('.')) else { return };
    let files = match is_ipv4 {
        true => vec![(format!("/proc/sys/net/ipv4/neigh/{name}/proxy_delay"), "0")],
        false => vec![
            (format!("/proc/sys/net/ipv6/neigh/{name}/proxy_delay"), "0"),
            (format!("/proc/sys/net/ipv6/conf/{name}/proxy_ndp"), "1"),
        ],
    };
    for (file, value) in files {
        if let Err(error) = std::fs::write(&file, value) {
            tracing::warn!("{file}: {error}; neighbours may be answered late or not at all");
        }
    }
}

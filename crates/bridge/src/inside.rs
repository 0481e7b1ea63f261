//! What is done in a pod's namespace, on a thread that enters it and ends there.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use ipnet::IpNet;
use rtnetlink::packet_route::route::{RouteProtocol, RouteScope, RouteType};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::bandwidth;
use crate::configuration::gateway;
use crate::error::BridgeError;
use crate::links::{add_address, addresses, find, hardware_address, local};
use crate::netlink::{EXISTS, is, with_kernel};

/// The first device of every namespace.
const LOOPBACK: u32 = 1;

/// Enters a network namespace on a thread of its own, and waits for the work there.
pub(crate) fn inside<T: Send>(
    namespace: &Path,
    work: impl AsyncFnOnce(Handle) -> Result<T, BridgeError> + Send,
) -> Result<T, BridgeError> {
    let wrong = |source: std::io::Error| BridgeError::Namespace { path: namespace.to_owned(), source };
    let file = File::open(namespace).map_err(wrong)?;
    let enter = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|e| wrong(e.into()))?;
        with_kernel(work)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("pod-network".into()).spawn_scoped(scope, enter);
        let thread = thread.map_err(|error| BridgeError::Thread(error.to_string()))?;
        thread.join().map_err(|_| BridgeError::Thread("it ended early".to_owned()))?
    })
}

/// Programs of a pod talk to each other over it. In the namespace that this thread is in. Blocks.
pub fn bring_up_loopback() -> Result<(), BridgeError> {
    with_kernel(async |handle| loopback(&handle).await)
}

pub(crate) async fn loopback(handle: &Handle) -> Result<(), BridgeError> {
    let up = LinkUnspec::new_with_index(LOOPBACK).up().build();
    handle.link().set(up).execute().await.map_err(BridgeError::kernel("bring up the loopback"))
}

/// What a pod gets.
pub(crate) struct Pod<'a> {
    pub(crate) interface: &'a str,
    pub(crate) addresses: &'a [(IpAddr, IpNet)],
    pub(crate) egress_rate: u64,
}

/// Addresses and routes, and then the device is up.
pub(crate) async fn configure(handle: &Handle, pod: &Pod<'_>) -> Result<(), BridgeError> {
    loopback(handle).await?;
    let interface = pod.interface;
    if pod.addresses.iter().any(|(address, _)| address.is_ipv6()) {
        // A runtime may have switched IPv6 off, and another pod may claim to be a router.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "0");
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/accept_ra"), "0");
    }
    let missing = || BridgeError::Check(format!("there is no device {interface}"));
    let index = find(handle, interface).await?.ok_or_else(missing)?.header.index;
    let mut up = LinkUnspec::new_with_index(index).up();
    if let Some((first, _)) = pod.addresses.first() {
        up = up.address(hardware_address(*first));
    }
    handle.link().set(up.build()).execute().await.map_err(BridgeError::kernel(format!("bring up {interface}")))?;
    for (address, network) in pod.addresses {
        add_address(handle, index, *address, network.prefix_len()).await?;
        default_route(handle, index, network).await?;
    }
    bandwidth::limit(handle, index, pod.egress_rate).await
}

async fn default_route(handle: &Handle, index: u32, network: &IpNet) -> Result<(), BridgeError> {
    let Some(gateway) = gateway(network) else { return Ok(()) };
    let everywhere = if gateway.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let route = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(everywhere, 0)
        .and_then(|route| route.gateway(gateway))
        .map_err(|_| BridgeError::Family(gateway))?
        .output_interface(index)
        .protocol(RouteProtocol::Boot)
        .scope(RouteScope::Universe)
        .kind(RouteType::Unicast)
        .build();
    match handle.route().add(route).execute().await {
        Err(error) if is(&error, EXISTS) => Ok(()),
        other => other.map_err(BridgeError::kernel(format!("add the way out by {gateway}"))),
    }
}

/// Whether the pod still has what it was given.
pub(crate) async fn check(handle: &Handle, interface: &str, wanted: &[IpAddr]) -> Result<(), BridgeError> {
    let missing = || BridgeError::Check(format!("there is no device {interface}"));
    let index = find(handle, interface).await?.ok_or_else(missing)?.header.index;
    let have: Vec<IpAddr> = addresses(handle, index).await?.iter().filter_map(local).collect();
    match wanted.iter().find(|address| !have.contains(address)) {
        Some(address) => Err(BridgeError::Check(format!("{interface} does not have {address}"))),
        None => Ok(()),
    }
}

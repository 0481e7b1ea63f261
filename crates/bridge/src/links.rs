//! Devices in the node's own namespace: the bridge, and this end of each pod's pair.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkUnspec, LinkVeth};
use sha2::{Digest, Sha256};

use crate::configuration::{Settings, gateway};
use crate::error::BridgeError;
use crate::netlink::{EXISTS, NO_DEVICE, is, with_kernel};

/// The node's end of a pod's pair. It follows from the pod, so that it is found again by whoever knows the pod.
pub(crate) fn link_name(container_id: &str, interface: &str) -> String {
    let digest = Sha256::digest(format!("{container_id}/{interface}").as_bytes());
    let hex: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("veth{}", &hex[..11])
}

/// A locally administered unicast address that follows from an IP address: whoever still remembers the last pod that had the
/// address reaches the next one.
pub(crate) fn hardware_address(of: IpAddr) -> Vec<u8> {
    let mut address = vec![0x0a, 0x58];
    match of {
        IpAddr::V4(of) => address.extend(of.octets()),
        IpAddr::V6(of) => address.extend(Sha256::digest(of.octets()).iter().take(4)),
    }
    address
}

pub(crate) async fn find(handle: &Handle, name: &str) -> Result<Option<LinkMessage>, BridgeError> {
    match handle.link().get().match_name(name.to_owned()).execute().try_next().await {
        Ok(link) => Ok(link),
        Err(error) if is(&error, NO_DEVICE) => Ok(None),
        Err(error) => Err(BridgeError::kernel(format!("show the device {name}"))(error)),
    }
}

pub(crate) async fn names(handle: &Handle) -> Result<BTreeSet<String>, BridgeError> {
    let links: Vec<LinkMessage> =
        handle.link().get().execute().try_collect().await.map_err(BridgeError::kernel("list devices"))?;
    let name = |attribute: LinkAttribute| if let LinkAttribute::IfName(name) = attribute { Some(name) } else { None };
    Ok(links.into_iter().flat_map(|link| link.attributes).filter_map(name).collect())
}

/// Makes a pair in one step: this end is a port of the bridge, the other is in the pod's namespace from the beginning, so that
/// both go when that namespace does.
pub(crate) async fn add_pair(
    handle: &Handle,
    settings: &Settings,
    name: &str,
    interface: &str,
    namespace: BorrowedFd<'_>,
) -> Result<(), BridgeError> {
    let bridge = find(handle, &settings.bridge).await?;
    let bridge = bridge.ok_or_else(|| BridgeError::NoBridge(settings.bridge.clone()))?.header.index;
    let mut other = LinkUnspec::new_with_name(interface).setns_by_fd(namespace.as_raw_fd());
    let mut this = LinkVeth::new(name, interface).controller(bridge).up();
    if settings.mtu > 0 {
        other = other.mtu(settings.mtu);
        this = this.mtu(settings.mtu);
    }
    let this = this.set_info_data(InfoData::Veth(InfoVeth::Peer(other.build()))).build();
    let made = handle.link().add(this).execute().await;
    made.map_err(BridgeError::kernel(format!("make the pod's devices {name} and {interface}")))?;
    // A pod that calls its own Service gets its packet back by the port that it came from.
    let port = LinkBridgePort::new(0).name(name.to_owned()).hairpin(true).build();
    let set = handle.link().set_port(port).execute().await;
    set.map_err(BridgeError::kernel(format!("let {name} send packets back")))
}

/// Removes a device; one that is not there is no error.
pub(crate) async fn delete(handle: &Handle, name: &str) -> Result<(), BridgeError> {
    let Some(link) = find(handle, name).await? else { return Ok(()) };
    match handle.link().del(link.header.index).execute().await {
        Err(error) if is(&error, NO_DEVICE) => Ok(()),
        other => other.map_err(BridgeError::kernel(format!("remove the device {name}"))),
    }
}

/// Removes a device of this machine, if it is there. Blocks.
pub fn remove_link(name: &str) -> Result<(), BridgeError> {
    with_kernel(async |handle| delete(&handle, name).await)
}

/// Makes the bridge what the settings say; may run again at any time.
pub(crate) async fn ensure_bridge(handle: &Handle, settings: &Settings, networks: &[IpNet]) -> Result<(), BridgeError> {
    let name = &settings.bridge;
    let gateways: Vec<(IpAddr, u8)> =
        networks.iter().filter_map(|network| Some((gateway(network)?, network.prefix_len()))).collect();
    if find(handle, name).await?.is_none() {
        let mut bridge = LinkBridge::new(name);
        // Else it is that of a port, and changes as pods come and go.
        if let Some((first, _)) = gateways.first() {
            bridge = bridge.address(hardware_address(*first));
        }
        match handle.link().add(bridge.build()).execute().await {
            Err(error) if is(&error, EXISTS) => {}
            other => other.map_err(BridgeError::kernel(format!("make the bridge {name}")))?,
        }
    }
    let link = find(handle, name).await?.ok_or_else(|| BridgeError::NoBridge(name.clone()))?;
    let mut up = LinkUnspec::new_with_index(link.header.index).up();
    if settings.mtu > 0 {
        up = up.mtu(settings.mtu);
    }
    handle.link().set(up.build()).execute().await.map_err(BridgeError::kernel(format!("bring up {name}")))?;
    for message in addresses(handle, link.header.index).await? {
        let kept = local(&message).is_some_and(|have| gateways.contains(&(have, message.header.prefix_len)));
        if !kept && message.header.scope == AddressScope::Universe {
            let removed = handle.address().del(message).execute().await;
            removed.map_err(BridgeError::kernel(format!("remove an old address of {name}")))?;
        }
    }
    for (address, length) in gateways {
        add_address(handle, link.header.index, address, length).await?;
    }
    Ok(())
}

pub(crate) async fn addresses(handle: &Handle, index: u32) -> Result<Vec<AddressMessage>, BridgeError> {
    let all = handle.address().get().set_link_index_filter(index).execute().try_collect().await;
    all.map_err(BridgeError::kernel("list addresses"))
}

pub(crate) fn local(message: &AddressMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) | AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })
}

/// Nobody else has the address, so that the kernel need not look for a second of it before it is used.
pub(crate) async fn add_address(handle: &Handle, index: u32, address: IpAddr, length: u8) -> Result<(), BridgeError> {
    let mut request = handle.address().add(index, address, length).replace();
    if address.is_ipv6() {
        request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    request.execute().await.map_err(BridgeError::kernel(format!("add the address {address}/{length}")))
}

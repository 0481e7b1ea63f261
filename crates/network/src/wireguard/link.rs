//! The device: made by whoever can, brought up, and given its addresses.

use std::net::IpAddr;

use ferry_tasks::Tasks;
use futures::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::{LinkUnspec, LinkWireguard};

use super::engine::Engine;
use super::netlink::InKernel;
use super::{PrivateKey, Wireguard, tun};
use crate::kernel::refused;
use crate::{Kernel, NetworkError};

/// What the kernel answers when it does not know this kind of device.
const NOT_SUPPORTED: i32 = 95;

enum Backend {
    Kernel(InKernel),
    Engine(Engine),
}

/// The WireGuard device of this node.
pub struct Device {
    name: String,
    key: PrivateKey,
    tasks: Tasks,
    backend: Option<Backend>,
}

impl Device {
    pub fn new(name: &str, key: PrivateKey, tasks: &Tasks) -> Self {
        Self { name: name.to_owned(), key, tasks: tasks.clone(), backend: None }
    }

    /// Makes the device what was planned; returns its index and how many things that changed.
    pub async fn ensure(&mut self, kernel: &Kernel, wanted: &Wireguard) -> Result<(u32, usize), NetworkError> {
        let mut changes = 0;
        let link = match (kernel.link(&self.name).await?, &self.backend) {
            (Some(link), Some(_)) => link,
            (found, _) => {
                // One that somebody removed takes what ran on it along.
                self.backend = None;
                changes += usize::from(found.is_none());
                self.backend = Some(self.open(kernel, found.as_ref()).await?);
                let link = kernel.link(&self.name).await?;
                link.ok_or_else(|| NetworkError::Wireguard(format!("the device {} is gone again", self.name)))?
            }
        };
        changes += match &mut self.backend {
            Some(Backend::Kernel(device)) => device.set_peers(&self.key, &wanted.peers).await?,
            Some(Backend::Engine(engine)) => engine.set_peers(&wanted.peers).await,
            None => 0,
        };
        changes += settle(kernel, &link, wanted).await?;
        Ok((link.header.index, changes))
    }

    async fn open(&self, kernel: &Kernel, found: Option<&LinkMessage>) -> Result<Backend, NetworkError> {
        let in_kernel = match found {
            Some(link) => is_wireguard(link),
            None => make(kernel, &self.name).await?,
        };
        if !in_kernel {
            tracing::info!("this kernel has no WireGuard: packets between nodes are encrypted by this process");
            return Engine::start(&self.name, &self.key, &self.tasks).await.map(Backend::Engine);
        }
        let (connection, handle, _) = genetlink::new_connection().map_err(NetworkError::Socket)?;
        self.tasks.spawn_until_stopped("generic netlink", connection);
        Ok(Backend::Kernel(InKernel::new(handle, &self.name)))
    }
}

/// Whether the kernel made one; it may not know how.
async fn make(kernel: &Kernel, name: &str) -> Result<bool, NetworkError> {
    match kernel.handle.link().add(LinkWireguard::new(name).build()).execute().await {
        Ok(()) => Ok(true),
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -NOT_SUPPORTED => Ok(false),
        Err(error) => Err(refused(format!("make the WireGuard device {name}"))(error)),
    }
}

fn is_wireguard(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.contains(&LinkInfo::Kind(InfoKind::Wireguard)),
        _ => false,
    })
}

/// Size of packets, addresses, and up.
async fn settle(kernel: &Kernel, link: &LinkMessage, wanted: &Wireguard) -> Result<usize, NetworkError> {
    let index = link.header.index;
    let mut changes = 0;
    let fits = link.attributes.contains(&LinkAttribute::Mtu(wanted.mtu));
    if !fits || !link.header.flags.contains(LinkFlags::Up) {
        let message = LinkUnspec::new_with_index(index).mtu(wanted.mtu).up().build();
        kernel.handle.link().set(message).execute().await.map_err(refused("bring up the WireGuard device"))?;
        changes += 1;
    }
    let request = kernel.handle.address().get().set_link_index_filter(index);
    let have: Vec<AddressMessage> = request.execute().try_collect().await.map_err(refused("list addresses"))?;
    for address in &wanted.addresses {
        if have.iter().any(|known| address_of(known) == Some(*address)) {
            continue;
        }
        let length = if address.is_ipv4() { 32 } else { 128 };
        let added = kernel.handle.address().add(index, *address, length).execute().await;
        added.map_err(refused(format!("give the WireGuard device the address {address}")))?;
        changes += 1;
    }
    for old in have {
        // Those that the kernel gave itself are of the link only.
        let Some(address) = address_of(&old).filter(|address| !is_link_local(*address)) else { continue };
        if !wanted.addresses.contains(&address) {
            kernel.handle.address().del(old).execute().await.map_err(refused("remove an address"))?;
            changes += 1;
        }
    }
    Ok(changes)
}

fn address_of(message: &AddressMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Whether there is a WireGuard here: the kernel's, which then has a device of this name, or one over TUN.
pub async fn probe(kernel: &Kernel, name: &str) -> Result<(), NetworkError> {
    if !make(kernel, name).await? {
        tun::is_there().map_err(NetworkError::Tun)?;
    }
    Ok(())
}

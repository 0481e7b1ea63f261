//! WireGuard in the kernel, told by netlink who the peers are. Only what differs is changed: a peer that is set anew
//! forgets where it was heard.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use futures::StreamExt;
use genetlink::GenetlinkHandle;
use ipnet::IpNet;
use netlink_packet_generic::GenlMessage;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr as Allowed, WireguardAttribute as Attribute,
    WireguardCmd, WireguardMessage, WireguardPeer, WireguardPeerAttribute as PeerAttribute, WireguardPeerFlags,
};
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};

use super::{KEEPALIVE, PORT, Peer, PrivateKey, PublicKey};
use crate::NetworkError;

/// A message holds at most 64 KiB, and a peer has a few ranges.
const PEERS_IN_A_MESSAGE: usize = 64;

fn failed(error: impl std::fmt::Display) -> NetworkError {
    NetworkError::Wireguard(error.to_string())
}

/// What the kernel has.
#[derive(Default)]
struct Seen {
    public: Option<PublicKey>,
    port: Option<u16>,
    peers: BTreeMap<PublicKey, BTreeSet<IpNet>>,
}

pub struct InKernel {
    handle: GenetlinkHandle,
    device: String,
    /// Where peers were told to be the last time.
    told: BTreeMap<PublicKey, SocketAddr>,
}

impl InKernel {
    pub fn new(handle: GenetlinkHandle, device: &str) -> Self {
        Self { handle, device: device.to_owned(), told: BTreeMap::new() }
    }

    /// Makes the device's key, port and peers what they should be; returns how many things that changed.
    pub async fn set_peers(
        &mut self,
        key: &PrivateKey,
        wanted: &BTreeMap<PublicKey, Peer>,
    ) -> Result<usize, NetworkError> {
        let seen = self.see().await?;
        let mut changes = 0;
        if (seen.public, seen.port) != (Some(key.public()), Some(PORT)) {
            let own = vec![Attribute::PrivateKey(key.secret().to_bytes()), Attribute::ListenPort(PORT)];
            self.set(own).await?;
            changes += 1;
        }
        let gone = seen.peers.keys().filter(|known| !wanted.contains_key(known)).map(|known| {
            let flags = PeerAttribute::Flags(WireguardPeerFlags::RemoveMe);
            WireguardPeer(vec![PeerAttribute::PublicKey(known.0), flags])
        });
        let news = wanted.iter().filter_map(|(public, peer)| {
            let moved = self.told.get(public).is_some_and(|told| *told != peer.endpoint);
            let known = seen.peers.get(public);
            let is_new = known.is_none();
            (moved || known != Some(&peer.ranges)).then(|| message(*public, peer, moved || is_new))
        });
        let all: Vec<WireguardPeer> = gone.chain(news).collect();
        changes += all.len();
        for some in all.chunks(PEERS_IN_A_MESSAGE) {
            self.set(vec![Attribute::Peers(some.to_vec())]).await?;
        }
        self.told = wanted.iter().map(|(public, peer)| (*public, peer.endpoint)).collect();
        Ok(changes)
    }

    async fn request(&mut self, cmd: WireguardCmd, more: Vec<Attribute>, flags: u16) -> Result<Seen, NetworkError> {
        let mut attributes = vec![Attribute::IfName(self.device.clone())];
        attributes.extend(more);
        let mut message = NetlinkMessage::from(GenlMessage::from_payload(WireguardMessage { cmd, attributes }));
        message.header.flags = NLM_F_REQUEST | flags;
        let mut answers = Box::pin(self.handle.request(message).await.map_err(failed)?);
        let mut seen = Seen::default();
        while let Some(answer) = answers.next().await {
            match answer.map_err(failed)?.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(failed(error.to_io())),
                NetlinkPayload::InnerMessage(message) => seen.read(message.payload.attributes),
                _ => {}
            }
        }
        Ok(seen)
    }

    async fn set(&mut self, attributes: Vec<Attribute>) -> Result<(), NetworkError> {
        self.request(WireguardCmd::SetDevice, attributes, NLM_F_ACK).await.map(drop)
    }

    async fn see(&mut self) -> Result<Seen, NetworkError> {
        self.request(WireguardCmd::GetDevice, Vec::new(), NLM_F_DUMP).await
    }
}

impl Seen {
    /// One peer may be told in several messages.
    fn read(&mut self, attributes: Vec<Attribute>) {
        for attribute in attributes {
            match attribute {
                Attribute::PublicKey(key) => self.public = Some(PublicKey(key)),
                Attribute::ListenPort(port) => self.port = Some(port),
                Attribute::Peers(peers) => peers.into_iter().for_each(|peer| self.read_peer(peer)),
                _ => {}
            }
        }
    }

    fn read_peer(&mut self, peer: WireguardPeer) {
        let mut key = None;
        let mut ranges = BTreeSet::new();
        for attribute in peer.0 {
            match attribute {
                PeerAttribute::PublicKey(bytes) => key = Some(PublicKey(bytes)),
                PeerAttribute::AllowedIps(all) => ranges.extend(all.iter().filter_map(range)),
                _ => {}
            }
        }
        if let Some(key) = key {
            self.peers.entry(key).or_default().extend(ranges);
        }
    }
}

fn range(allowed: &WireguardAllowedIp) -> Option<IpNet> {
    let address = allowed.0.iter().find_map(|attribute| match attribute {
        Allowed::IpAddr(address) => Some(*address),
        _ => None,
    })?;
    let length = allowed.0.iter().find_map(|attribute| match attribute {
        Allowed::Cidr(length) => Some(*length),
        _ => None,
    })?;
    IpNet::new(address, length).ok()
}

fn message(key: PublicKey, peer: &Peer, with_endpoint: bool) -> WireguardPeer {
    let ranges = peer.ranges.iter().map(|range| {
        let family = match range.addr() {
            IpAddr::V4(_) => WireguardAddressFamily::Ipv4,
            IpAddr::V6(_) => WireguardAddressFamily::Ipv6,
        };
        let parts = vec![Allowed::Family(family), Allowed::IpAddr(range.addr()), Allowed::Cidr(range.prefix_len())];
        WireguardAllowedIp(parts)
    });
    let mut attributes = vec![
        PeerAttribute::PublicKey(key.0),
        PeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
        PeerAttribute::PersistentKeepalive(KEEPALIVE),
        PeerAttribute::AllowedIps(ranges.collect()),
    ];
    attributes.extend(with_endpoint.then_some(PeerAttribute::Endpoint(peer.endpoint)));
    WireguardPeer(attributes)
}

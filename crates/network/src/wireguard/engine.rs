//! WireGuard in this process: packets from a TUN device are encrypted and sent, and what comes in is decrypted and written to
//! it. The protocol itself is boringtun's.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};
use boringtun::x25519;
use ferry_tasks::Tasks;
use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;

use super::peers::{Connection, Peers};
use super::{PORT, Peer, PrivateKey, PublicKey, tun};
use crate::NetworkError;

/// As large as a packet can be, and what encryption adds.
const BUFFER: usize = 65_535 + 80;
/// Of all peers together in a second; whoever asks while there are more has to prove first that it has its address.
const HANDSHAKES: u64 = 200;
/// How often timers are looked at: they count seconds.
const TICK: Duration = Duration::from_millis(250);
/// How many packets are taken from the device before others of this thread get their turn.
const BATCH: usize = 64;

struct Shared {
    key: PrivateKey,
    limiter: RateLimiter,
    device: AsyncFd<OwnedFd>,
    socket: UdpSocket,
    /// The socket takes IPv6 only, in which IPv4 has a place.
    is_mapped: bool,
    peers: ArcSwap<Peers>,
}

/// Runs until it is dropped.
pub struct Engine {
    shared: Arc<Shared>,
    tasks: Tasks,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
    }
}

impl Engine {
    pub async fn start(name: &str, key: &PrivateKey, tasks: &Tasks) -> Result<Self, NetworkError> {
        let device = tun::open(name).map_err(NetworkError::Tun)?;
        let (socket, is_mapped) = listen().await.map_err(|error| NetworkError::Listen(PORT, error))?;
        let shared = Arc::new(Shared {
            key: key.clone(),
            limiter: RateLimiter::new(&x25519::PublicKey::from(key.secret()), HANDSHAKES),
            device,
            socket,
            is_mapped,
            peers: ArcSwap::from_pointee(Peers::default()),
        });
        let tasks = tasks.child("wireguard");
        let one = shared.clone();
        tasks.spawn_until_stopped("packets that leave", async move { one.send_packets().await });
        let one = shared.clone();
        tasks.spawn_until_stopped("packets that come in", async move { one.receive_packets().await });
        let one = shared.clone();
        tasks.spawn_until_stopped("timers", async move { one.keep_time().await });
        Ok(Self { shared, tasks })
    }

    /// Takes over who the peers are; returns how many things that changed.
    pub async fn set_peers(&self, wanted: &BTreeMap<PublicKey, Peer>) -> usize {
        let (peers, changes, new) = self.shared.peers.load().with(&self.shared.key, wanted);
        self.shared.peers.store(Arc::new(peers));
        // The first word opens the way for answers through a router that translates addresses.
        let mut buffer = vec![0; BUFFER];
        for connection in new {
            let greeting = length(connection.tunnel.lock().format_handshake_initiation(&mut buffer, false));
            self.shared.send(&connection, &buffer[..greeting]).await;
        }
        changes
    }
}

/// One socket for both families; for IPv4 alone where the machine has no IPv6.
async fn listen() -> io::Result<(UdpSocket, bool)> {
    match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).await {
        Ok(socket) => Ok((socket, true)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => Ok((UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?, false)),
    }
}

/// How much of the buffer is to be sent.
fn length(result: TunnResult<'_>) -> usize {
    match result {
        TunnResult::WriteToNetwork(packet) => packet.len(),
        _ => 0,
    }
}

impl Shared {
    /// A packet that cannot be sent is lost, as on any network.
    async fn send(&self, connection: &Connection, packet: &[u8]) {
        if packet.is_empty() {
            return;
        }
        let endpoint = *connection.endpoint.lock();
        self.send_to(endpoint, packet).await;
    }

    async fn send_to(&self, endpoint: SocketAddr, packet: &[u8]) {
        let address = match endpoint.ip() {
            IpAddr::V4(address) if self.is_mapped => IpAddr::V6(address.to_ipv6_mapped()),
            address => address,
        };
        if let Err(error) = self.socket.send_to(packet, SocketAddr::new(address, endpoint.port())).await {
            tracing::debug!(%endpoint, "a WireGuard packet was not sent: {error}");
        }
    }

    async fn send_packets(&self) {
        let (mut packet, mut encrypted) = (vec![0; BUFFER], vec![0; BUFFER]);
        loop {
            let Ok(mut ready) = self.device.readable().await else { return };
            for _ in 0..BATCH {
                let read = ready.try_io(|device| Ok(rustix::io::read(device.get_ref(), &mut packet[..])?));
                let size = match read {
                    Err(_) => break,
                    Ok(Ok(size)) => size,
                    // The device is gone; whoever keeps the network makes another.
                    Ok(Err(error)) => {
                        tracing::warn!("the WireGuard device cannot be read: {error}");
                        return;
                    }
                };
                let peers = self.peers.load_full();
                let Some(address) = Tunn::dst_address(&packet[..size]) else { continue };
                let Some(connection) = peers.by_address(address) else { continue };
                let size = length(connection.tunnel.lock().encapsulate(&packet[..size], &mut encrypted));
                self.send(connection, &encrypted[..size]).await;
            }
        }
    }

    async fn receive_packets(&self) {
        let (mut datagram, mut buffer) = (vec![0; BUFFER], vec![0; BUFFER]);
        loop {
            match self.socket.recv_from(&mut datagram).await {
                Ok((size, from)) => {
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    self.receive(&datagram[..size], from, &mut buffer).await;
                }
                // What the network says of an earlier packet; the socket goes on.
                Err(error) => tracing::debug!("WireGuard: {error}"),
            }
        }
    }

    async fn receive(&self, datagram: &[u8], from: SocketAddr, buffer: &mut [u8]) {
        let peers = self.peers.load_full();
        let packet = match self.limiter.verify_packet(Some(from.ip()), datagram, buffer) {
            Ok(packet) => packet,
            Err(TunnResult::WriteToNetwork(cookie)) => {
                let cookie = cookie.to_vec();
                return self.send_to(from, &cookie).await;
            }
            Err(_) => return,
        };
        let connection = match &packet {
            Packet::HandshakeInit(greeting) => {
                let public = x25519::PublicKey::from(self.key.secret());
                let Ok(sender) = parse_handshake_anon(self.key.secret(), &public, greeting) else { return };
                peers.by_key(PublicKey(sender.peer_static_public))
            }
            Packet::HandshakeResponse(packet) => peers.by_receiver(packet.receiver_idx),
            Packet::PacketCookieReply(packet) => peers.by_receiver(packet.receiver_idx),
            Packet::PacketData(packet) => peers.by_receiver(packet.receiver_idx),
        };
        let Some(connection) = connection else { return };
        let is_cookie = matches!(packet, Packet::PacketCookieReply(_));
        let done = match connection.tunnel.lock().decapsulate(Some(from.ip()), datagram, buffer) {
            TunnResult::Err(_) => return,
            TunnResult::Done => Done::Nothing,
            TunnResult::WriteToNetwork(answer) => Done::Answer(answer.len()),
            TunnResult::WriteToTunnelV4(packet, source) => Done::Packet(packet.len(), source.into()),
            TunnResult::WriteToTunnelV6(packet, source) => Done::Packet(packet.len(), source.into()),
        };
        // It proved who it is, wherever it is now.
        if !is_cookie {
            *connection.endpoint.lock() = from;
        }
        match done {
            Done::Nothing => {}
            Done::Packet(size, source) => {
                // What a node sends has to come from its own pods.
                if peers.by_address(source).is_some_and(|owner| owner.is(connection))
                    && let Err(error) = rustix::io::write(self.device.get_ref(), &buffer[..size])
                {
                    tracing::debug!("a packet was not taken by the WireGuard device: {error}");
                }
            }
            Done::Answer(mut size) => {
                // What waited for the handshake follows the answer to it.
                while size > 0 {
                    self.send_to(from, &buffer[..size]).await;
                    size = length(connection.tunnel.lock().decapsulate(None, &[], buffer));
                }
            }
        }
    }

    async fn keep_time(&self) {
        let mut buffer = vec![0; BUFFER];
        loop {
            tokio::time::sleep(TICK).await;
            self.limiter.reset_count();
            for connection in self.peers.load_full().all() {
                let size = {
                    let mut tunnel = connection.tunnel.lock();
                    match tunnel.update_timers(&mut buffer) {
                        // It did not answer for long: the next try begins at once, for it may be back at any time.
                        TunnResult::Err(WireGuardError::ConnectionExpired) => {
                            length(tunnel.format_handshake_initiation(&mut buffer, false))
                        }
                        other => length(other),
                    }
                };
                self.send(connection, &buffer[..size]).await;
            }
        }
    }
}

/// What a datagram came to; its bytes are in the buffer.
enum Done {
    Nothing,
    Answer(usize),
    Packet(usize, IpAddr),
}

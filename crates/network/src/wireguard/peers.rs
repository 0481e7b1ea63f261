//! The other nodes as the engine sees them: found by key, by the index in a packet, or by the address of a pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use boringtun::noise::Tunn;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::x25519;
use ipnet::IpNet;
use parking_lot::Mutex;

use super::{KEEPALIVE, Peer, PrivateKey, PublicKey};

/// Indices have 24 bits: the rest of the number counts the sessions of one peer.
const MOST_INDICES: u32 = 1 << 24;

/// A connection with one other node.
pub struct Connection {
    pub tunnel: Mutex<Tunn>,
    /// Where it was heard last, or is told to be.
    pub endpoint: Mutex<SocketAddr>,
    key: PublicKey,
    index: u32,
}

#[derive(Default)]
pub struct Peers {
    by_key: HashMap<PublicKey, Arc<Connection>>,
    by_index: HashMap<u32, Arc<Connection>>,
    by_range: HashMap<IpNet, Arc<Connection>>,
    /// The lengths of the ranges of each family, longest first: mostly one.
    lengths: [Vec<u8>; 2],
    wanted: BTreeMap<PublicKey, Peer>,
    next_index: u32,
}

impl Peers {
    pub fn by_key(&self, key: PublicKey) -> Option<&Arc<Connection>> {
        self.by_key.get(&key)
    }

    /// By the number that this node gave in a handshake.
    pub fn by_receiver(&self, receiver: u32) -> Option<&Arc<Connection>> {
        self.by_index.get(&(receiver >> 8))
    }

    pub fn by_address(&self, address: IpAddr) -> Option<&Arc<Connection>> {
        self.lengths[usize::from(address.is_ipv6())].iter().find_map(|length| {
            let range = IpNet::new(address, *length).ok()?;
            self.by_range.get(&range.trunc())
        })
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.by_key.values()
    }

    /// The same peers with what changed, how much that is, and who is new. Connections of those that stay go on; one that is
    /// told to be elsewhere than before is looked for there.
    pub fn with(&self, key: &PrivateKey, wanted: &BTreeMap<PublicKey, Peer>) -> (Self, usize, Vec<Arc<Connection>>) {
        let mut next = Self { wanted: wanted.clone(), next_index: self.next_index, ..Self::default() };
        let mut changes = self.wanted.keys().filter(|known| !wanted.contains_key(known)).count();
        let mut new = Vec::new();
        let mut lengths = [BTreeSet::new(), BTreeSet::new()];
        for (public, peer) in wanted {
            let connection = match (self.by_key.get(public), self.wanted.get(public)) {
                (Some(connection), Some(before)) => {
                    if before.endpoint != peer.endpoint {
                        *connection.endpoint.lock() = peer.endpoint;
                    }
                    changes += usize::from(before != peer);
                    connection.clone()
                }
                _ => {
                    changes += 1;
                    let made = Arc::new(next.connect(self, key, *public, peer.endpoint));
                    new.push(made.clone());
                    made
                }
            };
            next.by_key.insert(*public, connection.clone());
            next.by_index.insert(connection.index, connection.clone());
            for range in &peer.ranges {
                lengths[usize::from(range.addr().is_ipv6())].insert(range.prefix_len());
                next.by_range.insert(range.trunc(), connection.clone());
            }
        }
        next.lengths = lengths.map(|lengths| lengths.into_iter().rev().collect());
        (next, changes, new)
    }

    fn connect(&mut self, before: &Self, key: &PrivateKey, public: PublicKey, endpoint: SocketAddr) -> Connection {
        // A number that somebody may still use for another peer is not given again.
        loop {
            self.next_index = (self.next_index + 1) % MOST_INDICES;
            if !before.by_index.contains_key(&self.next_index) && !self.by_index.contains_key(&self.next_index) {
                break;
            }
        }
        // Handshakes are limited before they get here, for all peers together.
        let unlimited = Arc::new(RateLimiter::new(&x25519::PublicKey::from(key.secret()), u64::MAX));
        let other = x25519::PublicKey::from(public.0);
        let tunnel = Tunn::new(key.secret().clone(), other, None, Some(KEEPALIVE), self.next_index, Some(unlimited));
        Connection { tunnel: Mutex::new(tunnel), endpoint: Mutex::new(endpoint), key: public, index: self.next_index }
    }
}

impl Connection {
    pub fn is(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

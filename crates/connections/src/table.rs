//! All connections of one listener.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Identity};
use crate::limits::Limits;
use crate::pool::Pool;

/// Why a connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Others needed the room.
    Room,
    /// More is held for it than for any other, and too much for all.
    Memory,
    /// It did not show who it is or what it wants.
    Silent,
    Idle,
    /// It does not read.
    Stalled,
    /// It sends frames of HTTP/2 that ask for nothing.
    Frames,
}

impl Reason {
    const ALL: [Self; 6] = [Self::Room, Self::Memory, Self::Silent, Self::Idle, Self::Stalled, Self::Frames];

    fn name(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Memory => "memory",
            Self::Silent => "silent",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Frames => "frames",
        }
    }
}

/// Clones are handles to the same table.
#[derive(Clone)]
pub struct Connections(Arc<Table>);

struct Table {
    limits: Limits,
    epoch: Instant,
    next: AtomicU64,
    pools: Mutex<Pools>,
    held: AtomicUsize,
    cut: [AtomicU64; Reason::ALL.len()],
    /// Somebody has come in.
    arrival: Notify,
    /// How far tests have put the clock forward.
    #[cfg(test)]
    skipped: AtomicU64,
}

pub(crate) struct Pools {
    pub(crate) unauthenticated: Pool<IpAddr>,
    pub(crate) authenticated: Pool<Arc<str>>,
}

impl Pools {
    fn remove(&mut self, connection: &Connection) {
        match std::mem::replace(&mut *connection.identity.lock(), Identity::Gone) {
            Identity::Unauthenticated(address) => self.unauthenticated.remove(&address, connection.number),
            Identity::Authenticated(user) => self.authenticated.remove(&user, connection.number),
            Identity::Gone => {}
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.unauthenticated.iter().chain(self.authenticated.iter())
    }
}

impl Connections {
    pub fn new(limits: Limits) -> Self {
        let pools = Pools {
            unauthenticated: Pool::new(limits.unauthenticated),
            authenticated: Pool::new(limits.authenticated),
        };
        Self(Arc::new(Table {
            limits,
            epoch: Instant::now(),
            next: AtomicU64::new(0),
            pools: Mutex::new(pools),
            held: AtomicUsize::new(0),
            cut: Default::default(),
            arrival: Notify::new(),
            #[cfg(test)]
            skipped: AtomicU64::new(0),
        }))
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Milliseconds; never 0, which stands for never.
    pub(crate) fn now(&self) -> u64 {
        let now = u64::try_from(self.0.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        #[cfg(test)]
        let now = now + self.0.skipped.load(Ordering::Relaxed);
        now
    }

    #[cfg(test)]
    pub(crate) fn advance(&self, seconds: u64) {
        self.0.skipped.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    /// Takes one in. Where there are too many that have not shown who they are, another goes.
    pub fn admit(&self, address: IpAddr, draining: CancellationToken) -> Arc<Connection> {
        let address = holder(address);
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let connection = Connection::new(number, address, draining, self.clone());
        let mut pools = self.0.pools.lock();
        pools.unauthenticated.add(address, connection.clone());
        let overfull = pools.unauthenticated.is_overfull();
        let victim = overfull.then(|| pools.unauthenticated.victim(Some(number))).flatten();
        self.cut(pools, victim.map(|victim| (victim, Reason::Room)));
        self.0.arrival.notify_one();
        connection
    }

    pub(crate) fn authenticated(&self, connection: &Arc<Connection>, user: &str) {
        let mut pools = self.0.pools.lock();
        let user: Arc<str> = user.into();
        {
            let mut identity = connection.identity.lock();
            let Identity::Unauthenticated(address) = *identity else { return };
            pools.unauthenticated.remove(&address, connection.number);
            *identity = Identity::Authenticated(user.clone());
        }
        pools.authenticated.add(user, connection.clone());
        let overfull = pools.authenticated.is_overfull();
        let victim = overfull.then(|| pools.authenticated.victim(Some(connection.number))).flatten();
        self.cut(pools, victim.map(|victim| (victim, Reason::Room)));
    }

    /// The process has no room for another: the oldest makes some.
    pub fn make_room(&self) {
        let pools = self.0.pools.lock();
        let victim = pools.unauthenticated.victim(None).or_else(|| pools.authenticated.victim(None));
        self.cut(pools, victim.map(|victim| (victim, Reason::Room)));
    }

    /// It is closed.
    pub(crate) fn leave(&self, connection: &Connection) {
        self.0.pools.lock().remove(connection);
        connection.release();
    }

    fn cut(&self, mut pools: MutexGuard<'_, Pools>, which: impl IntoIterator<Item = (Arc<Connection>, Reason)>) {
        let mut cut = Vec::new();
        for (connection, why) in which {
            pools.remove(&connection);
            self.0.cut[why as usize].fetch_add(1, Ordering::Relaxed);
            tracing::debug!(?connection, ?why, "a connection is cut off");
            connection.cut();
            cut.push(connection);
        }
        drop(pools);
        cut.iter().for_each(|connection| connection.revoke());
    }

    pub(crate) fn cut_all(&self, which: Vec<(Arc<Connection>, Reason)>) {
        self.cut(self.0.pools.lock(), which);
    }

    pub(crate) fn count_drained(&self) {
        self.0.cut[Reason::Idle as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Looks at every connection.
    pub(crate) fn each(&self, look: impl FnMut(&Arc<Connection>)) {
        self.0.pools.lock().iter().for_each(look);
    }

    pub(crate) fn is_empty(&self) -> bool {
        let pools = self.0.pools.lock();
        pools.unauthenticated.len() + pools.authenticated.len() == 0
    }

    pub(crate) async fn arrival(&self) {
        self.0.arrival.notified().await;
    }

    /// Counts bytes that are held.
    pub(crate) fn take(&self, bytes: usize) {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The connection with most of the bytes that are held goes when they are too many.
    pub(crate) fn bound(&self) {
        let is_too_much = || self.0.held.load(Ordering::Relaxed) > self.0.limits.held_bytes;
        if !is_too_much() {
            return;
        }
        let pools = self.0.pools.lock();
        // Another may have made room by now.
        let victim = is_too_much().then(|| pools.iter().max_by_key(|connection| connection.held()).cloned()).flatten();
        if let Some(victim) = &victim {
            let bytes = victim.held();
            tracing::warn!(
                ?victim,
                bytes,
                "too much memory is held for clients; closing the connection that holds the most"
            );
        }
        self.cut(pools, victim.map(|victim| (victim, Reason::Memory)));
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Figures in Prometheus' text format.
    pub fn metrics(&self, prefix: &str) -> String {
        let (unauthenticated, authenticated) = {
            let pools = self.0.pools.lock();
            (pools.unauthenticated.len(), pools.authenticated.len())
        };
        let held = self.0.held.load(Ordering::Relaxed);
        let mut out = format!(
            "# HELP {prefix}_connections Open connections by whether the client has shown who it is.\n\
             # TYPE {prefix}_connections gauge\n\
             {prefix}_connections{{authenticated=\"false\"}} {unauthenticated}\n\
             {prefix}_connections{{authenticated=\"true\"}} {authenticated}\n\
             # HELP {prefix}_connections_held_bytes Bytes of requests and answers that are held for clients.\n\
             # TYPE {prefix}_connections_held_bytes gauge\n\
             {prefix}_connections_held_bytes {held}\n\
             # HELP {prefix}_connections_cut_total Connections that the server ended, by reason.\n\
             # TYPE {prefix}_connections_cut_total counter\n"
        );
        for reason in Reason::ALL {
            let count = self.0.cut[reason as usize].load(Ordering::Relaxed);
            let _ = writeln!(out, "{prefix}_connections_cut_total{{reason=\"{}\"}} {count}", reason.name());
        }
        out
    }
}

/// Whose an address is: a machine with IPv6 has a whole network of them.
fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

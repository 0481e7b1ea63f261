//! One connection: what it is doing, who holds it, and what is held for it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::task::AtomicWaker;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::body::Revocable;
use crate::limits::MOST_HEADERS;
use crate::table::Connections;
use crate::unread::Unread;

/// What is smaller is not counted: a connection has few requests under way.
const COUNTED: usize = 4 << 10;
/// What a field of a head takes beside its text.
const FIELD: usize = 128;

/// Whose connection it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Unauthenticated(IpAddr),
    Authenticated(Arc<str>),
    Gone,
}

/// A handle to one connection.
pub struct Connection {
    pub(crate) number: u64,
    pub(crate) identity: Mutex<Identity>,
    is_authenticated: AtomicBool,
    /// Requests whose answer is not delivered.
    requests: AtomicU32,
    /// It carries something else than HTTP by now.
    upgraded: AtomicBool,
    /// Its first request has come.
    pub(crate) served: AtomicBool,
    /// It was asked to give its buffers back, and has had no request since.
    pub(crate) rested: AtomicBool,
    pub(crate) rest: Notify,
    /// It has given them back.
    pub(crate) resting: AtomicBool,
    /// When it became idle, in the table's milliseconds.
    pub(crate) idle_since: AtomicU64,
    /// Since when a write waits; 0 when none does.
    pub(crate) stalled_since: AtomicU64,
    /// When it was asked to end; 0 before.
    pub(crate) drained_at: AtomicU64,
    /// It has to end now.
    cut: AtomicBool,
    pub(crate) reader: AtomicWaker,
    pub(crate) writer: AtomicWaker,
    /// Asks it to finish what is under way and to end.
    pub(crate) draining: CancellationToken,
    pub(crate) held: Mutex<Held>,
    pub(crate) streams: Mutex<Vec<Weak<dyn Revocable>>>,
    pub(crate) table: Connections,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").field("number", &self.number).field("identity", &self.identity).finish()
    }
}

#[derive(Default)]
pub(crate) struct Held {
    pub(crate) bytes: usize,
    /// It was cut or has left: what it holds is on its way out and counts no more.
    pub(crate) released: bool,
    pub(crate) unread: Unread,
}

impl Connection {
    pub(crate) fn new(number: u64, address: IpAddr, draining: CancellationToken, table: Connections) -> Arc<Self> {
        Arc::new(Self {
            number,
            identity: Mutex::new(Identity::Unauthenticated(address)),
            is_authenticated: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            upgraded: AtomicBool::new(false),
            served: AtomicBool::new(false),
            rested: AtomicBool::new(false),
            rest: Notify::new(),
            resting: AtomicBool::new(false),
            idle_since: AtomicU64::new(table.now()),
            stalled_since: AtomicU64::new(0),
            drained_at: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
            draining,
            held: Mutex::default(),
            streams: Mutex::default(),
            table,
        })
    }

    /// It belongs to a user from now on, the first that it was used by.
    pub fn authenticated(self: &Arc<Self>, user: &str) {
        if !self.is_authenticated.load(Ordering::Relaxed) {
            self.is_authenticated.store(true, Ordering::Relaxed);
            self.table.authenticated(self, user);
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    /// Whether nothing of an answer waits to be written either.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_idle() && self.stalled_since.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.upgraded.load(Ordering::Relaxed)
    }

    /// A request has come. None when its head is larger than anybody needs.
    pub(crate) fn begin(self: &Arc<Self>, head: &HeaderMap) -> Option<InFlight> {
        self.served.store(true, Ordering::Relaxed);
        self.rested.store(false, Ordering::Relaxed);
        self.resting.store(false, Ordering::Relaxed);
        if head.len() > MOST_HEADERS {
            return None;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let text: usize = head.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let size = text + head.len() * FIELD;
        Some(InFlight { connection: self.clone(), charge: (size >= COUNTED).then(|| self.charge(size)) })
    }

    /// It carries something else than HTTP from now on: what says nothing for a while is not idle.
    pub fn upgraded(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn hold(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED {
            return bytes;
        }
        if self.is_cut() {
            // It cannot be delivered, and was too much already.
            return Bytes::new();
        }
        let _charge = self.charge(bytes.len());
        Bytes::from_owner(Counted { bytes, _charge })
    }

    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let mut charge = Charge { connection: self.clone(), bytes: 0 };
        charge.grow(bytes);
        charge
    }

    pub(crate) fn held(&self) -> usize {
        let held = self.held.lock();
        if held.released { 0 } else { held.bytes }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Takes back the answers that were not delivered. Apart from `cut`, for what they hold is dropped here.
    pub(crate) fn revoke(&self) {
        let streams = std::mem::take(&mut *self.streams.lock());
        streams.iter().filter_map(Weak::upgrade).for_each(|stream| stream.revoke());
    }

    /// What it still holds is no reason to cut off anybody else.
    pub(crate) fn release(&self) {
        let mut held = self.held.lock();
        if !held.released {
            held.released = true;
            self.table.release(held.bytes);
        }
    }

    /// Ends it whatever it is doing: its next read or write fails.
    pub(crate) fn cut(&self) {
        self.release();
        self.cut.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
        self.draining.cancel();
    }
}

/// A request under way, until its answer is delivered.
pub(crate) struct InFlight {
    connection: Arc<Connection>,
    charge: Option<Charge>,
}

impl InFlight {
    /// The head is gone by now.
    pub(crate) fn answered(&mut self, is_upgrade: bool) {
        self.charge = None;
        if is_upgrade {
            self.connection.upgraded();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.connection.requests.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.connection.idle_since.store(self.connection.table.now(), Ordering::Relaxed);
        }
    }
}

/// Memory that a connection answers for.
pub(crate) struct Charge {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Charge {
    fn grow(&mut self, bytes: usize) {
        {
            let mut held = self.connection.held.lock();
            if held.released {
                return;
            }
            held.bytes += bytes;
            self.bytes += bytes;
            // Under the lock: who releases them must find them counted.
            self.connection.table.take(bytes);
        }
        self.connection.table.bound();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut held = self.connection.held.lock();
        if !held.released {
            held.bytes -= self.bytes;
            self.connection.table.release(self.bytes);
        }
    }
}

struct Counted {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

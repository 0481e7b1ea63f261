//! Word of what others change in the packet rules.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::foreign;
use crate::netlink::{attributes, listen, messages, open, receive, text};
use crate::run::Nft;

const GROUP: u32 = 7;
const SUBSYSTEM: u16 = 10;
/// A generation has no table: it closes each transaction.
const NEW_GENERATION: u16 = 15;
/// In every message about a table, or about something in one.
const TABLE: u16 = 1;

/// Sockets that change rules for us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers(Arc<Mutex<Ports>>);

#[derive(Debug, Default)]
struct Ports {
    /// Of processes that end soon: the kernel names a process's first socket after the process.
    processes: VecDeque<u32>,
    /// This process keeps it.
    own: Option<u32>,
}

impl Writers {
    pub(crate) fn add(&self, process: u32) {
        let known = &mut self.0.lock().processes;
        if known.len() >= 64 {
            known.pop_front();
        }
        known.push_back(process);
    }

    pub(crate) fn keep(&self, port: u32) {
        self.0.lock().own = Some(port);
    }

    fn has(&self, port: u32) -> bool {
        let known = self.0.lock();
        known.own == Some(port) || known.processes.contains(&port)
    }
}

#[derive(Debug)]
pub struct Watch {
    socket: AsyncFd<OwnedFd>,
    own: Writers,
}

/// What others changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    tables: BTreeSet<String>,
    /// More happened than could be told.
    unknown: bool,
}

impl Changed {
    /// Whether this table was changed.
    pub fn concerns(&self, table: &str) -> bool {
        self.tables.contains(table)
    }

    /// Whether more happened than could be told, by others or by oneself.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Whether another table than these was changed.
    pub fn concerns_others_than(&self, tables: &[&str]) -> bool {
        self.tables.iter().any(|table| !tables.contains(&table.as_str()))
    }

    fn is_empty(&self) -> bool {
        self.tables.is_empty() && !self.unknown
    }

    fn take_in(&mut self, bytes: &[u8], own: &Writers) {
        for message in messages(bytes).filter(|message| message.kind >> 8 == SUBSYSTEM && !own.has(message.port)) {
            if message.kind & 0xff == NEW_GENERATION {
                continue;
            }
            let table = attributes(message.body.get(4..).unwrap_or_default()).find(|(kind, _, _)| *kind == TABLE);
            self.tables.extend(table.map(|(_, name, _)| text(name)));
        }
    }
}

impl Watch {
    /// Of the network that this thread is in, without what this `nft` does.
    pub fn new(nft: &Nft) -> std::io::Result<Self> {
        Self::of(Self::socket()?, nft)
    }

    pub fn socket() -> std::io::Result<OwnedFd> {
        listen(GROUP)
    }

    /// The socket may be of another network.
    pub fn of(socket: OwnedFd, nft: &Nft) -> std::io::Result<Self> {
        #[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd keeps the promise it asks for")]
        let socket = AsyncFd::new(socket)?;
        Ok(Self { socket, own: nft.writers() })
    }

    /// Whether a chain of a table of a family (2 or 10, as the kernel numbers them) is there and has rules, in the network that this thread is in.
    pub fn has_rules(family: u8, table: &str, chain: &str) -> std::io::Result<bool> {
        foreign::has_rules(&open()?, family, table, chain)
    }

    /// The same of a table for both families of addresses.
    pub fn has_inet_rules(table: &str, chain: &str) -> std::io::Result<bool> {
        foreign::has_rules(&open()?, foreign::FAMILY_INET, table, chain)
    }

    /// Waits until others have changed something. Nothing is lost when the wait is given up.
    pub async fn next(&mut self) -> std::io::Result<Changed> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut changed = Changed::default();
            loop {
                match receive(ready.get_inner()) {
                    Ok(bytes) => changed.take_in(&bytes, &self.own),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => changed.unknown = true,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            ready.clear_ready();
            if !changed.is_empty() {
                return Ok(changed);
            }
        }
    }
}

/// When to repair: at once, and later and later while somebody keeps on changing the same.
#[derive(Debug, Default)]
pub struct Pace {
    last: Option<Instant>,
    delay: Duration,
}

impl Pace {
    const CALM: Duration = Duration::from_secs(60);
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);

    /// The time of the next repair.
    pub fn next(&mut self, now: Instant) -> Instant {
        let calm = self.last.is_none_or(|last| now.saturating_duration_since(last) > Self::CALM);
        self.delay = if calm { Duration::ZERO } else { (self.delay * 2).clamp(Self::FIRST, Self::LONGEST) };
        let at = now + self.delay;
        self.last = Some(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::text_attribute;

    fn message(kind: u16, port: u32, table: &str) -> Vec<u8> {
        let attribute = text_attribute(TABLE, table);
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(20 + attribute.len()).expect("short").to_ne_bytes());
        bytes.extend((SUBSYSTEM << 8 | kind).to_ne_bytes());
        bytes.extend([0; 6]);
        bytes.extend(port.to_ne_bytes());
        bytes.extend([2, 0, 0, 0]);
        bytes.extend(attribute);
        bytes
    }

    #[test]
    fn what_one_does_oneself_is_no_news() {
        let own = Writers::default();
        own.add(77);
        let mut changed = Changed::default();
        changed.take_in(&[message(0, 77, "mine"), message(NEW_GENERATION, 78, "no")].concat(), &own);
        assert!(changed.is_empty());
        changed.take_in(&[message(2, 78, "filter"), message(2, 77, "mine")].concat(), &own);
        assert!(changed.concerns("filter") && !changed.concerns("mine"));
        assert!(changed.concerns_others_than(&["mine"]) && !changed.concerns_others_than(&["filter"]));
        (0..64).for_each(|port| own.add(port + 1000));
        assert!(!own.has(77), "kept for a while only");
    }

    #[test]
    fn repairs_come_at_once_and_then_slower() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let delays: Vec<u128> = (0..4).map(|_| (pace.next(start) - start).as_millis()).collect();
        assert_eq!(delays, [0, 100, 200, 400]);
        let later = start + Duration::from_secs(120);
        assert_eq!(pace.next(later), later, "after a while of peace");
    }
}

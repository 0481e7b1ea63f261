//! The event log that watchers share: each holds a cursor, and an event's bytes are built once for all of them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use ferry_store::Revision;
use parking_lot::RwLock;
use tokio::sync::Notify;

use super::object::CachedObject;

/// Events stay at least this long, so that a client that lost its connection can go on.
const FRESH: Duration = Duration::from_secs(75);
const FEW: usize = 1024;
const MOST: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
}

impl FrameKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub(super) struct LogEntry {
    pub(super) revision: Revision,
    pub(super) object: Option<Arc<CachedObject>>,
    pub(super) previous: Option<Arc<CachedObject>>,
    pub(super) at: Instant,
    departed: OnceLock<Arc<CachedObject>>,
    /// Few entries are watched by anyone: the room for their frames is made when it is needed.
    frames: OnceLock<Box<[OnceLock<Bytes>; 3]>>,
}

impl LogEntry {
    pub(super) fn new(
        revision: Revision,
        object: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> Self {
        Self { revision, object, previous, at: Instant::now(), departed: OnceLock::new(), frames: OnceLock::new() }
    }

    /// The last state a watcher saw, at the revision of the change that took it away.
    pub(super) fn departed(&self) -> Option<Arc<CachedObject>> {
        let previous = self.previous.as_ref()?;
        Some(self.departed.get_or_init(|| Arc::new(previous.at(self.revision))).clone())
    }

    pub(super) fn frame(&self, kind: FrameKind, object: &CachedObject) -> Bytes {
        let place = match kind {
            FrameKind::Added => 0,
            FrameKind::Modified => 1,
            FrameKind::Deleted => 2,
            FrameKind::Bookmark => return object_frame(kind, object),
        };
        self.frames.get_or_init(Box::default)[place].get_or_init(|| object_frame(kind, object)).clone()
    }
}

/// One line of a JSON watch.
pub(super) fn frame(kind: FrameKind, object: &[u8]) -> Bytes {
    line(kind, object.len(), |out| out.put_slice(object))
}

pub(super) fn object_frame(kind: FrameKind, object: &CachedObject) -> Bytes {
    line(kind, object.json_length(), |out| object.write_json(out))
}

fn line(kind: FrameKind, length: usize, object: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(length + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_str().as_bytes());
    out.put_slice(b"\",\"object\":");
    object(&mut out);
    out.put_slice(b"}\n");
    out.freeze()
}

/// What a watch looks at, as far as an index can tell: it is woken for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    Everything,
    Namespace(Box<str>),
    /// Namespace and name.
    Object(Box<str>, Box<str>),
    /// A name in whatever namespace.
    Name(Box<str>),
    Node(Box<str>),
}

/// A log of the events of one topic. The one of everything is the resource's history.
pub(super) struct Channel {
    log: RwLock<Log>,
    pub(super) notify: Notify,
}

/// Channels that have something new, each once.
#[derive(Default)]
pub(super) struct Woken(Vec<Arc<Channel>>);

impl Woken {
    pub(super) fn add(&mut self, channel: &Arc<Channel>) {
        self.0.push(channel.clone());
    }

    pub(super) fn wake(mut self) {
        self.0.sort_unstable_by_key(Arc::as_ptr);
        self.0.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for channel in self.0 {
            channel.notify.notify_waiters();
        }
    }
}

struct Log {
    entries: VecDeque<Arc<LogEntry>>,
    /// The number of the first entry; numbers only grow.
    first: u64,
    /// Every event after this revision is here.
    after: Revision,
    closed: bool,
}

/// What a cursor finds.
pub(super) enum Found {
    Entries(Vec<Arc<LogEntry>>),
    Nothing,
    /// The cursor's place is gone: the watcher was too slow, or the resource is.
    Gone,
}

impl Channel {
    pub(super) fn new(after: Revision) -> Self {
        let log = Log { entries: VecDeque::new(), first: 0, after, closed: false };
        Self { log: RwLock::new(log), notify: Notify::new() }
    }

    pub(super) fn push(&self, entries: &[Arc<LogEntry>]) {
        let mut log = self.log.write();
        log.entries.extend(entries.iter().cloned());
        while log.entries.len() > FEW
            && log.entries.front().is_some_and(|entry| log.entries.len() > MOST || entry.at.elapsed() > FRESH)
        {
            if let Some(entry) = log.entries.pop_front() {
                log.after = log.after.max(entry.revision);
                log.first += 1;
            }
        }
    }

    pub(super) fn close(&self) {
        self.log.write().closed = true;
        self.notify.notify_waiters();
    }

    /// Where the next event will be.
    pub(super) fn end(&self) -> u64 {
        let log = self.log.read();
        log.first + log.entries.len() as u64
    }

    /// Events after this revision are all here.
    pub(super) fn after(&self) -> Revision {
        self.log.read().after
    }

    pub(super) fn since(&self, revision: Revision) -> Vec<Arc<LogEntry>> {
        let log = self.log.read();
        let start = log.entries.partition_point(|entry| entry.revision <= revision);
        log.entries.range(start..).cloned().collect()
    }

    pub(super) fn read(&self, cursor: u64, most: usize) -> Found {
        let log = self.log.read();
        if log.closed || cursor < log.first {
            return Found::Gone;
        }
        let start = usize::try_from(cursor - log.first).unwrap_or(usize::MAX);
        if start >= log.entries.len() {
            return Found::Nothing;
        }
        Found::Entries(log.entries.range(start..).take(most).cloned().collect())
    }
}

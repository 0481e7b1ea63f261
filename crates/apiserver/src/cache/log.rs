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
/// So much stays of what is older.
const KEPT: Size = Size { events: 1024, bytes: 16 << 20 };
/// More than this does not stay, however fresh it is: large objects that are written again and again are no reason to
/// run out of memory.
const MOST: Size = Size { events: 100_000, bytes: 256 << 20 };

/// How much a log holds: its events, and the bytes of their objects.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    events: usize,
    bytes: usize,
}

impl Size {
    fn exceeds(self, limit: Self) -> bool {
        self.events > limit.events || self.bytes > limit.bytes
    }
}

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

    fn bytes(&self) -> usize {
        self.object.as_ref().or(self.previous.as_ref()).map_or(0, |object| object.json_length())
    }

    /// The last state a watcher saw, at the revision of the change that took it away.
    pub(super) fn departed(&self) -> Option<Arc<CachedObject>> {
        let previous = self.previous.as_ref()?;
        Some(self.departed.get_or_init(|| Arc::new(previous.at(self.revision))).clone())
    }

    pub(super) fn line(&self, kind: FrameKind, object: &CachedObject) -> Bytes {
        let place = match kind {
            FrameKind::Added => 0,
            FrameKind::Modified => 1,
            FrameKind::Deleted => 2,
            FrameKind::Bookmark => return line(kind, object),
        };
        self.frames.get_or_init(Box::default)[place].get_or_init(|| line(kind, object)).clone()
    }
}

/// One line of a JSON watch.
pub(super) fn line(kind: FrameKind, object: &CachedObject) -> Bytes {
    let mut out = BytesMut::with_capacity(object.json_length() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_str().as_bytes());
    out.put_slice(b"\",\"object\":");
    object.write_json(&mut out);
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
    bytes: usize,
    /// The number of the first entry; numbers only grow.
    first: u64,
    /// Every event after this revision is here.
    after: Revision,
    closed: bool,
}

impl Log {
    fn trim(&mut self, most: Size, kept: Size, fresh: Duration) {
        // The newest stays: those who wait for it were told of it.
        while self.entries.len() > 1 {
            let (size, Some(oldest)) = (self.size(), self.entries.front()) else { return };
            let surplus = size.exceeds(most) || size.exceeds(kept) && oldest.at.elapsed() >= fresh;
            if !surplus {
                return;
            }
            self.bytes -= oldest.bytes();
            self.after = self.after.max(oldest.revision);
            self.first += 1;
            self.entries.pop_front();
        }
    }

    fn size(&self) -> Size {
        Size { events: self.entries.len(), bytes: self.bytes }
    }
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
        let log = Log { entries: VecDeque::new(), bytes: 0, first: 0, after, closed: false };
        Self { log: RwLock::new(log), notify: Notify::new() }
    }

    pub(super) fn push(&self, entries: &[Arc<LogEntry>]) {
        let mut log = self.log.write();
        log.entries.extend(entries.iter().cloned());
        log.bytes += entries.iter().map(|entry| entry.bytes()).sum::<usize>();
        log.trim(MOST, KEPT, FRESH);
    }

    /// Lets go of what need not be kept, also when nothing new comes.
    pub(super) fn trim(&self) {
        self.log.write().trim(MOST, KEPT, FRESH);
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

    /// The change of one object at a revision, if it is still known.
    pub(super) fn at(&self, revision: Revision, key: &str) -> Option<Arc<LogEntry>> {
        let log = self.log.read();
        let start = log.entries.partition_point(|entry| entry.revision < revision);
        let mut of_it = log.entries.range(start..).take_while(|entry| entry.revision == revision);
        let is_it = |object: &Option<Arc<CachedObject>>| object.as_ref().is_some_and(|object| &*object.key == key);
        of_it.find(|entry| is_it(&entry.object) || is_it(&entry.previous)).cloned()
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

#[cfg(test)]
mod tests {
    use super::super::Registration;
    use super::*;

    fn entry(revision: Revision, length: usize) -> Arc<LogEntry> {
        let resource = ferry_meta::GroupResource::new("", "things");
        let registration = Arc::new(Registration::new(resource, "things", false, Vec::new(), |_, _| String::new()));
        let text = format!(r#"{{"metadata":{{"uid":"u"}},"data":"{}"}}"#, "x".repeat(length));
        let key = "/registry/things/x".into();
        let object = CachedObject::ingest(&registration, key, &Bytes::from(text), 1, revision).expect("an object");
        Arc::new(LogEntry::new(revision, Some(Arc::new(object)), None))
    }

    /// What is left of ten events of some 1000 bytes.
    fn left(most: Size, kept: Size, fresh: Duration) -> (usize, Revision, u64) {
        let channel = Channel::new(0);
        channel.push(&(1..=10).map(|revision| entry(revision, 1000)).collect::<Vec<_>>());
        let mut log = channel.log.write();
        log.trim(most, kept, fresh);
        assert_eq!(log.bytes, log.entries.iter().map(|entry| entry.bytes()).sum::<usize>());
        (log.entries.len(), log.after, log.first)
    }

    #[test]
    fn a_log_is_bounded_by_its_events_and_their_bytes() {
        let size = |events, bytes| Size { events, bytes };
        let (all, long) = (size(100, 1 << 20), Duration::from_secs(3600));
        assert_eq!(left(all, size(0, 0), long), (10, 0, 0), "fresh ones stay");
        assert_eq!(left(size(4, 1 << 20), size(0, 0), long), (4, 6, 6));
        assert_eq!(left(size(100, 3500), size(0, 0), long), (3, 7, 7));
        assert_eq!(left(size(100, 10), size(0, 0), long), (1, 9, 9), "the newest stays");
        let old = Duration::ZERO;
        assert_eq!(left(all, all, old), (10, 0, 0));
        assert_eq!(left(all, size(5, 1 << 20), old), (5, 5, 5));
        assert_eq!(left(all, size(100, 2500), old), (2, 8, 8));
    }
}

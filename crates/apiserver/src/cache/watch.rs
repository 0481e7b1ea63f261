//! One client's watch: what was there, then what changes, as its selectors see it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_meta::selector::{FieldSelector, LabelSelector};
use ferry_store::Revision;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::time::Instant;

use super::log::{self, Channel, Found, FrameKind, LogEntry, Topic};
use super::object::CachedObject;
use super::resource::{ResourceCache, Snapshot, Subscription};

const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before a watch times out, so that the client can go on from there.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(2);
const CHUNK: usize = 64;

/// `resourceVersion` of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// Whatever the cache has, as ADDED events first.
    Zero,
    /// The newest state, as ADDED events first.
    #[default]
    Unset,
    After(Revision),
}

#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Empty: all namespaces.
    pub namespace: String,
    /// The one object of a watch on a name; empty otherwise.
    pub name: String,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub from: StartFrom,
    pub send_initial_events: Option<bool>,
    pub allow_bookmarks: bool,
    pub timeout: Option<Duration>,
}

/// One thing a watcher is told.
#[derive(Clone, Debug)]
pub struct WatchFrame {
    pub kind: FrameKind,
    pub revision: Revision,
    /// None in a bookmark.
    pub object: Option<Arc<CachedObject>>,
    /// The bookmark that ends the initial events.
    pub initial_events_end: bool,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Log(Arc<LogEntry>),
    Snapshot,
    Bookmark,
}

impl WatchFrame {
    /// The line of a JSON watch in the storage version; shared by all who get the same event. None for a bookmark.
    pub fn line(&self) -> Option<Bytes> {
        let object = self.object.as_ref()?;
        Some(match &self.source {
            Source::Log(entry) => entry.line(self.kind, object),
            Source::Snapshot | Source::Bookmark => log::line(self.kind, object),
        })
    }

    /// What the object was before this change.
    pub(crate) fn previous(&self) -> Option<&Arc<CachedObject>> {
        match &self.source {
            Source::Log(entry) => entry.previous.as_ref(),
            Source::Snapshot | Source::Bookmark => None,
        }
    }

    /// The same change for a watcher who saw the object before it, and sees it now, or not.
    pub(crate) fn seen_as(mut self, before: bool, now: bool) -> Option<Self> {
        match (before, now) {
            (false, true) => self.kind = FrameKind::Added,
            (true, true) => self.kind = FrameKind::Modified,
            (true, false) if self.kind == FrameKind::Deleted => {}
            (true, false) => {
                let Source::Log(entry) = &self.source else { return None };
                self.object = Some(entry.departed()?);
                self.kind = FrameKind::Deleted;
            }
            (false, false) => return None,
        }
        Some(self)
    }
}

/// Ends at the timeout, when the watcher is too slow, and when the resource is no longer served.
pub type Frames = BoxStream<'static, WatchFrame>;

struct Selection {
    prefix: String,
    name: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    fn holds(&self, object: &CachedObject) -> bool {
        object.key.starts_with(&self.prefix)
            && (self.name.is_empty() || object.name() == self.name)
            && object.matches(&self.labels, &self.fields)
    }
}

struct Watcher {
    resource: Arc<ResourceCache>,
    selection: Selection,
    channel: Arc<Channel>,
    cursor: u64,
    /// Objects still to be sent, and the last key that was.
    initial: Option<(Snapshot, Option<Arc<str>>)>,
    /// Sent once the initial objects are.
    initial_bookmark: Option<Revision>,
    pending: VecDeque<Arc<LogEntry>>,
    /// Only events behind it are wanted; it may lie in the future.
    after: Revision,
    /// The newest revision the client was told.
    sent: Revision,
    bookmark_at: Option<Instant>,
    deadline: Option<Instant>,
}

/// The narrowest topic that holds all the watch may see.
fn topic(options: &WatchOptions) -> Topic {
    let name = if options.name.is_empty() {
        options.fields.required("metadata.name").unwrap_or_default()
    } else {
        &options.name
    };
    let namespace = if options.namespace.is_empty() {
        options.fields.required("metadata.namespace").unwrap_or_default()
    } else {
        &options.namespace
    };
    match (namespace, name, options.fields.required("spec.nodeName")) {
        ("", "", Some(node)) if !node.is_empty() => Topic::Node(node.into()),
        ("", "", _) => Topic::Everything,
        ("", name, _) => Topic::Name(name.into()),
        (namespace, "", _) => Topic::Namespace(namespace.into()),
        (namespace, name, _) => Topic::Object(namespace.into(), name.into()),
    }
}

impl ResourceCache {
    /// Opens a watch; the caller has waited for the revision it needs. The error is the oldest revision there is.
    pub(super) fn open(self: &Arc<Self>, options: WatchOptions) -> Result<Frames, Revision> {
        let initial = match (options.from, options.send_initial_events) {
            (_, Some(send)) => send,
            (StartFrom::Zero | StartFrom::Unset, None) => true,
            (StartFrom::After(_), None) => false,
        };
        let after = match options.from {
            StartFrom::After(revision) if !initial => Some(revision),
            _ => None,
        };
        let topic = topic(&options);
        let Subscription { snapshot, channel, cursor, past } = self.subscribe(&topic, after)?;
        let wants_end = options.send_initial_events == Some(true) && options.allow_bookmarks;
        let now = Instant::now();
        let deadline = options.timeout.map(|timeout| now + timeout);
        let selection = Selection {
            prefix: match &topic {
                Topic::Object(namespace, name) => self.registration.key(namespace, name),
                Topic::Namespace(namespace) => self.registration.prefix(namespace),
                _ => self.registration.root.clone(),
            },
            name: options.name,
            labels: options.labels,
            fields: options.fields,
        };
        let watcher = Watcher {
            resource: self.clone(),
            channel,
            cursor,
            initial_bookmark: wants_end.then_some(snapshot.revision),
            after: after.unwrap_or(0),
            sent: 0,
            initial: initial.then_some((snapshot, None)),
            selection,
            pending: past.into(),
            bookmark_at: options.allow_bookmarks.then(|| next_bookmark(now, deadline)),
            deadline,
        };
        let frames = stream::unfold(watcher, |mut watcher| async move { Some((watcher.next().await?, watcher)) });
        // Who looks ahead may find the end, and finds it again when it comes there.
        Ok(frames.fuse().boxed())
    }
}

fn next_bookmark(now: Instant, deadline: Option<Instant>) -> Instant {
    let regular = now + BOOKMARK_INTERVAL;
    match deadline.and_then(|deadline| deadline.checked_sub(BEFORE_TIMEOUT)) {
        Some(last) if last > now && last < regular => last,
        _ => regular,
    }
}

impl Watcher {
    async fn next(&mut self) -> Option<WatchFrame> {
        if let Some(frame) = self.next_initial() {
            return Some(frame);
        }
        if let Some(revision) = self.initial_bookmark.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            while let Some(entry) = self.pending.pop_front() {
                if let Some(frame) = self.judge(entry) {
                    return Some(frame);
                }
            }
            let channel = self.channel.clone();
            let mut notified = std::pin::pin!(channel.notify.notified());
            // Armed before the log is read: what comes in between wakes it.
            notified.as_mut().enable();
            let newest = self.resource.hub_revision();
            match self.channel.read(self.cursor, CHUNK) {
                Found::Gone => return None,
                Found::Entries(entries) => {
                    self.cursor += entries.len() as u64;
                    self.pending.extend(entries);
                    continue;
                }
                Found::Nothing => {}
            }
            let now = Instant::now();
            if self.bookmark_at.is_some_and(|at| at <= now) {
                if newest < self.sent {
                    // The hub is in the middle of the revision that was sent last.
                    tokio::task::yield_now().await;
                    continue;
                }
                // The log was read to its end after `newest` was: nothing at or below it is missing.
                self.bookmark_at = Some(next_bookmark(now, self.deadline));
                self.channel.trim();
                return Some(self.bookmark(newest.max(self.after), false));
            }
            if self.deadline.is_some_and(|at| at <= now) {
                return None;
            }
            match [self.bookmark_at, self.deadline].into_iter().flatten().min() {
                None => notified.await,
                Some(at) => drop(tokio::time::timeout_at(at, notified).await),
            }
        }
    }

    fn next_initial(&mut self) -> Option<WatchFrame> {
        let (snapshot, last) = self.initial.as_mut()?;
        let found = {
            let mut rest = snapshot.range_of(self.selection.prefix.clone(), last.as_deref());
            rest.find(|object| self.selection.holds(object)).cloned()
        };
        match found {
            Some(object) => {
                *last = Some(object.key.clone());
                Some(WatchFrame {
                    kind: FrameKind::Added,
                    revision: object.revision,
                    object: Some(object),
                    initial_events_end: false,
                    source: Source::Snapshot,
                })
            }
            None => {
                self.initial = None;
                None
            }
        }
    }

    /// A change as the selectors see it: entering is ADDED, leaving is DELETED with what was seen last.
    fn judge(&mut self, entry: Arc<LogEntry>) -> Option<WatchFrame> {
        if entry.revision <= self.after {
            return None;
        }
        let now = entry.object.as_ref().filter(|object| self.selection.holds(object));
        let before = entry.previous.as_ref().filter(|object| self.selection.holds(object));
        let (kind, object) = match (before, now) {
            (None, Some(object)) => (FrameKind::Added, object.clone()),
            (Some(_), Some(object)) => (FrameKind::Modified, object.clone()),
            (Some(_), None) => (FrameKind::Deleted, entry.departed()?),
            (None, None) => return None,
        };
        self.sent = entry.revision;
        Some(WatchFrame {
            kind,
            revision: entry.revision,
            object: Some(object),
            initial_events_end: false,
            source: Source::Log(entry),
        })
    }

    fn bookmark(&mut self, revision: Revision, initial_events_end: bool) -> WatchFrame {
        self.sent = self.sent.max(revision);
        WatchFrame { kind: FrameKind::Bookmark, revision, object: None, initial_events_end, source: Source::Bookmark }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_come_regularly_and_before_the_end() {
        let opened = Instant::now();
        let seconds = Duration::from_secs;
        for (now, timeout, expected) in [
            (0, None, 60),
            (0, Some(300), 60),
            (0, Some(30), 28),
            (60, Some(90), 88),
            (88, Some(90), 148),
            (0, Some(1), 60),
        ] {
            let deadline = timeout.map(|timeout| opened + seconds(timeout));
            assert_eq!(next_bookmark(opened + seconds(now), deadline), opened + seconds(expected), "{now} {timeout:?}");
        }
    }
}

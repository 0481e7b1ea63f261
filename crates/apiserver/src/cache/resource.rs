//! The cache of one resource: an ordered map of its objects and the log of their changes.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use ferry_store::{Entry, Event, EventKind, Revision};
use imbl::OrdMap;
use parking_lot::{RwLock, RwLockWriteGuard};

use super::log::{Channel, LogEntry, Topic, Woken};
use super::object::CachedObject;
use super::registration::Registration;
use super::revision_waiters::RevisionWaiters;

pub(super) type Objects = OrdMap<Arc<str>, Arc<CachedObject>>;

pub struct ResourceCache {
    pub registration: Arc<Registration>,
    inner: RwLock<Inner>,
    /// How far the hub has come, all resources together.
    hub: Arc<RevisionWaiters>,
    loaded: tokio::sync::watch::Sender<bool>,
}

struct Inner {
    objects: Objects,
    /// The revision of the newest change to this resource.
    newest: Revision,
    /// What the objects were loaded at: changes up to it are in them.
    loaded: Revision,
    history: Arc<Channel>,
    topics: HashMap<Topic, Weak<Channel>>,
    /// Events that came while the objects were being loaded.
    loading: Option<Vec<(Revision, Event)>>,
}

/// The objects at one revision. Cheap to take and to keep.
#[derive(Clone)]
pub struct Snapshot {
    pub revision: Revision,
    objects: Objects,
    registration: Arc<Registration>,
}

/// An object before and after a change; None where there was none.
pub(crate) struct Change {
    pub(crate) before: Option<Arc<CachedObject>>,
    pub(crate) after: Option<Arc<CachedObject>>,
}

/// A place in the log, taken together with the objects before it.
pub(super) struct Subscription {
    pub(super) snapshot: Snapshot,
    pub(super) channel: Arc<Channel>,
    pub(super) cursor: u64,
    /// Events of the topic's past that were asked for.
    pub(super) past: Vec<Arc<LogEntry>>,
}

impl ResourceCache {
    pub(super) fn new(registration: Registration, hub: Arc<RevisionWaiters>) -> Self {
        let inner = Inner {
            objects: Objects::new(),
            newest: 0,
            loaded: 0,
            history: Arc::new(Channel::new(0)),
            topics: HashMap::new(),
            loading: Some(Vec::new()),
        };
        Self {
            registration: Arc::new(registration),
            inner: RwLock::new(inner),
            hub,
            loaded: tokio::sync::watch::Sender::new(false),
        }
    }

    fn ingest(&self, entry: &Entry) -> Option<Arc<CachedObject>> {
        let read =
            CachedObject::ingest(&self.registration, entry.key.clone(), &entry.value, entry.created, entry.modified);
        match read {
            Ok(object) => Some(Arc::new(object)),
            Err(error) => {
                tracing::error!(key = &*entry.key, "a stored object cannot be read and is not served: {error}");
                None
            }
        }
    }

    /// Starts over from the whole state at a revision. Watchers of the old state end: they cannot be told what they missed.
    pub(super) fn load(&self, revision: Revision, entries: &[Entry]) {
        let objects = self.objects_of(entries);
        self.start_over(self.inner.write(), revision, objects);
    }

    /// The same for a resource that is new. The hub may have loaded it meanwhile: it goes on from there, so that what was
    /// read here must not take the place of something newer.
    pub(super) fn load_new(&self, revision: Revision, entries: &[Entry]) {
        let objects = self.objects_of(entries);
        let inner = self.inner.write();
        if inner.loading.is_some() {
            self.start_over(inner, revision, objects);
        }
    }

    fn objects_of(&self, entries: &[Entry]) -> Objects {
        entries.iter().filter_map(|entry| Some((entry.key.clone(), self.ingest(entry)?))).collect()
    }

    fn start_over(&self, mut inner: RwLockWriteGuard<'_, Inner>, revision: Revision, objects: Objects) {
        inner.newest = objects.values().map(|object| object.revision).max().unwrap_or(0).max(inner.newest);
        inner.objects = objects;
        inner.loaded = revision;
        let history = Arc::new(Channel::new(revision));
        std::mem::replace(&mut inner.history, history).close();
        for (_, channel) in inner.topics.drain() {
            if let Some(channel) = channel.upgrade() {
                channel.close();
            }
        }
        for (at, event) in inner.loading.take().unwrap_or_default() {
            let object = self.read(&event);
            inner.apply(at, &[&event], vec![object], &mut Woken::default());
        }
        drop(inner);
        self.loaded.send_replace(true);
    }

    fn read(&self, event: &Event) -> Option<Arc<CachedObject>> {
        if event.kind == EventKind::Delete { None } else { self.ingest(&event.entry) }
    }

    /// Ends every watch: the resource is no longer served.
    pub(super) fn close(&self) {
        let inner = self.inner.read();
        inner.history.close();
        inner.topics.values().filter_map(Weak::upgrade).for_each(|channel| channel.close());
    }

    /// All of a revision's events of this resource, in one step. `woken` gets who is to be told.
    pub(super) fn apply(&self, revision: Revision, events: &[&Event], woken: &mut Woken) {
        // Read before the lock is taken: nobody waits for parsing.
        let objects = events.iter().map(|event| self.read(event)).collect();
        let mut inner = self.inner.write();
        if let Some(missed) = &mut inner.loading {
            missed.extend(events.iter().map(|event| (revision, (*event).clone())));
            return;
        }
        inner.apply(revision, events, objects, woken);
    }

    /// Returns once the objects were read from the store.
    pub async fn loaded(&self) {
        // The sender lives in `self`, so the wait ends with the objects.
        let _ = self.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// The objects as far as the hub has come.
    pub fn snapshot(&self) -> Snapshot {
        // In this order: the map may be ahead of the hub's number, never behind.
        let revision = self.hub.newest();
        let inner = self.inner.read();
        self.snapshot_of(&inner, revision)
    }

    fn snapshot_of(&self, inner: &Inner, hub: Revision) -> Snapshot {
        Snapshot {
            revision: hub.max(inner.newest),
            objects: inner.objects.clone(),
            registration: self.registration.clone(),
        }
    }

    /// The objects as they were; None where the log no longer reaches back, or not yet forward.
    pub fn snapshot_at(&self, revision: Revision) -> Option<Snapshot> {
        let mut snapshot = {
            let now = self.hub.newest();
            let inner = self.inner.read();
            let snapshot = self.snapshot_of(&inner, now);
            if revision > snapshot.revision || revision < inner.history.after() {
                return None;
            }
            (snapshot, inner.history.since(revision))
        };
        for entry in snapshot.1.iter().rev() {
            match (&entry.previous, &entry.object) {
                (Some(previous), _) => drop(snapshot.0.objects.insert(previous.key.clone(), previous.clone())),
                (None, Some(object)) => drop(snapshot.0.objects.remove(&object.key)),
                (None, None) => {}
            }
        }
        snapshot.0.revision = revision;
        Some(snapshot.0)
    }

    /// Objects that were read from the store's history.
    pub fn snapshot_of_entries(&self, revision: Revision, entries: &[Entry]) -> Snapshot {
        let objects = entries.iter().filter_map(|entry| self.ingest(entry)).map(|o| (o.key.clone(), o)).collect();
        Snapshot { revision, objects, registration: self.registration.clone() }
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        self.inner.read().objects.get(&*self.registration.key(namespace, name)).cloned()
    }

    /// Changes whenever an object does.
    pub fn newest(&self) -> Revision {
        self.inner.read().newest
    }

    /// The oldest revision a watch can go on from.
    pub fn oldest(&self) -> Revision {
        self.inner.read().history.after()
    }

    /// An object before and after the change of a revision, while the log still has it; `key` is its place in the store.
    pub(crate) fn change(&self, revision: Revision, key: &str) -> Option<Change> {
        let history = self.inner.read().history.clone();
        let entry = history.at(revision, key)?;
        Some(Change { before: entry.previous.clone(), after: entry.object.clone() })
    }

    pub(super) fn hub_revision(&self) -> Revision {
        self.hub.newest()
    }

    /// A snapshot and the place in the log that follows it. `after` asks for the past since then as well; the error is
    /// the oldest revision there is.
    pub(super) fn subscribe(&self, topic: &Topic, after: Option<Revision>) -> Result<Subscription, Revision> {
        let hub = self.hub_revision();
        let mut inner = self.inner.write();
        let past = match after {
            None => Vec::new(),
            Some(after) if after < inner.history.after() => return Err(inner.history.after()),
            Some(after) => {
                let mut past = inner.history.since(after);
                past.retain(|entry| entry.topics(&self.registration).contains(topic));
                past
            }
        };
        let channel = if *topic == Topic::Everything { inner.history.clone() } else { inner.topic(topic) };
        let cursor = channel.end();
        Ok(Subscription { snapshot: self.snapshot_of(&inner, hub), channel, cursor, past })
    }
}

impl Inner {
    fn apply(
        &mut self,
        revision: Revision,
        events: &[&Event],
        objects: Vec<Option<Arc<CachedObject>>>,
        woken: &mut Woken,
    ) {
        if revision <= self.loaded {
            return;
        }
        let mut entries = Vec::with_capacity(events.len());
        for (event, object) in events.iter().zip(objects) {
            let previous = match &object {
                Some(object) => self.objects.insert(event.entry.key.clone(), object.clone()),
                None => self.objects.remove(&event.entry.key),
            };
            if object.is_some() || previous.is_some() {
                entries.push(Arc::new(LogEntry::new(revision, object, previous)));
            }
        }
        self.newest = revision;
        self.publish(&entries, woken);
    }

    fn topic(&mut self, topic: &Topic) -> Arc<Channel> {
        if let Some(channel) = self.topics.get(topic).and_then(Weak::upgrade) {
            return channel;
        }
        // Topics nobody watches any more go when new ones come.
        if self.topics.len().is_power_of_two() {
            self.topics.retain(|_, channel| channel.strong_count() > 0);
        }
        let channel = Arc::new(Channel::new(0));
        self.topics.insert(topic.clone(), Arc::downgrade(&channel));
        channel
    }

    fn publish(&self, entries: &[Arc<LogEntry>], woken: &mut Woken) {
        self.history.push(entries);
        woken.add(&self.history);
        if self.topics.is_empty() {
            return;
        }
        for entry in entries {
            let Some(registration) = entry.registration() else { continue };
            for topic in entry.topics(registration) {
                if let Some(channel) = self.topics.get(&topic).and_then(Weak::upgrade) {
                    channel.push(std::slice::from_ref(entry));
                    woken.add(&channel);
                }
            }
        }
    }
}

impl LogEntry {
    fn registration(&self) -> Option<&Registration> {
        self.object.as_ref().or(self.previous.as_ref()).map(|object| object.registration())
    }

    /// Every topic this change belongs to: by what the object is, and by what it was.
    fn topics(&self, registration: &Registration) -> Vec<Topic> {
        let mut topics = vec![Topic::Everything];
        let by_node = registration.fields.iter().position(|field| field == "spec.nodeName");
        for object in [&self.object, &self.previous].into_iter().flatten() {
            if topics.len() == 1 {
                let (namespace, name) = (object.namespace(), object.name());
                topics.push(Topic::Namespace(namespace.into()));
                topics.push(Topic::Object(namespace.into(), name.into()));
                topics.push(Topic::Name(name.into()));
            }
            if let Some(node) = by_node.and_then(|at| object.fields.get(at)) {
                let topic = Topic::Node(node.clone());
                if !topics.contains(&topic) {
                    topics.push(topic);
                }
            }
        }
        topics
    }
}

impl Snapshot {
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<CachedObject>> {
        self.objects.get(&*self.registration.key(namespace, name))
    }

    /// Objects of a namespace (the empty one: of all) in key order, behind `after` where it is given.
    pub fn range<'a>(
        &'a self,
        namespace: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        self.range_of(self.registration.prefix(namespace), after)
    }

    pub(super) fn range_of<'a>(
        &'a self,
        prefix: String,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        let start = match after {
            Some(after) if after >= prefix.as_str() => Bound::Excluded(after.to_owned()),
            _ => Bound::Included(prefix.clone()),
        };
        let bounds = (start.as_ref().map(String::as_str), Bound::Unbounded);
        self.objects
            .range::<(Bound<&str>, Bound<&str>), str>(bounds)
            .map(|(_, object)| object)
            .take_while(move |object| object.key.starts_with(&prefix))
    }

    /// Of all namespaces.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

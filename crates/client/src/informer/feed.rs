//! From what the watch says to the cache, and from there to those who listen.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use ferry_tasks::Tasks;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::cache::{Cache, Held, Object, key_of};
use super::reflect::{self, Source};
use super::subscription::Mailbox;
use super::{Change, Handler, Listeners, Shared, managed_fields};

pub(super) type Decoder = Arc<dyn Fn(&[u8]) -> Result<Held, serde_json::Error> + Send + Sync>;

/// Decodes what the watch says and tells the cache.
pub(super) struct Feed {
    shared: Arc<Shared>,
    decoder: Decoder,
    /// What came of a list that is not complete yet.
    listed: Vec<Held>,
    scratch: Vec<u8>,
}

impl Feed {
    pub(super) fn new(shared: Arc<Shared>, decoder: Decoder) -> Self {
        Self { shared, decoder, listed: Vec::new(), scratch: Vec::new() }
    }

    fn decode(&mut self, object: &str) -> Result<Held, serde_json::Error> {
        (self.decoder)(managed_fields::strip(object.as_bytes(), &mut self.scratch))
    }

    /// An object of a list that is under way.
    pub(super) fn list(&mut self, object: &str) -> Result<(), serde_json::Error> {
        let object = self.decode(object)?;
        self.listed.push(object);
        Ok(())
    }

    /// An object of that list is gone again.
    pub(super) fn unlist(&mut self, object: &str) -> Result<(), serde_json::Error> {
        let gone = key_of(&*self.decode(object)?);
        self.listed.retain(|known| key_of(&**known) != gone);
        Ok(())
    }

    /// The objects since the last call are all there are.
    pub(super) fn listed(&mut self) {
        self.shared.replace(std::mem::take(&mut self.listed));
    }

    /// Forgets a list that was interrupted.
    pub(super) fn interrupted(&mut self) {
        self.listed = Vec::new();
    }

    /// Returns the object's revision.
    pub(super) fn apply(&mut self, object: &str) -> Result<Option<String>, serde_json::Error> {
        let object = self.decode(object)?;
        let version = object.object_meta().resource_version.clone();
        self.shared.apply(object);
        Ok(version)
    }

    pub(super) fn remove(&mut self, object: &str) -> Result<Option<String>, serde_json::Error> {
        let object = self.decode(object)?;
        let version = object.object_meta().resource_version.clone();
        self.shared.remove(object);
        Ok(version)
    }
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            cache: RwLock::new(Cache::new()),
            listeners: Mutex::new(Listeners { handlers: Vec::new(), mailboxes: Vec::new() }),
            synced: watch::Sender::new(false),
        }
    }

    /// Keeps the cache equal to what the source says.
    pub(super) fn follow(self: &Arc<Self>, tasks: &Tasks, source: Source, decoder: Decoder) {
        let shared = self.clone();
        tasks.spawn_critical("informer", move || {
            reflect::run(source.clone(), Feed::new(shared.clone(), decoder.clone()))
        });
    }

    pub(super) async fn synced(&self) {
        let mut receiver = self.synced.subscribe();
        // The sender lives in `self`, so that this cannot fail while we hold it.
        let _ = receiver.wait_for(|synced| *synced).await;
    }

    pub(super) fn apply(&self, object: Held) {
        let mut listeners = self.listeners.lock();
        let changes = self.cache.write().apply(object);
        listeners.tell(changes);
    }

    pub(super) fn remove(&self, object: Held) {
        let mut listeners = self.listeners.lock();
        let change = self.cache.write().remove(object);
        listeners.tell(change);
    }

    /// Makes the cache equal to a complete list.
    pub(super) fn replace(&self, objects: Vec<Held>) {
        let mut listeners = self.listeners.lock();
        let changes = self.cache.write().replace(objects);
        listeners.tell(changes);
        drop(listeners);
        self.synced.send_replace(true);
    }

    /// Tells the handler of all there is, and from now on of every change.
    pub(super) fn add_handler(&self, handler: Handler) {
        let mut listeners = self.listeners.lock();
        let known = self.cache.read().list();
        for object in known {
            handler(&Change::Added(object));
        }
        listeners.handlers.push(handler);
    }

    pub(super) fn add_mailbox(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new());
        let mut listeners = self.listeners.lock();
        for object in self.cache.read().list() {
            mailbox.put(&Change::Added(object));
        }
        listeners.mailboxes.push(Arc::downgrade(&mailbox));
        mailbox
    }
}

impl Listeners {
    fn tell(&mut self, changes: impl IntoIterator<Item = Change<dyn Object>>) {
        for change in changes {
            for handler in &self.handlers {
                // A panic is a bug of one handler with one object: all others must hear of it, and of the next ones.
                if std::panic::catch_unwind(AssertUnwindSafe(|| handler(&change))).is_err() {
                    let meta = change.object().object_meta();
                    tracing::error!(namespace = meta.namespace, name = meta.name, "a handler of changes panicked");
                }
            }
            self.mailboxes.retain(|mailbox| mailbox.upgrade().map(|mailbox| mailbox.put(&change)).is_some());
        }
    }
}

//! Shared informers: one watch and one typed cache per kind.

mod cache;
mod factory;
mod lean;
mod reflect;
mod subscription;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use ferry_tasks::Tasks;
use kube::{Api, Client, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub use cache::Index;
use cache::{Cache, IndexFunction};
pub use factory::Informers;
use subscription::Mailbox;
pub use subscription::Subscription;

use crate::key::ObjectKey;

/// What an informer can hold. Every k8s-openapi kind is one, and so are `DynamicObject` and `PartialObjectMeta`.
pub trait Cached: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static {}

impl<K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static> Cached for K {}

/// Which objects of a kind an informer holds: all of them unless selectors are given.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    labels: Option<String>,
    fields: Option<String>,
}

impl Selection {
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), fields: None }
    }

    pub fn fields(selector: impl Into<String>) -> Self {
        Self { labels: None, fields: Some(selector.into()) }
    }
}

/// What happened to one object. An object that was replaced by another of the same name is Deleted, then Added.
#[derive(Debug)]
pub enum Change<K> {
    Added(Arc<K>),
    Modified { old: Arc<K>, new: Arc<K> },
    Deleted(Arc<K>),
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(new) => Self::Added(new.clone()),
            Self::Modified { old, new } => Self::Modified { old: old.clone(), new: new.clone() },
            Self::Deleted(old) => Self::Deleted(old.clone()),
        }
    }
}

impl<K> Change<K> {
    /// The newest state known of the object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(object) | Self::Modified { new: object, .. } | Self::Deleted(object) => object,
        }
    }

    /// The state before, where there was one.
    pub fn old(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(_) => None,
            Self::Modified { old, .. } | Self::Deleted(old) => Some(old),
        }
    }
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Those who are told of changes. Held locked while the cache changes, so that a newcomer sees each change once.
struct Listeners<K> {
    handlers: Vec<Handler<K>>,
    mailboxes: Vec<std::sync::Weak<Mailbox<K>>>,
}

pub(crate) struct Shared<K> {
    cache: RwLock<Cache<K>>,
    listeners: Mutex<Listeners<K>>,
    synced: watch::Sender<bool>,
}

/// A cache of all objects of one kind (or of those a selector picks), kept current by one watch. Clones share it.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Cached> Informer<K> {
    /// An informer with a watch of its own over all namespaces; `selection` may narrow it.
    pub fn with(client: Client, tasks: &Tasks, selection: Selection) -> Self
    where
        K::DynamicType: Default,
    {
        Self::over(Api::all(client), tasks, selection)
    }

    /// An informer over exactly what `api` lists.
    pub fn over(api: Api<K>, tasks: &Tasks, selection: Selection) -> Self {
        Self::trimmed(api, tasks, selection, |_| {})
    }

    /// An informer that keeps only what `trim` leaves of each object.
    pub fn trimmed(api: Api<K>, tasks: &Tasks, selection: Selection, trim: fn(&mut K)) -> Self {
        let informer = Self::detached();
        let path = api.resource_url().to_owned();
        let (client, shared) = (api.into_client(), informer.shared.clone());
        tasks.spawn_restarted("informer", move || {
            let source = reflect::Source { client: client.clone(), path: path.clone(), selection: selection.clone() };
            let typed = Typed { shared: shared.clone(), trim, listed: Vec::new(), scratch: Vec::new() };
            reflect::run(source, Box::new(typed))
        });
        informer
    }

    /// An informer without a watch, filled by [`Informer::apply`] and [`Informer::remove`]: for tests and for
    /// sources other than the API server.
    pub fn detached() -> Self {
        let shared = Arc::new(Shared {
            cache: RwLock::new(Cache::new()),
            listeners: Mutex::new(Listeners { handlers: Vec::new(), mailboxes: Vec::new() }),
            synced: watch::Sender::new(false),
        });
        Self { shared }
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.shared.cache.read().get(&ObjectKey::new(namespace, name))
    }

    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.shared.cache.read().get(key)
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.cache.read().list()
    }

    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.cache.read().list_in(namespace)
    }

    pub fn len(&self) -> usize {
        self.shared.cache.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of that name; `values` computes under which values an object is found. A second call with the same
    /// name gives the same index, whatever its function.
    pub fn index<F>(&self, name: &'static str, values: F) -> Index<K>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        let function: IndexFunction<K> = Arc::new(values);
        self.shared.cache.write().add_index(name, function);
        Index::new(name, self.shared.clone())
    }

    /// Objects by the uid of the owner that controls them; objects that nobody controls are under the empty string
    /// followed by their namespace (`/<namespace>`), where those who may adopt look.
    pub fn by_controller(&self) -> Index<K> {
        self.index("controller", |object: &K| match crate::owner::controller_of(object) {
            Some(owner) => vec![owner.uid.clone()],
            None => vec![format!("/{}", object.meta().namespace.as_deref().unwrap_or_default())],
        })
    }

    /// Calls `handler` for every object there is, then for every change, in the informer's own task: it must be
    /// quick (compute keys, add them to a queue), may read any cache, and must not add handlers to this informer.
    pub fn on_change<F>(&self, handler: F)
    where
        F: Fn(&Change<K>) + Send + Sync + 'static,
    {
        let mut listeners = self.shared.listeners.lock();
        for object in self.list() {
            handler(&Change::Added(object));
        }
        listeners.handlers.push(Box::new(handler));
    }

    /// The changes as a stream of its own: existing objects first. What a slow reader missed is merged per object.
    pub fn subscribe(&self) -> Subscription<K> {
        let mailbox = Arc::new(Mailbox::new());
        let mut listeners = self.shared.listeners.lock();
        for object in self.list() {
            mailbox.put(&Change::Added(object));
        }
        listeners.mailboxes.push(Arc::downgrade(&mailbox));
        Subscription::new(mailbox)
    }

    /// Waits until the cache has seen the first complete list.
    pub async fn synced(&self) {
        let mut receiver = self.shared.synced.subscribe();
        // The sender lives in `self.shared`, so that this cannot fail while we hold it.
        let _ = receiver.wait_for(|synced| *synced).await;
    }

    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Puts an object into the cache as if the watch had told of it.
    pub fn apply(&self, object: K) {
        self.shared.apply(object);
    }

    /// Takes an object out of the cache as if the watch had told of it.
    pub fn remove(&self, object: K) {
        self.shared.remove(object);
    }

    /// Declares the first list complete.
    pub fn mark_synced(&self) {
        self.shared.synced.send_replace(true);
    }
}

impl<K: Cached> Shared<K> {
    fn apply(&self, object: K) {
        let mut listeners = self.listeners.lock();
        let changes = self.cache.write().apply(Arc::new(object));
        listeners.tell(changes);
    }

    fn remove(&self, object: K) {
        let mut listeners = self.listeners.lock();
        let change = self.cache.write().remove(Arc::new(object));
        listeners.tell(change);
    }

    /// Makes the cache equal to a complete list.
    fn replace(&self, objects: Vec<K>) {
        let mut listeners = self.listeners.lock();
        let changes = self.cache.write().replace(objects);
        listeners.tell(changes);
        drop(listeners);
        self.synced.send_replace(true);
    }
}

/// Decodes what the watch says and tells the cache.
struct Typed<K> {
    shared: Arc<Shared<K>>,
    trim: fn(&mut K),
    /// What came of a list that is not complete yet.
    listed: Vec<K>,
    scratch: Vec<u8>,
}

impl<K: Cached> Typed<K> {
    fn decode(&mut self, object: &str) -> Result<K, serde_json::Error> {
        let mut object: K = serde_json::from_slice(lean::lean(object.as_bytes(), &mut self.scratch))?;
        object.meta_mut().managed_fields = None;
        (self.trim)(&mut object);
        Ok(object)
    }
}

impl<K: Cached> reflect::Sink for Typed<K> {
    fn list(&mut self, object: &str) -> Result<(), serde_json::Error> {
        let object = self.decode(object)?;
        self.listed.push(object);
        Ok(())
    }

    fn listed(&mut self) {
        self.shared.replace(std::mem::take(&mut self.listed));
    }

    fn interrupted(&mut self) {
        self.listed = Vec::new();
    }

    fn apply(&mut self, object: &str) -> Result<Option<String>, serde_json::Error> {
        let object = self.decode(object)?;
        let version = object.meta().resource_version.clone();
        self.shared.apply(object);
        Ok(version)
    }

    fn remove(&mut self, object: &str) -> Result<Option<String>, serde_json::Error> {
        let object = self.decode(object)?;
        let version = object.meta().resource_version.clone();
        self.shared.remove(object);
        Ok(version)
    }
}

impl<K: Resource> Listeners<K> {
    fn tell(&mut self, changes: impl IntoIterator<Item = Change<K>>) {
        for change in changes {
            for handler in &self.handlers {
                // A panic is a bug of one handler with one object: all others must hear of it, and of the next ones.
                if std::panic::catch_unwind(AssertUnwindSafe(|| handler(&change))).is_err() {
                    let meta = change.object().meta();
                    tracing::error!(namespace = meta.namespace, name = meta.name, "a handler of changes panicked");
                }
            }
            self.mailboxes.retain(|mailbox| mailbox.upgrade().map(|mailbox| mailbox.put(&change)).is_some());
        }
    }
}

#[cfg(test)]
mod tests;

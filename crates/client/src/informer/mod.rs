//! Shared informers: one watch and one typed cache per kind.

mod cache;
mod factory;
mod feed;
mod managed_fields;
mod objects;
mod reflect;
mod subscription;

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::api::Api;
use ferry_tasks::Tasks;
use kube::{Client, Resource};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use cache::{Cache, all_typed, typed};
pub use cache::{Index, Object};
pub use factory::Informers;
use feed::{Decoder, Feed};
pub use objects::Objects;
use subscription::Mailbox;
pub use subscription::Subscription;

use crate::codec::Wire;
use crate::key::ObjectKey;

/// What an informer can hold.
pub trait Cached: Resource + Wire + Send + Sync + 'static {}

impl<K: Resource + Wire + Send + Sync + 'static> Cached for K {}

/// A part of a kind, for those who hold very many objects and need little of each.
pub trait Projection: Cached {
    type Whole: Cached;

    fn of(whole: &Self::Whole) -> Self;
}

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
pub enum Change<K: ?Sized> {
    Added(Arc<K>),
    Modified { old: Arc<K>, new: Arc<K> },
    Deleted(Arc<K>),
}

impl<K: ?Sized> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(new) => Self::Added(new.clone()),
            Self::Modified { old, new } => Self::Modified { old: old.clone(), new: new.clone() },
            Self::Deleted(old) => Self::Deleted(old.clone()),
        }
    }
}

impl<K: ?Sized> Change<K> {
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

impl Change<dyn Object> {
    fn typed<K: Cached>(self) -> Option<Change<K>> {
        Some(match self {
            Self::Added(new) => Change::Added(typed(new)?),
            Self::Modified { old, new } => Change::Modified { old: typed(old)?, new: typed(new)? },
            Self::Deleted(old) => Change::Deleted(typed(old)?),
        })
    }
}

type Handler = Box<dyn Fn(&Change<dyn Object>) + Send + Sync>;

/// Those who are told of changes. Held locked while the cache changes, so that a newcomer sees each change once.
struct Listeners {
    handlers: Vec<Handler>,
    mailboxes: Vec<std::sync::Weak<Mailbox>>,
}

pub(crate) struct Shared {
    cache: RwLock<Cache>,
    listeners: Mutex<Listeners>,
    synced: watch::Sender<bool>,
}

/// A cache of all objects of one kind (or of those a selector picks), kept current by one watch. Clones share it.
pub struct Informer<K> {
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), kind: PhantomData }
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
        let source = reflect::Source { path: api.resource_url().to_owned(), client: api.into_client(), selection };
        informer.shared.follow(tasks, source, decoder(trim));
        informer
    }

    /// An informer without a watch, filled by [`Informer::apply`] and [`Informer::remove`]: for tests and for
    /// sources other than the API server.
    pub fn detached() -> Self {
        Self { shared: Arc::new(Shared::new()), kind: PhantomData }
    }

    /// The same informer for those who do not mind the kind.
    pub fn objects(&self) -> Objects {
        Objects::new(self.shared.clone())
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get_key(&ObjectKey::new(namespace, name))
    }

    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.shared.cache.read().get(key).and_then(typed)
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        all_typed(self.shared.cache.read().list())
    }

    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        all_typed(self.shared.cache.read().list_in(namespace))
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
        let function = move |object: &dyn Object| {
            let object: &dyn Any = object;
            object.downcast_ref::<K>().map(&values).unwrap_or_default()
        };
        self.shared.cache.write().add_index(name, Box::new(function));
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
        let handler = move |change: &Change<dyn Object>| {
            if let Some(change) = change.clone().typed() {
                handler(&change);
            }
        };
        self.shared.add_handler(Box::new(handler));
    }

    /// The changes as a stream of its own: existing objects first. What a slow reader missed is merged per object.
    pub fn subscribe(&self) -> Subscription<K> {
        Subscription::new(self.shared.add_mailbox())
    }

    /// Waits until the cache has seen the first complete list.
    pub async fn synced(&self) {
        self.shared.synced().await;
    }

    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Puts an object into the cache as if the watch had told of it.
    pub fn apply(&self, object: K) {
        self.shared.apply(Arc::new(object));
    }

    /// Takes an object out of the cache as if the watch had told of it.
    pub fn remove(&self, object: K) {
        self.shared.remove(Arc::new(object));
    }

    /// Declares the first list complete.
    pub fn mark_synced(&self) {
        self.shared.synced.send_replace(true);
    }
}

/// Waits until the object of that name, or that there is none, is as wanted, and gives it. Errors are tried again for
/// ever: the caller limits the time.
pub async fn until<K, F>(api: Api<K>, name: &str, wanted: F) -> Option<Arc<K>>
where
    K: Cached,
    F: Fn(Option<&K>) -> bool,
{
    let informer = Informer::<K>::detached();
    let path = api.resource_url().to_owned();
    let selection = Selection::fields(format!("metadata.name={name}"));
    let source = reflect::Source { client: api.into_client(), path, selection };
    let feed = reflect::run(source, Feed::new(informer.shared.clone(), decoder::<K>(|_| {})));
    let seen = async {
        informer.synced().await;
        let mut changes = informer.subscribe();
        loop {
            let object = informer.list().pop();
            if wanted(object.as_deref()) {
                return object;
            }
            changes.next().await;
        }
    };
    tokio::select! {
        () = feed => None,
        object = seen => object,
    }
}

fn decoder<K: Cached>(trim: fn(&mut K)) -> Decoder {
    Arc::new(move |json| {
        let mut object = K::decode(json)?;
        object.meta_mut().managed_fields = None;
        trim(&mut object);
        Ok(Arc::new(object))
    })
}

#[cfg(test)]
mod tests;

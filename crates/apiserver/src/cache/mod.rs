//! The watch cache: one watch of the whole store feeds one cache per resource.
//!
//! `Cache` is the hub. It routes each change to its resource and then advances one global revision that readers can wait
//! for, so that a read of the newest state asks the store for its revision alone.

mod hub;
mod log;
mod object;
mod reader;
mod registration;
mod resource;
mod revision_waiters;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::GroupResource;
use ferry_store::{Range, Revision, Store, StoreError};
use ferry_tasks::Tasks;
use futures::future::BoxFuture;
use parking_lot::RwLock;

pub use self::log::FrameKind;
pub use self::object::CachedObject;
pub use self::registration::Registration;
pub use self::resource::{ResourceCache, Snapshot};
use self::revision_waiters::RevisionWaiters;
pub use self::watch::{Frames, StartFrom, WatchFrame, WatchOptions};

/// How long a read waits for a revision that has not come yet, as upstream.
pub const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, thiserror::Error)]
pub enum CacheError {
    /// The log no longer reaches back to where the watch wants to go on.
    #[error("too old resource version: {requested} ({oldest})")]
    Expired { requested: Revision, oldest: Revision },
    /// It did not come within the patience of a read.
    #[error("Too large resource version: {requested}, current: {newest}")]
    TooLarge { requested: Revision, newest: Revision },
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub struct Cache {
    store: Arc<dyn Store>,
    routes: RwLock<Routes>,
    revision: Arc<RevisionWaiters>,
}

#[derive(Default)]
struct Routes {
    /// By storage prefix.
    by_prefix: HashMap<String, Arc<ResourceCache>>,
    by_resource: HashMap<GroupResource, Arc<ResourceCache>>,
}

impl Routes {
    fn add(&mut self, resource: Arc<ResourceCache>) {
        let registration = resource.registration.clone();
        for name in &registration.resources {
            self.by_resource.insert(name.clone(), resource.clone());
        }
        self.by_prefix.insert(storage_prefix(&registration).to_owned(), resource);
    }

    /// Prefixes have one part or two: `pods`, `services/specs`, `stable.example.com/crontabs`.
    fn route(&self, key: &str) -> Option<&Arc<ResourceCache>> {
        let rest = key.strip_prefix("/registry/")?;
        let mut slashes = rest.match_indices('/').map(|(at, _)| at);
        let first = slashes.next()?;
        if let Some(second) = slashes.next()
            && let Some(resource) = self.by_prefix.get(&rest[..second])
        {
            return Some(resource);
        }
        self.by_prefix.get(&rest[..first])
    }
}

fn storage_prefix(registration: &Registration) -> &str {
    registration.root.strip_prefix("/registry/").unwrap_or_default().trim_end_matches('/')
}

impl Cache {
    /// Loads everything and returns once the caches stand; a task of `tasks` keeps them fresh.
    pub fn start(
        store: Arc<dyn Store>,
        tasks: &Tasks,
        registrations: Vec<Registration>,
    ) -> BoxFuture<'_, Result<Arc<Self>, StoreError>> {
        Box::pin(Self::begin(store, tasks, registrations))
    }

    async fn begin(
        store: Arc<dyn Store>,
        tasks: &Tasks,
        registrations: Vec<Registration>,
    ) -> Result<Arc<Self>, StoreError> {
        let revision = Arc::new(RevisionWaiters::default());
        let mut routes = Routes::default();
        for registration in registrations {
            routes.add(Arc::new(ResourceCache::new(registration, revision.clone())));
        }
        let cache = Arc::new(Self { store, routes: RwLock::new(routes), revision });
        let newest = cache.store.revision().await?;
        let from = hub::load(&cache, hub::Start::InThePast).await?;
        let (fed, mut known) = (cache.clone(), Some(from));
        // How far a life came that ended in a panic is not known: the next starts from the whole state.
        tasks.spawn_critical("watch-cache", move || hub::feed(fed.clone(), known.take()));
        cache.revision.wait_for(newest).await;
        Ok(cache)
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// By storage prefix: `pods`, `services/specs`.
    pub fn resource(&self, storage_prefix: &str) -> Option<Arc<ResourceCache>> {
        self.routes.read().by_prefix.get(storage_prefix).cloned()
    }

    pub fn find(&self, resource: &GroupResource) -> Option<Arc<ResourceCache>> {
        self.routes.read().by_resource.get(resource).cloned()
    }

    /// How far the caches have come.
    pub fn revision(&self) -> Revision {
        self.revision.newest()
    }

    /// Returns once every change up to a revision is in the caches.
    pub async fn wait_for(&self, revision: Revision) -> Result<(), CacheError> {
        if self.revision() >= revision {
            return Ok(());
        }
        let arrived = tokio::time::timeout(PATIENCE, self.revision.wait_for(revision)).await;
        arrived.map_err(|_| CacheError::TooLarge { requested: revision, newest: self.revision() })
    }

    /// Returns once everything acknowledged before the call is in the caches: reads after it are linearizable.
    pub async fn wait_for_newest(&self) -> Result<Revision, CacheError> {
        let revision = self.store.revision().await?;
        self.wait_for(revision).await?;
        Ok(revision)
    }

    /// The objects of a resource: the newest state for `None`, whatever is there for `Some(0)`, else at least `Some(n)`.
    pub async fn snapshot(
        &self,
        resource: &ResourceCache,
        not_older_than: Option<Revision>,
    ) -> Result<Snapshot, CacheError> {
        match not_older_than {
            None => drop(self.wait_for_newest().await?),
            Some(0) => {}
            Some(revision) => self.wait_for(revision).await?,
        }
        Ok(resource.snapshot())
    }

    /// Opens a watch. Its snapshot and its place in the log are taken in one step.
    pub async fn watch(&self, resource: &Arc<ResourceCache>, options: WatchOptions) -> Result<Frames, CacheError> {
        match options.from {
            StartFrom::Unset => drop(self.wait_for_newest().await?),
            StartFrom::After(revision) if options.send_initial_events == Some(true) => self.wait_for(revision).await?,
            StartFrom::After(_) | StartFrom::Zero => {}
        }
        let requested = match options.from {
            StartFrom::After(revision) => revision,
            _ => 0,
        };
        resource.open(options).map_err(|oldest| CacheError::Expired { requested, oldest })
    }

    /// Adds a resource while the server runs, and returns once its objects are there.
    pub async fn register(&self, registration: Registration) -> Result<Arc<ResourceCache>, CacheError> {
        let prefix = registration.root.clone();
        let resource = Arc::new(ResourceCache::new(registration, self.revision.clone()));
        // Routed first: what happens while the objects are read is kept and applied behind them.
        let before = {
            let mut routes = self.routes.write();
            let before = routes.by_prefix.get(storage_prefix(&resource.registration)).cloned();
            routes.add(resource.clone());
            before
        };
        if let Some(before) = before {
            before.close();
        }
        let found = self.store.range(Range { prefix, ..Range::default() }).await?;
        resource.load_new(found.revision, &found.entries);
        self.wait_for(found.revision).await?;
        Ok(resource)
    }

    /// Ends the watches of a resource that is no longer served and forgets its objects.
    pub fn unregister(&self, storage_prefix: &str) {
        let mut routes = self.routes.write();
        if let Some(resource) = routes.by_prefix.remove(storage_prefix) {
            routes.by_resource.retain(|_, other| !Arc::ptr_eq(other, &resource));
            resource.close();
        }
    }
}

//! The factory that gives everyone in the process the same informer of a kind.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use ferry_tasks::Tasks;
use kube::Client;
use parking_lot::Mutex;

use super::{Cached, Change, Informer, Objects, Projection, Selection};
use crate::api::Api;

/// One informer per kind, started when it is first asked for. Clones share them.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    tasks: Tasks,
    started: Arc<Mutex<Started>>,
}

#[derive(Default)]
struct Started {
    by_kind: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// By the path of what they list.
    by_path: HashMap<String, Objects>,
}

impl Started {
    fn informer<K: Cached>(&self) -> Option<Informer<K>> {
        self.by_kind.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Informer<K>>()).cloned()
    }
}

impl Informers {
    pub fn new(client: Client, tasks: Tasks) -> Self {
        Self { client, tasks, started: Arc::default() }
    }

    pub fn of<K: Cached>(&self) -> Informer<K>
    where
        K::DynamicType: Default,
    {
        let mut started = self.started.lock();
        if let Some(informer) = started.informer::<K>() {
            return informer;
        }
        let api: Api<K> = Api::all(self.client.clone());
        let path = api.resource_url().to_owned();
        let informer = Informer::over(api, &self.tasks, Selection::default());
        started.by_path.insert(path, informer.objects());
        started.by_kind.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        informer
    }

    /// Parts of objects, from the informer of the whole ones where this process has one already; otherwise the whole ones are
    /// not kept.
    pub fn projected<P: Projection>(&self) -> Informer<P>
    where
        P::DynamicType: Default,
    {
        let mut started = self.started.lock();
        if let Some(informer) = started.informer::<P>() {
            return informer;
        }
        let informer = match started.informer::<P::Whole>() {
            Some(whole) => self.derived(&whole),
            None => Informer::over(Api::all(self.client.clone()), &self.tasks, Selection::default()),
        };
        started.by_kind.insert(TypeId::of::<P>(), Box::new(informer.clone()));
        informer
    }

    fn derived<P: Projection>(&self, whole: &Informer<P::Whole>) -> Informer<P> {
        let informer = Informer::detached();
        let parts = informer.clone();
        whole.on_change(move |change| match change {
            Change::Added(object) | Change::Modified { new: object, .. } => parts.apply(P::of(object)),
            Change::Deleted(object) => parts.remove(P::of(object)),
        });
        let (whole, parts) = (whole.clone(), informer.clone());
        self.tasks.spawn_until_stopped("parts of objects", async move {
            whole.synced().await;
            parts.mark_synced();
        });
        informer
    }

    /// What the informer holds that lists this path, where there is one already: who needs no more of an object than all
    /// kinds have need not watch it once more.
    pub fn held(&self, path: &str) -> Option<Objects> {
        self.started.lock().by_path.get(path).cloned()
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

//! The factory that gives everyone in the process the same informer of a kind.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use ferry_tasks::Tasks;
use kube::Client;
use parking_lot::Mutex;

use super::{Cached, Informer, Objects, Selection};
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

impl Informers {
    pub fn new(client: Client, tasks: Tasks) -> Self {
        Self { client, tasks, started: Arc::default() }
    }

    pub fn of<K: Cached>(&self) -> Informer<K>
    where
        K::DynamicType: Default,
    {
        let mut started = self.started.lock();
        let known = started.by_kind.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Informer<K>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let api: Api<K> = Api::all(self.client.clone());
        let path = api.resource_url().to_owned();
        let informer = Informer::over(api, &self.tasks, Selection::default());
        started.by_path.insert(path, informer.objects());
        started.by_kind.insert(TypeId::of::<K>(), Box::new(informer.clone()));
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

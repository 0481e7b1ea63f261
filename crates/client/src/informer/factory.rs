//! The factory that gives everyone in the process the same informer of a kind.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use ferry_tasks::Tasks;
use kube::Client;
use parking_lot::Mutex;

use super::{Cached, Informer, Selection};

/// One informer per kind, started when it is first asked for. Clones share them.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    tasks: Tasks,
    started: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
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
        let known = started.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Informer<K>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let informer = Informer::<K>::with(self.client.clone(), &self.tasks, Selection::default());
        started.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        informer
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

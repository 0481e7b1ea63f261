//! A reader over objects put by a test. For reading only: it knows nothing of revisions or conflicts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferry_meta::object::{name, namespace};
use ferry_meta::{GroupResource, ObjectReader};
use parking_lot::RwLock;
use serde_json::Value;

type Key = (String, String);

#[derive(Default)]
pub struct Objects {
    all: RwLock<BTreeMap<GroupResource, BTreeMap<Key, Arc<Value>>>>,
    version: AtomicU64,
}

impl Objects {
    pub fn put(&self, group: &str, resource: &str, object: Value) {
        let key = (namespace(&object).to_owned(), name(&object).to_owned());
        let resource = GroupResource::new(group, resource);
        self.all.write().entry(resource).or_default().insert(key, Arc::new(object));
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove(&self, group: &str, resource: &str, namespace: &str, name: &str) {
        if let Some(objects) = self.all.write().get_mut(&GroupResource::new(group, resource)) {
            objects.remove(&(namespace.to_owned(), name.to_owned()));
        }
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

impl ObjectReader for Objects {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.all.read().get(resource)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let all = self.all.read();
        let objects = all.get(resource).into_iter().flatten();
        objects.filter(|((ns, _), _)| namespace.is_empty() || ns == namespace).map(|(_, o)| o.clone()).collect()
    }

    fn version(&self, _resource: &GroupResource) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

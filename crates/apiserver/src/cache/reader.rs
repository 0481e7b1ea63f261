//! The cache as authorizers and admission see it.

use std::sync::Arc;

use ferry_meta::{GroupResource, ObjectReader};
use serde_json::Value;

use super::object::CachedObject;
use super::{Cache, ResourceCache};

fn parsed(object: &CachedObject) -> Option<Arc<Value>> {
    // It was read when it was ingested, so it parses.
    object.parse().ok().map(Arc::new)
}

impl ObjectReader for Cache {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        parsed(&*self.find(resource)?.get(namespace, name)?)
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.find(resource) else { return Vec::new() };
        resource.snapshot().range(namespace, None).filter_map(|object| parsed(object)).collect()
    }

    fn version(&self, resource: &GroupResource) -> u64 {
        self.find(resource).as_deref().map_or(0, ResourceCache::newest)
    }
}

//! The cache as authorizers and admission see it.

use std::sync::Arc;

use ferry_meta::{GroupResource, ObjectReader};
use serde_json::Value;

use super::{Cache, ResourceCache};

impl ObjectReader for Cache {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.find(resource)?.get(namespace, name)?.read()
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.find(resource) else { return Vec::new() };
        resource.snapshot().range(namespace, None).filter_map(|object| object.read()).collect()
    }

    fn version(&self, resource: &GroupResource) -> u64 {
        self.find(resource).as_deref().map_or(0, ResourceCache::newest)
    }
}

impl Cache {
    /// Labels of nodes, which are known without reading the node.
    pub fn node_labels(self: &Arc<Self>) -> impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static {
        let (cache, nodes) = (self.clone(), GroupResource::new("", "nodes"));
        move |node, label| cache.find(&nodes)?.get("", node)?.label(label).map(str::to_owned)
    }
}

//! What server-side plug-ins (authorizers, admission) may ask of the cluster's state.

use std::sync::Arc;

use serde_json::Value;

use crate::gvk::GroupResource;

/// Reads from the server's watch caches: never blocks, never touches the store, may lag a write by microseconds.
pub trait ObjectReader: Send + Sync {
    /// `namespace` is empty for cluster-scoped resources. The object is in its storage version.
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// All objects of a namespace, or of all namespaces when `namespace` is empty.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>>;

    /// Changes whenever any object of the resource changes, so that derived indexes know when they are stale.
    fn version(&self, resource: &GroupResource) -> u64;
}

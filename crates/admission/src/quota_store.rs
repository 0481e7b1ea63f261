//! What quota admission asks of the store: usage is reserved by compare-and-swap, so two writers never share the last slot.

use ferry_meta::ApiError;
use serde_json::Value;

#[async_trait::async_trait]
pub trait QuotaStore: Send + Sync {
    /// The quota as it is in the store now, not as a cache remembers it.
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Value>, ApiError>;

    /// Writes `quota.status` if the object still has `quota.metadata.resourceVersion`, and gives back what was stored.
    /// A 409 says that somebody else was first: usage is computed again on the fresh object.
    async fn update_status(&self, quota: &Value) -> Result<Value, ApiError>;
}

//! The store: one global revision, compare-and-swap transactions, watches, compaction, leases.
//!
//! Knows bytes and keys, nothing of Kubernetes objects. Must not depend on any Ferry crate but `meta`, `semantics` and `tasks`.

mod batches;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod embedded;
pub mod encrypted;
mod error;
pub mod etcd;
pub mod key;
pub mod migration;
#[cfg(test)]
mod steps;
mod types;

pub use embedded::{EmbeddedStore, Options, StoppedStore, Summary, read_backup, receive};
pub use encrypted::{EncryptedStore, EncryptionConfig, ResourceOf};
pub use error::StoreError;
pub use etcd::{EtcdOptions, EtcdStore, EtcdTls};
pub use types::{
    Commit, Entry, Event, EventKind, Got, LeaseId, Op, Range, RangeResult, Revision, Transaction, WatchBatch,
    WatchRequest,
};

use futures::stream::BoxStream;

pub type Result<T> = std::result::Result<T, StoreError>;
/// Batches in revision order, all events of one revision in one batch; ends after the first error.
pub type WatchStream = BoxStream<'static, Result<WatchBatch>>;

/// The contract every engine keeps; `conformance` holds the tests that define it.
#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// Linearizable read of one key.
    async fn get(&self, key: &str) -> Result<Got>;

    /// Linearizable (or, with `revision`, historical) read of all keys with a prefix, in key order.
    async fn range(&self, range: Range) -> Result<RangeResult>;

    /// All operations or none. Acknowledged only once it is durable.
    /// Fails with `StoreError::Conflict { key, current }` naming the first operation whose precondition did not hold.
    async fn commit(&self, transaction: Transaction) -> Result<Commit>;

    /// Every change to keys with a prefix after `request.after`, without a gap, then progress marks.
    /// Fails with `StoreError::Compacted` where the history is gone.
    async fn watch(&self, request: WatchRequest) -> Result<WatchStream>;

    /// Forgets superseded values older than `revision`.
    async fn compact(&self, revision: Revision) -> Result<()>;

    /// The newest committed revision (linearizable).
    async fn revision(&self) -> Result<Revision>;

    /// A lease: keys attached to it are deleted when it runs out.
    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId>;
    async fn revoke_lease(&self, lease: LeaseId) -> Result<()>;

    /// Whether a value is to be written anew although it does not change: it is encrypted with an old key.
    async fn is_stale(&self, _key: &str) -> Result<bool> {
        Ok(false)
    }

    /// Whether other processes may write to it, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// `Ok` when a write would be accepted now.
    async fn health(&self) -> Result<()>;

    /// Whether it answers at all, whatever its health: what a restart of this process could mend.
    async fn answers(&self) -> Result<()> {
        self.health().await
    }
}

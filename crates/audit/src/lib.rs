//! Audit: who asked for what, when, and what came of it, as upstream's `audit.k8s.io/v1` events.
//!
//! The API server calls [`Auditor::begin`] once it knows the caller; the [`Record`] it gets collects what later stages
//! know and writes one event per stage that the policy wants. Must not depend on the API server or the store.
//!
//! Where to look: which requests are written, and how much of them → `policy.rs`; what stands in an event → `event.rs`;
//! where events go → `log.rs` (a file with rotation), `batch.rs` (the same, beside requests), `webhook.rs` (batches over HTTPS).

mod batch;
mod event;
mod log;
mod policy;
mod record;
mod webhook;

pub use batch::{BatchOptions, BatchedLog};
pub use event::{Level, ObjectReference, Stage};
pub use log::{Log, LogFormat, LogMode, LogOptions};
pub use policy::{Policy, PolicyError, Subject};
pub use record::{Auditor, Facts, Record, source_ips};
pub use webhook::{Webhook, WebhookMode, WebhookOptions};

use bytes::Bytes;
use tokio::sync::oneshot;

/// Whether an event arrived, where the request is to wait for that.
pub type Receipt = oneshot::Receiver<Result<(), String>>;

/// Where events go.
pub trait Backend: Send + Sync {
    /// One event as JSON, without a line end. Must not block for long: what takes time is waited for by the receipt.
    fn write(&self, event: &Bytes) -> Option<Receipt>;

    /// What metrics call it.
    fn name(&self) -> &'static str;

    /// Events that never arrived.
    fn lost(&self) -> u64;

    /// Whether a request is refused when its first event cannot be written.
    fn is_strict(&self) -> bool {
        false
    }
}

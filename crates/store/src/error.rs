//! What an operation on the store may fail with.

use std::path::PathBuf;

use crate::types::{Entry, Revision};

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A precondition did not hold; `current` is what stands there now.
    #[error("the precondition on {key} did not hold")]
    Conflict { key: String, current: Option<Box<Entry>> },
    #[error("revision {requested} is compacted, the oldest kept is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    #[error("revision {requested} is in the future, the newest is {newest}")]
    Future { requested: Revision, newest: Revision },
    #[error("invalid key {key:?}: {why}")]
    InvalidKey { key: String, why: &'static str },
    #[error("the value of {key} has {size} bytes, at most {max} are allowed")]
    TooLarge { key: String, size: usize, max: usize },
    #[error("lease {0} does not exist")]
    UnknownLease(i64),
    #[error("invalid lease: {0}")]
    InvalidLease(String),
    /// Nothing was written: whoever wrote no longer leads.
    #[error("the lease {0} is not held by the writer any more")]
    NotLeader(String),
    /// Trying again later may help. Of a write it says that nothing was written.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Whoever wants to know must look: the same write again may be a second one.
    #[error("it is not known whether this was written: {0}")]
    Undecided(String),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Another process has the folder open.
    #[error("{} is in use by another process; stop it or choose another data folder", .0.display())]
    Locked(PathBuf),
    /// The folder holds something else, or data of another version of the format.
    #[error("{} cannot be used: {why}", .path.display())]
    Incompatible { path: PathBuf, why: String },
    #[error("{0:?} cannot be used as an address of etcd: {1}")]
    InvalidEndpoint(String, String),
    /// The watcher fell too far behind and was dropped.
    #[error("the watch fell behind and was dropped")]
    SlowWatcher,
}

impl StoreError {
    /// Whether the same request may succeed later without anyone changing it.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::SlowWatcher)
    }
}

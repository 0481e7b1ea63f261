//! The embedded engine: the newest state in memory, every change in a fjall table until it is compacted.
//!
//! Writes go through one committer (`committer`); reads take the state under a lock that is never held across I/O.

mod backup;
mod committer;
mod compaction;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
mod disk;
mod folder;
mod group;
mod history;
mod journal;
mod leases;
mod manifest;
mod record;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod watchers;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, oneshot};

pub use self::backup::{Summary, read_backup, receive};
use self::committer::{Command, Committer, Reply};
use self::disk::Disk;
use self::folder::Folder;
pub(crate) use self::group::check_distinct;
use self::leases::Leases;
pub(crate) use self::leases::{check_lease, check_ttl};
use self::record::LeaseRecord;
use self::state::{Change, Keyspace};
pub use self::transfer::StoppedStore;
use self::watchers::Watchers;
use crate::types::{Commit, Got, LeaseId, Op, Range, RangeResult, Revision, Transaction, WatchRequest};
use crate::{Result, Store, StoreError, WatchStream, key};

#[derive(Clone, Debug)]
pub struct Options {
    pub compaction_interval: Duration,
    /// How long superseded values stay at least, so that watches can resume.
    pub retention: Duration,
    /// How many revisions stay at least.
    pub retained_revisions: u64,
    /// Batches a watcher may lag behind before it is dropped.
    pub watch_buffer: usize,
    /// How long a watcher is left without news of a newer revision.
    pub progress_interval: Duration,
    /// Writes are refused when less than this is free: room for the tables to reorganise themselves.
    pub minimum_free_bytes: u64,
    /// Changes kept in memory before they become a table; fixed when the folder is created.
    pub memtable_bytes: u64,
    /// Whether a write is on the disk before it is acknowledged. Only tests, whose state a power cut may take, go without.
    pub sync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // A value is gone five to seven minutes after it was superseded. Clients that test for it wait ten at most.
            compaction_interval: Duration::from_secs(120),
            retention: Duration::from_secs(300),
            retained_revisions: 0,
            watch_buffer: 10_000,
            progress_interval: Duration::from_secs(5),
            minimum_free_bytes: 32 << 20,
            memtable_bytes: 16 << 20,
            sync: true,
        }
    }
}

/// Requests that may wait for the committer; more wait outside, in order.
const QUEUE: usize = 8192;

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) state: RwLock<Keyspace>,
    /// None while the tables are being opened again after a failure, and once the store is closed.
    disk: RwLock<Option<Disk>>,
    /// Held by a compaction; up to where the last one came to its end. One that was interrupted is done again by the next.
    pub(crate) compacting: Mutex<Revision>,
    tables: std::path::PathBuf,
}

pub(crate) struct Reopened {
    pub(crate) leases: Vec<(LeaseId, LeaseRecord)>,
    pub(crate) transactions: Vec<(Revision, Vec<Change>)>,
}

impl Shared {
    pub(crate) fn disk(&self) -> Result<Disk> {
        self.disk.read().clone().ok_or_else(|| StoreError::Unavailable("the tables are closed".into()))
    }

    pub(crate) fn check_space(&self, bytes: usize) -> Result<()> {
        let needed = self.options.minimum_free_bytes.saturating_add(2 * bytes as u64);
        match rustix::fs::statvfs(&self.tables) {
            Ok(space) if space.f_bavail.saturating_mul(space.f_frsize) < needed => Err(StoreError::Unavailable(
                format!("less than {} MiB are free on the disk of {}", needed >> 20, self.tables.display()),
            )),
            // A file system that cannot tell will say so when it is written to.
            _ => Ok(()),
        }
    }

    pub(crate) fn reopen(&self) -> Result<Reopened> {
        let _no_compaction = self.compacting.lock();
        *self.disk.write() = None;
        self.check_space(0)?;
        manifest::check(&self.tables)?;
        journal::check(&self.tables)?;
        let disk = Disk::open(&self.tables, &self.options).map_err(|error| match error {
            StoreError::Locked(_) => StoreError::Unavailable("readers still use the tables that failed".into()),
            other => other,
        })?;
        let view = disk.view();
        let leases = view.leases()?;
        let transactions = {
            let state = self.state.read();
            history::replay(&view, state.revision, &state.map)?
        };
        *self.disk.write() = Some(disk);
        Ok(Reopened { leases, transactions })
    }
}

/// The store in a local folder. Dropping it closes the folder once all accepted writes are answered.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Command>>,
    permits: Arc<Semaphore>,
    committer: Option<JoinHandle<()>>,
    /// Held until the tables are closed.
    _folder: Folder,
}

impl EmbeddedStore {
    /// Opens or creates the store; blocks while it reads the state into memory.
    pub fn open(path: &Path, options: Options) -> Result<Arc<Self>> {
        let mut folder = Folder::open(path)?;
        let tables = folder.tables();
        if !folder.is_fresh() {
            manifest::check(&tables)?;
            journal::check(&tables)?;
        }
        let disk = Disk::open(&tables, &options)?;
        folder.seal()?;
        let view = disk.view();
        let loaded = view.compacted().and_then(|compacted| Ok((compacted, history::load(&view, compacted)?)));
        let (compacted, (revision, map)) = loaded.map_err(|error| disk.name_damage(error))?;
        let mut leases = Leases::default();
        for (lease, record) in view.leases()? {
            leases.insert(lease, record);
        }
        for stored in map.values() {
            if let Some(lease) = stored.entry.lease {
                leases.attach(lease, &stored.entry.key);
            }
        }
        let finished = view.finished()?;
        drop(view);
        let state = Keyspace { revision, compacted, map, watchers: Watchers::default() };
        let shared = Arc::new(Shared {
            options,
            state: RwLock::new(state),
            disk: RwLock::new(Some(disk)),
            compacting: Mutex::new(finished),
            tables,
        });
        let (queue, commands) = mpsc::channel();
        let committer = Committer::new(shared.clone(), commands, leases);
        let committer = std::thread::Builder::new()
            .name("store-committer".into())
            .spawn(move || committer.run())
            .map_err(|error| StoreError::Unavailable(format!("cannot start the committer: {error}")))?;
        Ok(Arc::new(Self {
            shared,
            queue: Some(queue),
            permits: Arc::new(Semaphore::new(QUEUE)),
            committer: Some(committer),
            _folder: folder,
        }))
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let closed = || StoreError::Unavailable("the store is closed".into());
        let place = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let (waiting, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(command(Reply::new(waiting, place))).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(committer) = self.committer.take() {
            // A panic in it was already reported by the panic hook.
            let _ = committer.join();
        }
        *self.shared.disk.write() = None;
    }
}

#[async_trait::async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Got> {
        key::check_key(key)?;
        let state = self.shared.state.read();
        Ok(Got { revision: state.revision, entry: state.map.get(key).map(|stored| stored.entry.clone()) })
    }

    async fn range(&self, range: Range) -> Result<RangeResult> {
        key::check_prefix(&range.prefix)?;
        let (map, newest) = {
            let state = self.shared.state.read();
            (state.map.clone(), state.revision)
        };
        match range.revision {
            Some(revision) if revision != newest => {
                let shared = self.shared.clone();
                stream::blocking(move || shared.range_at(&range, revision)).await
            }
            _ => Ok(history::page(&map, &range, newest)),
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit> {
        for op in &transaction.ops {
            key::check_key(op.key())?;
            if let Op::Create { key, value, lease } | Op::Update { key, value, lease, .. } = op {
                key::check_value(key, value)?;
                check_lease(*lease)?;
            }
        }
        check_distinct(&transaction.ops)?;
        self.ask(|reply| Command::Commit { transaction, reply }).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream> {
        key::check_prefix(&request.prefix)?;
        stream::watch(self.shared.clone(), request)
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let shared = self.shared.clone();
        stream::blocking(move || shared.compact(revision)).await
    }

    async fn revision(&self) -> Result<Revision> {
        Ok(self.shared.state.read().revision)
    }

    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId> {
        check_ttl(ttl_seconds)?;
        self.ask(|reply| Command::Grant { ttl_seconds, reply }).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        check_lease(Some(lease))?;
        self.ask(|reply| Command::Revoke { lease, reply }).await
    }

    async fn health(&self) -> Result<()> {
        self.shared.check_space(0)?;
        self.ask(|reply| Command::Health { reply }).await
    }
}

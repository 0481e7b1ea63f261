//! The one place that speaks to fjall: batches with one fdatasync, scans of the history, what its errors mean.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot,
};

use super::Options;
use super::record::{self, LeaseRecord, Position, Record};
use crate::types::{LeaseId, Revision};
use crate::{Result, StoreError};

/// The open tables. Clones are handles; all must be gone before the folder can be opened again.
#[derive(Clone)]
pub(crate) struct Disk {
    database: Database,
    table: Keyspace,
    path: PathBuf,
    /// What an acknowledged commit has reached.
    durability: PersistMode,
    /// Makes the next commit find that the tables failed in the background.
    #[cfg(test)]
    pub(crate) failed: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Makes the next commit write everything and fail all the same.
    #[cfg(test)]
    pub(crate) unconfirmed: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

/// A commit that failed.
pub(crate) struct Failed {
    pub(crate) error: StoreError,
    /// Certainly nothing of it was written: the tables had failed before.
    pub(crate) untouched: bool,
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed.error {
            Self::Unavailable(why) if !failed.untouched => Self::Undecided(why),
            other => other,
        }
    }
}

/// What goes to disk at once or not at all.
pub(crate) struct Batch {
    inner: fjall::OwnedWriteBatch,
    table: Keyspace,
}

impl Batch {
    pub(crate) fn change(&mut self, index: u32, change: &Record) {
        let place = Position { revision: change.entry.modified, index };
        self.inner.insert(&self.table, record::history_key(place).as_slice(), change.encode());
    }

    pub(crate) fn forget(&mut self, place: Position) {
        self.inner.remove(&self.table, record::history_key(place).as_slice());
    }

    pub(crate) fn lease(&mut self, lease: LeaseId, record: LeaseRecord) {
        self.inner.insert(&self.table, record::lease_key(lease).as_slice(), record.encode().as_slice());
    }

    pub(crate) fn forget_lease(&mut self, lease: LeaseId) {
        self.inner.remove(&self.table, record::lease_key(lease).as_slice());
    }

    /// A record as it stood in another table.
    pub(crate) fn raw(&mut self, key: &[u8], value: &[u8]) {
        self.inner.insert(&self.table, key, value);
    }

    pub(crate) fn compacted(&mut self, revision: Revision) {
        self.inner.insert(&self.table, record::COMPACTED, revision.to_be_bytes().as_slice());
    }

    pub(crate) fn finished(&mut self, revision: Revision) {
        self.inner.insert(&self.table, record::FINISHED, revision.to_be_bytes().as_slice());
    }
}

impl Disk {
    /// A damaged file must not bring the process down: fjall asserts some of what it reads.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self> {
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let database = Database::builder(path)
                // Objects and their history live in memory or are read once, in order.
                .cache_size(4 << 20)
                // Of two, one spins on the queue while the other merges tables.
                .worker_threads(1)
                .journal_compression(CompressionType::None)
                .max_journaling_size(192 << 20)
                .manual_journal_persist(true)
                .open()?;
            let table = database.keyspace("store", || {
                KeyspaceCreateOptions::default()
                    .manual_journal_persist(true)
                    .max_memtable_size(options.memtable_bytes)
                    .data_block_size_policy(BlockSizePolicy::all(16 << 10))
                    // What is written first is soon merged into other tables, and most of it is then of the past.
                    .data_block_compression_policy(CompressionPolicy::new([
                        CompressionType::None,
                        CompressionType::Lz4,
                    ]))
            })?;
            // What a crashed process wrote may still be in the page cache only: nobody may see it before it is durable.
            database.persist(PersistMode::SyncAll)?;
            Ok((database, table))
        }));
        match opened {
            Ok(Ok((database, table))) => Ok(Self {
                database,
                table,
                path: path.to_owned(),
                durability: if options.sync { PersistMode::SyncData } else { PersistMode::Buffer },
                #[cfg(test)]
                failed: Default::default(),
                #[cfg(test)]
                unconfirmed: Default::default(),
            }),
            Ok(Err(error)) => Err(classify(path, &error)),
            Err(_) => Err(StoreError::Corrupt(format!("the tables in {} cannot be read", path.display()))),
        }
    }

    /// Finds the table that is not what was written, where an error speaks of damage.
    pub(crate) fn name_damage(&self, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::Corrupt(_)) {
            return error;
        }
        self.verify_tables().err().unwrap_or(error)
    }

    /// Every table against the checksum of when it was written.
    pub(crate) fn verify_tables(&self) -> Result<()> {
        let version = self.table.tree.current_version();
        let damaged = version.iter_tables().find(|table| {
            let content = std::fs::read(&*table.path).unwrap_or_default();
            xxhash_rust::xxh3::xxh3_128(&content) != table.checksum().into_u128()
        });
        match damaged {
            Some(table) => Err(StoreError::Corrupt(format!("{} is damaged", table.path.display()))),
            None => Ok(()),
        }
    }

    /// Fails when the tables refuse writes: work of theirs in the background met a full disk, say.
    pub(crate) fn probe(&self) -> Result<()> {
        self.database.persist(PersistMode::Buffer).map_err(|e| classify(&self.path, &e))
    }

    pub(crate) fn batch(&self) -> Batch {
        Batch { inner: self.database.batch(), table: self.table.clone() }
    }

    /// Returns once the batch is durable: one write, one fdatasync (none where the options say so).
    pub(crate) fn commit(&self, batch: Batch) -> std::result::Result<(), Failed> {
        #[cfg(test)]
        if self.failed.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(Failed { error: classify(&self.path, &fjall::Error::Poisoned), untouched: true });
        }
        let batch = batch.inner.durability(Some(self.durability));
        let written = batch.commit().map_err(|error| Failed {
            // fjall looks at this before it writes anything, and at nothing else.
            untouched: matches!(error, fjall::Error::Poisoned),
            error: classify(&self.path, &error),
        });
        #[cfg(test)]
        if self.unconfirmed.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Err(Failed { error: StoreError::Unavailable("a test says so".into()), untouched: false });
        }
        written
    }

    /// Hands the batch to the operating system; a later `commit` makes it durable, in order.
    pub(crate) fn write(&self, batch: Batch) -> Result<()> {
        let batch = batch.inner.durability(Some(PersistMode::Buffer));
        batch.commit().map_err(|e| classify(&self.path, &e))
    }

    pub(crate) fn view(&self) -> View {
        View { snapshot: self.database.snapshot(), table: self.table.clone(), path: self.path.clone() }
    }
}

/// The tables at one moment.
pub(crate) struct View {
    snapshot: Snapshot,
    table: Keyspace,
    path: PathBuf,
}

impl View {
    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Corrupt(format!("{what} in {} cannot be read", self.path.display()))
    }

    pub(crate) fn record(&self, place: Position) -> Result<Option<Record>> {
        let found = self.snapshot.get(&self.table, record::history_key(place)).map_err(|e| classify(&self.path, &e))?;
        let Some(bytes) = found else { return Ok(None) };
        match Record::decode(place.revision, &bytes) {
            Some(record) => Ok(Some(record)),
            None => Err(self.damaged(&format!("revision {}", place.revision))),
        }
    }

    /// Every change from one revision to another, both included, in order. `visit` gets undecoded records, so that it
    /// pays only for those it wants; it ends the scan with false.
    pub(crate) fn scan(
        &self,
        from: Revision,
        to: Revision,
        mut visit: impl FnMut(Position, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let first = record::history_key(Position { revision: from, index: 0 });
        let last = record::history_key(Position { revision: to, index: u32::MAX });
        for item in self.snapshot.range(&self.table, first..=last) {
            let (key, value) = item.into_inner().map_err(|e| classify(&self.path, &e))?;
            let place = record::history_place(&key).ok_or_else(|| self.damaged("a key"))?;
            if !visit(place, &value)? {
                break;
            }
        }
        Ok(())
    }

    /// Every record of the table, whatever it is.
    pub(crate) fn everything(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        for item in self.snapshot.iter(&self.table) {
            let (key, value) = item.into_inner().map_err(|e| classify(&self.path, &e))?;
            visit(&key, &value)?;
        }
        Ok(())
    }

    pub(crate) fn decode(&self, place: Position, bytes: &[u8]) -> Result<Record> {
        Record::decode(place.revision, bytes).ok_or_else(|| self.damaged(&format!("revision {}", place.revision)))
    }

    pub(crate) fn leases(&self) -> Result<Vec<(LeaseId, LeaseRecord)>> {
        let mut leases = Vec::new();
        for item in self.snapshot.prefix(&self.table, b"l") {
            let (key, value) = item.into_inner().map_err(|e| classify(&self.path, &e))?;
            let lease = record::lease_id(&key).zip(LeaseRecord::decode(&value));
            leases.push(lease.ok_or_else(|| self.damaged("a lease"))?);
        }
        Ok(leases)
    }

    pub(crate) fn compacted(&self) -> Result<Revision> {
        self.mark(record::COMPACTED, "the compacted revision")
    }

    /// Up to where a compaction came to its end. Unlike the compacted revision it says nothing of what can be read.
    pub(crate) fn finished(&self) -> Result<Revision> {
        self.mark(record::FINISHED, "the end of the last compaction")
    }

    fn mark(&self, key: &[u8], what: &str) -> Result<Revision> {
        let found = self.snapshot.get(&self.table, key).map_err(|e| classify(&self.path, &e))?;
        match found {
            None => Ok(0),
            Some(bytes) => match <[u8; 8]>::try_from(&*bytes) {
                Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
                Err(_) => Err(self.damaged(what)),
            },
        }
    }
}

/// A missing or garbled file is damage; everything else the disk says (full, read-only, failing) may pass.
fn classify(path: &Path, error: &fjall::Error) -> StoreError {
    let io = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData => {
            StoreError::Corrupt(format!("a file in {} is missing or cut short: {error}", path.display()))
        }
        _ => StoreError::Unavailable(format!("{}: {error}", path.display())),
    };
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => io(error),
        fjall::Error::Poisoned => StoreError::Unavailable(format!("an earlier write to {} failed", path.display())),
        fjall::Error::Locked => StoreError::Locked(path.to_owned()),
        other => StoreError::Corrupt(format!("{}: {other}", path.display())),
    }
}

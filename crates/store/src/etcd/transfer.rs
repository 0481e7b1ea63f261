//! etcd's database file as the source of a migration, and as its target: revisions in it are what they were elsewhere, which no
//! request to a running etcd could make them at once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::EtcdOptions;
use super::api::Client;
use super::api::rpc::{KeyValue, LeaseTimeToLiveRequest};
use super::bolt::{Database, damaged, number};
use super::bolt_writer::Writer;
use super::call::Repeat;
use super::connection::Connection;
use super::convert::{self, Layout};
use crate::migration::{Change, Outline, Past, kept};
use crate::types::{Entry, EventKind, LeaseId, Revision};
use crate::{Result, StoreError};

const COMPACTED: [&[u8]; 2] = [b"finishedCompactRev", b"scheduledCompactRev"];
/// Behind the name of a change that is a deletion.
const DELETED: u8 = b't';

/// A lease as etcd keeps it.
#[derive(Clone, PartialEq, Eq, Message)]
struct StoredLease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
}

fn place(revision: Revision, index: u32) -> Vec<u8> {
    [&revision.to_be_bytes()[..], b"_", &u64::from(index).to_be_bytes()].concat()
}

/// A file that no etcd has open, such as a snapshot.
pub struct DatabaseFile {
    database: Database,
    layout: Layout,
    left: BTreeMap<LeaseId, u64>,
}

impl DatabaseFile {
    pub fn open(path: &Path, prefix: &str) -> Result<Self> {
        Ok(Self { database: Database::open(path, false)?, layout: Layout::new(prefix)?, left: BTreeMap::new() })
    }

    /// The leases with the seconds that each was granted for.
    pub fn leases(&self) -> Result<BTreeMap<LeaseId, u64>> {
        let mut leases = BTreeMap::new();
        self.database.pairs(b"lease", &mut |_, value| {
            let lease = StoredLease::decode(value).map_err(|_| damaged("a lease cannot be read"))?;
            leases.insert(lease.id, convert::unsigned(lease.ttl).max(1));
            Ok(())
        })?;
        Ok(leases)
    }

    /// What is left of leases as a running etcd tells it; the file says what they were granted for.
    #[must_use]
    pub fn with_leases_left(mut self, left: BTreeMap<LeaseId, u64>) -> Self {
        self.left = left;
        self
    }

    fn compacted(&self) -> Result<Revision> {
        let mut compacted = 0;
        self.database.pairs(b"meta", &mut |key, value| {
            if COMPACTED.contains(&key) {
                compacted = compacted.max(Revision::from_be_bytes(number(value, 0)?));
            }
            Ok(())
        })?;
        Ok(compacted)
    }
}

impl Past for DatabaseFile {
    fn outline(&self) -> Result<Outline> {
        let mut leases = self.leases()?;
        for (lease, seconds) in &self.left {
            if let Some(granted) = leases.get_mut(lease) {
                *granted = *seconds;
            }
        }
        let compacted = self.compacted()?;
        let revision = self.database.summary()?.0.max(compacted).max(1);
        let mut newest = compacted;
        self.visit(&mut |change| {
            newest = newest.max(change.entry.modified);
            Ok(())
        })?;
        // The newest change is of a key that is not this cluster's: only a compacted revision says how far it is.
        let compacted = if newest < revision { revision } else { compacted };
        Ok(Outline { revision, compacted, leases })
    }

    fn visit(&self, visit: &mut dyn FnMut(Change) -> Result<()>) -> Result<()> {
        self.database.pairs(b"key", &mut |name, value| {
            let revision = Revision::from_be_bytes(number(name, 0)?);
            let index = u32::try_from(u64::from_be_bytes(number(name, 9)?))
                .map_err(|_| damaged("a revision has too many changes"))?;
            let found = KeyValue::decode(value).map_err(|_| damaged("a change cannot be read"))?;
            if !self.layout.holds(&found.key) {
                return Ok(());
            }
            let deleted = name.get(17) == Some(&DELETED);
            let entry = Entry { modified: revision, ..self.layout.entry(found)? };
            let change = if deleted {
                let entry = Entry { value: Bytes::new(), created: 0, lease: None, ..entry };
                Change { kind: EventKind::Delete, index, entry }
            } else {
                let kind = if entry.created == revision { EventKind::Create } else { EventKind::Update };
                Change { kind, index, entry }
            };
            visit(change)
        })
    }
}

/// Makes a new database file of what another engine kept, for the first member of a new cluster to begin with.
pub fn write_database(past: &dyn Past, prefix: &str, target: &Path) -> Result<()> {
    let (layout, outline) = (Layout::new(prefix)?, past.outline()?);
    let mut writer = Writer::create(target)?;
    let mut bucket = writer.bucket(b"key");
    let mut versions: HashMap<Arc<str>, i64> = HashMap::new();
    kept(past, &mut |change| {
        let entry = change.entry;
        let key = layout.outward(&entry.key);
        let mut name = place(entry.modified, change.index);
        if change.kind == EventKind::Delete {
            versions.remove(&entry.key);
            name.push(DELETED);
            return bucket.put(name, KeyValue { key, ..KeyValue::default() }.encode_to_vec());
        }
        // How often it was written before what is kept is not known; nobody asks for it.
        let version = match versions.get(&entry.key) {
            Some(version) => version + 1,
            None => 1 + i64::from(entry.created != entry.modified),
        };
        versions.insert(entry.key.clone(), version);
        let value = KeyValue {
            key,
            create_revision: convert::number(entry.created)?,
            mod_revision: convert::number(entry.modified)?,
            version,
            value: entry.value.to_vec(),
            lease: entry.lease.unwrap_or_default(),
        };
        bucket.put(name, value.encode_to_vec())
    })?;
    bucket.finish()?;
    let mut bucket = writer.bucket(b"lease");
    for (id, seconds) in &outline.leases {
        // Only what is left: etcd begins anew with each leader, and has to end them when they would have ended.
        let lease = StoredLease { id: *id, ttl: convert::number((*seconds).max(1))? };
        bucket.put(id.to_be_bytes().to_vec(), lease.encode_to_vec())?;
    }
    bucket.finish()?;
    let mut bucket = writer.bucket(b"meta");
    bucket.put(b"consistent_index".to_vec(), vec![0; 8])?;
    // The newest revision is told by its change, or by this where nothing is left of it.
    if outline.compacted > 0 {
        for name in COMPACTED {
            bucket.put(name.to_vec(), place(outline.compacted, 0))?;
        }
    }
    bucket.finish()?;
    writer.finish()
}

/// Leases asked about at a time.
const AT_ONCE: usize = 32;

/// How many seconds a running etcd leaves each lease. One that ended is not among them.
pub async fn leases_left(options: &EtcdOptions, leases: Vec<LeaseId>) -> Result<BTreeMap<LeaseId, u64>> {
    use futures::{StreamExt, TryStreamExt};
    let connection = Connection::new(options)?;
    let ask = |id: LeaseId| {
        let connection = &connection;
        async move {
            let send = |client: Client| async move {
                client.lease().lease_time_to_live(LeaseTimeToLiveRequest { id, keys: false }).await
            };
            match connection.call(Repeat::Always, send).await {
                Ok(answer) => Ok(u64::try_from(answer.into_inner().ttl).ok().map(|ttl| (id, ttl))),
                Err(StoreError::UnknownLease(_)) => Ok(None),
                Err(error) => Err(error),
            }
        }
    };
    let answers = futures::stream::iter(leases).map(ask).buffer_unordered(AT_ONCE);
    answers.try_filter_map(futures::future::ok).try_collect().await
}

//! A store that does not run as the source of a migration, and a new one as its target.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::backup::{BATCH_BYTES, open_folder, summary};
use super::disk::Disk;
use super::folder::Folder;
use super::leases::unix_millis;
use super::record::{LeaseRecord, Position, Record};
use super::{EmbeddedStore, Options, Summary, history};
use crate::migration::{Change, Outline, Past, kept};
use crate::types::{EventKind, Revision};
use crate::{Result, StoreError, key};

/// How values begin that upstream's servers wrote as protobuf. Nobody above this engine reads them.
const PROTOBUF: &[u8] = b"k8s\0";

/// A store that no process has open, nor can open while this lives.
pub struct StoppedStore {
    disk: Disk,
    _folder: Folder,
}

impl StoppedStore {
    pub fn open(path: &Path) -> Result<Self> {
        let (folder, disk) = open_folder(path)?;
        Ok(Self { disk, _folder: folder })
    }
}

impl Past for StoppedStore {
    fn outline(&self) -> Result<Outline> {
        let view = self.disk.view();
        let compacted = view.compacted()?;
        let mut revision = compacted.max(history::FIRST);
        view.scan(0, Revision::MAX, |place, _| {
            revision = revision.max(place.revision);
            Ok(true)
        })?;
        let now = unix_millis();
        let left = |record: LeaseRecord| {
            let seconds = record.ends_unix_millis.saturating_sub(now).div_ceil(1000);
            seconds.clamp(1, record.ttl_seconds.max(1))
        };
        let leases = view.leases()?.into_iter().map(|(lease, record)| (lease, left(record))).collect();
        Ok(Outline { revision, compacted, leases })
    }

    fn visit(&self, visit: &mut dyn FnMut(Change) -> Result<()>) -> Result<()> {
        let view = self.disk.view();
        let visited = view.scan(0, Revision::MAX, |place, bytes| {
            let record = view.decode(place, bytes)?;
            visit(Change { kind: record.kind, index: place.index, entry: record.entry })?;
            Ok(true)
        });
        visited.map_err(|error| self.disk.name_damage(error))
    }
}

impl EmbeddedStore {
    /// Makes a store of what another engine kept. The folder must be empty or absent; it is usable only once everything is in
    /// it.
    pub fn import(path: &Path, past: &dyn Past) -> Result<Summary> {
        let unusable = |why: String| StoreError::Incompatible { path: path.to_owned(), why };
        let mut folder = Folder::open(path)?;
        if !folder.is_fresh() {
            return Err(unusable("it already holds a store".into()));
        }
        let disk = Disk::open(&folder.tables(), &Options::default())?;
        let outline = past.outline()?;
        let (mut batch, mut size) = (disk.batch(), 0);
        let mut places: HashMap<Arc<str>, Position> = HashMap::new();
        kept(past, &mut |change| {
            let entry = &change.entry;
            key::check_key(&entry.key)?;
            if entry.value.starts_with(PROTOBUF) {
                let name = &entry.key;
                return Err(unusable(format!("{name} is stored as protobuf, and this engine is for JSON alone")));
            }
            let place = Position { revision: entry.modified, index: change.index };
            let previous = match change.kind {
                EventKind::Delete => places.remove(&entry.key),
                _ => places.insert(entry.key.clone(), place),
            };
            size += entry.key.len() + entry.value.len();
            batch.change(change.index, &Record { kind: change.kind, entry: change.entry, previous });
            if size >= BATCH_BYTES {
                disk.write(std::mem::replace(&mut batch, disk.batch()))?;
                size = 0;
            }
            Ok(())
        })?;
        let now = unix_millis();
        for (lease, seconds) in outline.leases {
            let ttl_seconds = seconds.max(1);
            let ends_unix_millis = now.saturating_add(ttl_seconds.saturating_mul(1000));
            batch.lease(lease, LeaseRecord { ttl_seconds, ends_unix_millis });
        }
        if outline.compacted > 0 {
            batch.compacted(outline.compacted);
        }
        disk.commit(batch)?;
        let found = summary(&disk.view())?;
        folder.seal()?;
        Ok(found)
    }
}

//! A store in one file: taken from a live store, put back into an empty folder, and looked at.
//!
//! `ferry-backup 1\n`, then records of the table (two lengths, key, value), then an empty record, the number of records
//! and a checksum of all before it.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::disk::{Disk, View};
use super::folder::{self, Folder, io_error};
use super::history::{self, event};
use super::record::Record;
use super::{EmbeddedStore, Options, journal, manifest, stream};
use crate::types::{Event, Revision};
use crate::{Result, StoreError, key};

const MAGIC: &[u8] = b"ferry-backup 1\n";
/// Longer than any record that the store accepts.
const LONGEST: usize = key::MAX_VALUE + key::MAX_KEY + 1024;
const BATCH_BYTES: usize = 8 << 20;

/// What a look at a store found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub revision: Revision,
    pub compacted: Revision,
    pub objects: usize,
    /// Changes in the history.
    pub records: u64,
}

impl EmbeddedStore {
    /// Writes everything that is durable now to a new file. Writers are not held up.
    pub async fn backup(&self, target: &Path) -> Result<Summary> {
        let (shared, target) = (self.shared.clone(), target.to_owned());
        stream::blocking(move || {
            let view = {
                // No compaction may begin between the mark and the view.
                let _still = shared.compacting.lock();
                shared.disk()?.view()
            };
            write_file(&view, &target)?;
            summary(&view)
        })
        .await
    }

    /// Every change to a key that is still in the history, oldest first.
    pub async fn history(&self, key: &str) -> Result<Vec<Event>> {
        key::check_key(key)?;
        let (shared, key) = (self.shared.clone(), key.to_owned());
        stream::blocking(move || {
            let view = shared.disk()?.view();
            let newest = shared.state.read().revision;
            let mut events = Vec::new();
            view.scan(0, newest, |place, bytes| {
                if Record::key(bytes).is_none_or(|found| found == key) {
                    let mut record = view.decode(place, bytes)?;
                    // What it replaced may be compacted.
                    if let Some(previous) = record.previous
                        && view.record(previous)?.is_none()
                    {
                        record.previous = None;
                    }
                    events.push(event(&view, record)?);
                }
                Ok(true)
            })?;
            Ok(events)
        })
        .await
    }

    /// Makes a store of a backup. The folder must be empty or absent; it is usable only once everything is in it.
    pub fn restore(backup: &Path, path: &Path) -> Result<Summary> {
        verify_file(backup)?;
        let mut folder = Folder::open(path)?;
        if !folder.is_fresh() {
            let why = "it already holds a store".to_owned();
            return Err(StoreError::Incompatible { path: path.to_owned(), why });
        }
        let disk = Disk::open(&folder.tables(), &Options::default())?;
        let (mut batch, mut size) = (disk.batch(), 0);
        read_file(backup, |key, value| {
            batch.raw(key, value);
            size += key.len() + value.len();
            if size >= BATCH_BYTES {
                disk.write(std::mem::replace(&mut batch, disk.batch()))?;
                size = 0;
            }
            Ok(())
        })?;
        disk.commit(batch)?;
        let found = summary(&disk.view())?;
        folder.seal()?;
        Ok(found)
    }

    /// Reads all of a folder that no process has open: every log, every table, every record.
    pub fn check(path: &Path) -> Result<Summary> {
        if !path.join(folder::FORMAT).exists() {
            return Err(StoreError::Incompatible { path: path.to_owned(), why: "it holds no store".into() });
        }
        let folder = Folder::open(path)?;
        let tables = folder.tables();
        manifest::check(&tables)?;
        journal::check(&tables)?;
        let disk = Disk::open(&tables, &Options::default())?;
        disk.verify_tables()?;
        summary(&disk.view()).map_err(|error| disk.name_damage(error))
    }
}

fn summary(view: &View) -> Result<Summary> {
    let compacted = view.compacted()?;
    let (revision, map) = history::load(view, compacted)?;
    let mut records = 0;
    view.scan(0, Revision::MAX, |place, bytes| {
        let record = view.decode(place, bytes)?;
        // Above the compacted revision no change may lack what it replaced.
        if let Some(previous) = record.previous.filter(|_| place.revision > compacted)
            && view.record(previous)?.is_none()
        {
            return Err(history::missing(previous));
        }
        records += 1;
        Ok(true)
    })?;
    Ok(Summary { revision, compacted, objects: map.len(), records })
}

fn write_file(view: &View, target: &Path) -> Result<()> {
    let partial = target.with_extension("partial");
    let failed = |e: &std::io::Error| io_error("write", &partial, e);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&partial).map_err(|e| failed(&e))?);
    let mut hasher = Xxh3::new();
    let mut count: u64 = 0;
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        file.write_all(bytes).map_err(|e| failed(&e))
    };
    put(MAGIC)?;
    view.everything(|key, value| {
        count += 1;
        put(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        put(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        put(key)?;
        put(value)
    })?;
    put(&[0; 8])?;
    put(&count.to_le_bytes())?;
    let checksum = hasher.digest();
    file.write_all(&checksum.to_le_bytes()).map_err(|e| failed(&e))?;
    let file = file.into_inner().map_err(|e| failed(e.error()))?;
    file.sync_all().map_err(|e| failed(&e))?;
    fs::rename(&partial, target).map_err(|e| io_error("create", target, &e))
}

/// The whole file is read and believed before anything is made of it.
fn verify_file(path: &Path) -> Result<()> {
    read_file(path, |_, _| Ok(()))
}

fn read_file(path: &Path, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let damaged = || StoreError::Corrupt(format!("the backup {} is damaged or cut short", path.display()));
    let file = File::open(path).map_err(|e| io_error("open", path, &e))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut hasher = Xxh3::new();
    let mut take = |buffer: &mut [u8], hashed: bool| {
        file.read_exact(buffer).map_err(|_| damaged())?;
        if hashed {
            hasher.update(buffer);
        }
        Ok::<u64, StoreError>(hasher.digest())
    };
    let mut magic = [0; MAGIC.len()];
    take(&mut magic, true)?;
    if magic != MAGIC {
        return Err(StoreError::Incompatible { path: path.to_owned(), why: "it is no backup of this version".into() });
    }
    let mut count: u64 = 0;
    loop {
        let mut lengths = [0; 8];
        take(&mut lengths, true)?;
        let [a, b, c, d, e, f, g, h] = lengths;
        let (key, value) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize);
        if key == 0 {
            break;
        }
        if key + value > LONGEST {
            return Err(damaged());
        }
        let mut record = vec![0; key + value];
        take(&mut record, true)?;
        visit(&record[..key], &record[key..])?;
        count += 1;
    }
    let mut number = [0; 8];
    let checksum = take(&mut number, true)?;
    let mut written = [0; 8];
    take(&mut written, false)?;
    if u64::from_le_bytes(number) != count || u64::from_le_bytes(written) != checksum {
        return Err(damaged());
    }
    Ok(())
}

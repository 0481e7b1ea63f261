//! A store in one file: taken from a live store, put back into an empty folder, and looked at.
//!
//! `ferry-backup 1\n`, then records of the table (two lengths, key, value), then an empty record, the number of records
//! and a checksum of all before it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::disk::{Disk, View};
use super::folder::{self, Folder, io_error};
use super::history::{self, event};
use super::record::{self, Record};
use super::{EmbeddedStore, Options, Shared, journal, manifest, stream};
use crate::types::{Event, EventKind, Revision};
use crate::{Result, StoreError, key};

const MAGIC: &[u8] = b"ferry-backup 1\n";
/// Longer than any record that the store accepts.
const LONGEST: usize = key::MAX_VALUE + key::MAX_SEAL + key::MAX_KEY + 1024;
pub(super) const BATCH_BYTES: usize = 8 << 20;
/// More revisions than a cluster makes after a backup and before it is restored.
pub(super) const AHEAD: Revision = 1_000_000_000;

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
        stream::blocking(move || write_file(&shared.still_view()?, &target)).await
    }

    /// The same into whatever takes it, a socket say; `receive` makes a file of it.
    pub async fn backup_to(&self, mut target: impl Write + Send + 'static) -> Result<()> {
        let shared = self.shared.clone();
        stream::blocking(move || write_to(&shared.still_view()?, &mut target, "the receiver")).await
    }

    /// Visits every change to a key that is still in the history, oldest first; false ends it.
    pub async fn history(&self, key: &str, visit: impl FnMut(&Event) -> bool + Send + 'static) -> Result<()> {
        key::check_key(key)?;
        let (shared, key) = (self.shared.clone(), key.to_owned());
        stream::blocking(move || changes(&shared.still_view()?, &key, visit)).await
    }

    /// Reads every table and every record while the store serves.
    pub async fn check_live(&self) -> Result<Summary> {
        let shared = self.shared.clone();
        stream::blocking(move || {
            let (disk, view) = {
                let _still = shared.compacting.lock();
                let disk = shared.disk()?;
                let view = disk.view();
                (disk, view)
            };
            disk.verify_tables()?;
            summary(&view)
        })
        .await
    }

    /// Makes a store of a backup. The folder must be empty or absent; it is usable only once everything is in it. Returns
    /// what the backup has.
    ///
    /// Revisions go on far above those of the backup, and everything before is compacted: clients that go on have seen
    /// revisions which were given after the backup and will be given again. They have to list anew.
    pub fn restore(backup: &Path, path: &Path) -> Result<Summary> {
        read_backup(backup)?;
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
        let mut mark = disk.batch();
        mark.compacted(found.revision.saturating_add(AHEAD));
        disk.commit(mark)?;
        folder.seal()?;
        Ok(found)
    }

    /// Reads all of a folder that no process has open: every log, every table, every record.
    pub fn check(path: &Path) -> Result<Summary> {
        let (_folder, disk) = open_folder(path)?;
        disk.verify_tables()?;
        summary(&disk.view()).map_err(|error| disk.name_damage(error))
    }

    /// A backup of a folder that no process has open.
    pub fn backup_folder(path: &Path, target: &Path) -> Result<Summary> {
        let (_folder, disk) = open_folder(path)?;
        write_file(&disk.view(), target).map_err(|error| disk.name_damage(error))
    }

    /// The history of a key in a folder that no process has open.
    pub fn history_of_folder(path: &Path, key: &str, visit: impl FnMut(&Event) -> bool) -> Result<()> {
        key::check_key(key)?;
        let (_folder, disk) = open_folder(path)?;
        changes(&disk.view(), key, visit).map_err(|error| disk.name_damage(error))
    }
}

impl Shared {
    /// Waits for a compaction, which takes its time. Blocks.
    fn still_view(&self) -> Result<View> {
        // No compaction may begin between the mark and the view.
        let _still = self.compacting.lock();
        Ok(self.disk()?.view())
    }
}

/// The tables alone, without the work of a running store: no lease ends, nothing is compacted.
pub(super) fn open_folder(path: &Path) -> Result<(Folder, Disk)> {
    if !path.join(folder::FORMAT).exists() {
        return Err(StoreError::Incompatible { path: path.to_owned(), why: "it holds no store".into() });
    }
    let folder = Folder::open(path)?;
    let tables = folder.tables();
    manifest::check(&tables)?;
    journal::check(&tables)?;
    let disk = Disk::open(&tables, &Options::default())?;
    Ok((folder, disk))
}

fn changes(view: &View, key: &str, mut visit: impl FnMut(&Event) -> bool) -> Result<()> {
    view.scan(0, Revision::MAX, |place, bytes| {
        if Record::key(bytes).is_some_and(|found| found != key) {
            return Ok(true);
        }
        let mut record = view.decode(place, bytes)?;
        // What it replaced may be compacted.
        if let Some(previous) = record.previous
            && view.record(previous)?.is_none()
        {
            record.previous = None;
        }
        Ok(visit(&event(view, record)?))
    })
}

pub(super) fn summary(view: &View) -> Result<Summary> {
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

/// Another name each time: what is there under any other is not ours.
fn partial(target: &Path) -> Result<PathBuf> {
    let mut number = [0; 8];
    let random = aws_lc_rs::rand::fill(&mut number);
    random.map_err(|_| StoreError::Unavailable("the system gives no random numbers".into()))?;
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".partial-{:016x}", u64::from_ne_bytes(number)));
    Ok(name.into())
}

/// Under its own name only once it is whole, durable and read back.
fn finish_file(target: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Summary> {
    let partial = partial(target)?;
    let failed = |e: &std::io::Error| io_error("write", &partial, e);
    let mut options = OpenOptions::new();
    // Secrets are in it.
    let options = options.write(true).create_new(true).mode(0o600);
    let created = options.open(&partial).map_err(|e| failed(&e))?;
    let finished = || {
        let mut file = BufWriter::with_capacity(1 << 20, created);
        write(&mut file)?;
        let file = file.into_inner().map_err(|e| failed(e.error()))?;
        file.sync_all().map_err(|e| failed(&e))?;
        let found = read_backup(&partial)?;
        fs::rename(&partial, target).map_err(|e| io_error("create", target, &e))?;
        if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| io_error("sync", folder, &e))?;
        }
        Ok(found)
    };
    finished().inspect_err(|_| {
        // What is left of it is no backup; the first error is the one that matters.
        let _ = fs::remove_file(&partial);
    })
}

fn write_file(view: &View, target: &Path) -> Result<Summary> {
    finish_file(target, |file| write_to(view, file, &target.display().to_string()))
}

/// Makes a file of a backup that arrives from elsewhere.
pub fn receive(mut source: impl Read, target: &Path) -> Result<Summary> {
    finish_file(target, |file| std::io::copy(&mut source, file).map(drop).map_err(|e| io_error("write", target, &e)))
}

fn write_to(view: &View, target: &mut dyn Write, name: &str) -> Result<()> {
    let mut hasher = Xxh3::new();
    let mut count: u64 = 0;
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        target.write_all(bytes).map_err(|e| io_error("write", Path::new(name), &e))
    };
    put(MAGIC)?;
    view.everything(|key, value| {
        // Of no use in another folder, and unknown to those who read backups of this version.
        if key == record::FINISHED {
            return Ok(());
        }
        count += 1;
        put(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        put(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        put(key)?;
        put(value)
    })?;
    put(&[0; 8])?;
    put(&count.to_le_bytes())?;
    let checksum = hasher.digest();
    target
        .write_all(&checksum.to_le_bytes())
        .and_then(|()| target.flush())
        .map_err(|e| io_error("write", Path::new(name), &e))
}

/// Reads a backup to its end: the whole file is believed before anything is made of it.
pub fn read_backup(path: &Path) -> Result<Summary> {
    let damaged = || StoreError::Corrupt(format!("the backup {} has a record that cannot be read", path.display()));
    let mut found = Summary { revision: history::FIRST, compacted: 0, objects: 0, records: 0 };
    let mut alive = HashSet::new();
    read_file(path, |key, value| {
        if key == record::COMPACTED {
            found.compacted = u64::from_be_bytes(value.try_into().map_err(|_| damaged())?);
            found.revision = found.revision.max(found.compacted);
        } else if let Some(place) = record::history_place(key) {
            // In the order of revisions: the last word on a key is the one that counts.
            let record = Record::decode(place.revision, value).ok_or_else(damaged)?;
            let hash = xxhash_rust::xxh3::xxh3_128(record.entry.key.as_bytes());
            if record.kind == EventKind::Delete {
                alive.remove(&hash)
            } else {
                alive.insert(hash)
            };
            found.revision = found.revision.max(place.revision);
            found.records += 1;
        } else if record::lease_id(key).zip(record::LeaseRecord::decode(value)).is_none() {
            return Err(damaged());
        }
        Ok(())
    })?;
    Ok(Summary { objects: alive.len(), ..found })
}

fn read_file(path: &Path, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let damaged = || StoreError::Corrupt(format!("the backup {} is damaged or cut short", path.display()));
    let no_backup = |why: String| StoreError::Incompatible { path: path.to_owned(), why };
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
    take(&mut magic, true).map_err(|_| no_backup("it is no backup of a store".into()))?;
    if magic != MAGIC {
        let why = match magic.strip_prefix(b"ferry-backup ") {
            Some(rest) => format!("it is a backup of another version ({:?})", String::from_utf8_lossy(rest).trim_end()),
            None => "it is no backup of a store".to_owned(),
        };
        return Err(no_backup(why));
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
    let more = take(&mut [0], false).is_ok();
    if u64::from_le_bytes(number) != count || u64::from_le_bytes(written) != checksum || more {
        return Err(damaged());
    }
    Ok(())
}

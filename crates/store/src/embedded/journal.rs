//! Checks fjall's log before fjall reads it.
//!
//! fjall stops at the first entry it cannot read and cuts off the rest, as it must for a write that a crash interrupted.
//! In the middle of a log that would silently drop acknowledged writes, so the two are told apart here: an interrupted
//! write is the last thing in the log, damage has whole batches behind it.
//!
//! The form of the log is fjall's own affair and may change with any release: its version is fixed in `Cargo.toml`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::folder::io_error;
use crate::{Result, StoreError};

/// The release whose log is read here, and in which it was last compared with `journal/` of fjall's source.
#[cfg(test)]
pub(super) const REVIEWED: (&str, &str) = ("fjall", "3.1.13");

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";
/// No interrupted write is longer: groups are bounded.
const LONGEST_TAIL: u64 = 256 << 20;

/// The logs in the order they were written.
fn logs(tables: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut logs = Vec::new();
    for file in fs::read_dir(tables).map_err(|e| io_error("read", tables, &e))? {
        let path = file.map_err(|e| io_error("read", tables, &e))?.path();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jnl")) {
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            let number = number.ok_or_else(|| StoreError::Corrupt(format!("{} is no log", path.display())))?;
            logs.push((number, path));
        }
    }
    logs.sort_unstable();
    Ok(logs)
}

/// Verifies every log and cuts an interrupted write off the last.
pub(crate) fn check(tables: &Path) -> Result<()> {
    let logs = logs(tables)?;
    let Some((newest, _)) = logs.last() else {
        return Err(StoreError::Corrupt(format!("there is no log in {}", tables.display())));
    };
    let newest = *newest;
    for (expected, (number, path)) in (logs[0].0..).zip(logs) {
        if number != expected {
            let missing = tables.join(format!("{expected}.jnl"));
            return Err(StoreError::Corrupt(format!("{} is missing", missing.display())));
        }
        let damaged = |at: u64| StoreError::Corrupt(format!("{} is damaged at byte {at}", path.display()));
        let good = whole_batches(&path).map_err(|e| io_error("read", &path, &e))?;
        let tail = tail(&path, good).map_err(|e| io_error("read", &path, &e))?;
        let is_interrupted_write = match tail {
            Tail::Zeroes => continue,
            Tail::TooLong => false,
            Tail::Bytes(bytes) => number == newest && !has_batch(&bytes),
        };
        if !is_interrupted_write {
            return Err(damaged(good));
        }
        tracing::warn!("{}: a write that was interrupted at byte {good} is dropped", path.display());
        let file = OpenOptions::new().write(true).open(&path).map_err(|e| io_error("open", &path, &e))?;
        file.set_len(good).and_then(|()| file.sync_all()).map_err(|e| io_error("truncate", &path, &e))?;
    }
    Ok(())
}

/// Where the last whole batch of the run from the start ends.
fn whole_batches(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut good = 0;
    while let Some(size) = batch(&mut reader, length - good)? {
        good += size;
    }
    Ok(good)
}

/// What lies behind the whole batches.
enum Tail {
    Zeroes,
    Bytes(Vec<u8>),
    /// More than a single write can have.
    TooLong,
}

fn tail(path: &Path, from: u64) -> io::Result<Tail> {
    let mut file = File::open(path)?;
    let mut at = from;
    // Logs are preallocated: holes are skipped, not read.
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data))?;
        file.seek(SeekFrom::Start(data))?;
        let mut piece = vec![0; usize::try_from((end - data).min(1 << 20)).unwrap_or(0)];
        file.read_exact(&mut piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            let length = file.metadata()?.len() - from;
            if length > LONGEST_TAIL {
                return Ok(Tail::TooLong);
            }
            file.seek(SeekFrom::Start(from))?;
            let mut all = Vec::new();
            file.read_to_end(&mut all)?;
            return Ok(Tail::Bytes(all));
        }
        at = data + piece.len() as u64;
    }
    Ok(Tail::Zeroes)
}

/// Whether a whole batch begins anywhere but at the start, which is known to be bad.
fn has_batch(tail: &[u8]) -> bool {
    (1..tail.len()).any(|at| {
        let rest = &tail[at..];
        rest[0] == START
            && matches!(rest.get(13), Some(&(ITEM | CLEAR)))
            && batch(&mut &*rest, rest.len() as u64).is_ok_and(|size| size.is_some())
    })
}

struct Limited<'a, R> {
    reader: &'a mut R,
    left: u64,
    hasher: Xxh3,
}

impl<R: Read> Limited<'_, R> {
    /// None at the end of what there is.
    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let Some(left) = self.left.checked_sub(N as u64) else { return Ok(None) };
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.left = left;
        Ok(Some(bytes))
    }

    fn hash_next(&mut self, mut count: u64) -> io::Result<Option<()>> {
        let Some(left) = self.left.checked_sub(count) else { return Ok(None) };
        let mut piece = [0; 4096];
        while count > 0 {
            let size = usize::try_from(count.min(4096)).unwrap_or(4096);
            self.reader.read_exact(&mut piece[..size])?;
            self.hasher.update(&piece[..size]);
            count -= size as u64;
        }
        self.left = left;
        Ok(Some(()))
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(wide)
}

/// The size of the batch that begins here, or None where none does.
fn batch<R: Read>(reader: &mut R, left: u64) -> io::Result<Option<u64>> {
    let mut input = Limited { reader, left, hasher: Xxh3::new() };
    match read_batch(&mut input)? {
        Some(()) => Ok(Some(left - input.left)),
        None => Ok(None),
    }
}

fn read_batch<R: Read>(input: &mut Limited<'_, R>) -> io::Result<Option<()>> {
    let Some(start) = input.take::<13>()? else { return Ok(None) };
    if start[0] != START {
        return Ok(None);
    }
    for _ in 0..number::<4>(&start, 1) {
        let Some([tag]) = input.take::<1>()? else { return Ok(None) };
        input.hasher.update(&[tag]);
        match tag {
            ITEM => {
                // Type, compression, table, and the lengths of key, value, and value as written.
                let Some(head) = input.take::<20>()? else { return Ok(None) };
                input.hasher.update(&head);
                let length = number::<2>(&head, 10) + number::<4>(&head, 16);
                if input.hash_next(length)?.is_none() {
                    return Ok(None);
                }
            }
            CLEAR => {
                if input.hash_next(8)?.is_none() {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        }
    }
    let Some(end) = input.take::<13>()? else { return Ok(None) };
    let whole = end[0] == END && number::<8>(&end, 1) == input.hasher.digest() && &end[9..] == TRAILER;
    Ok(whole.then_some(()))
}

#[cfg(test)]
mod tests {
    use super::super::manifest;

    /// Files of another release would be taken for damaged, or damage in them for none. Whoever moves the version
    /// compares its source with what is read here, and then moves the constant.
    #[test]
    fn formats_are_read_of_the_releases_they_were_compared_with() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let read = |file: &str| std::fs::read_to_string(format!("{root}{file}")).expect(file);
        let (locked, required) = (read("Cargo.lock"), read("Cargo.toml"));
        for (name, version) in [super::REVIEWED, manifest::REVIEWED] {
            let package = format!("name = \"{name}\"\nversion = \"");
            let found: Vec<&str> = locked.split(&package).skip(1).filter_map(|rest| rest.split('"').next()).collect();
            assert_eq!(found, [version], "{name} in Cargo.lock: is the format of its files still the one read here?");
            let exact = required
                .lines()
                .any(|line| line.starts_with(&format!("{name} = ")) && line.contains(&format!("\"={version}\"")));
            assert!(exact, "Cargo.toml must require {name} ={version}");
        }
    }
}

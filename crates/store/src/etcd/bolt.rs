//! As much of the format of etcd's database file (bbolt) as it takes to look at a snapshot, and to make it the beginning of a new
//! cluster. Pages are read one at a time; nothing in the file is believed before it is checked.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::types::Revision;
use crate::{Result, StoreError};

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const VERSION: u32 = 2;
pub(super) const HEADER: usize = 16;
pub(super) const ELEMENT: usize = 16;
/// Of the two pages that say where everything is.
const META: usize = 64;
pub(super) const BRANCH: u16 = 1;
pub(super) const LEAF: u16 = 2;
/// An element whose value is a bucket.
pub(super) const BUCKET: u32 = 1;
const DEEPEST: usize = 64;
/// A page and those that go on with it: more than the largest value that etcd takes.
const LARGEST: u64 = 64 << 20;

/// What is known of who the members are, and how far a log was applied that a new cluster does not have.
const OF_MEMBERS: [&[u8]; 4] = [b"alarm", b"cluster", b"members", b"members_removed"];
const OF_LOG: [&[u8]; 2] = [b"consistent_index", b"term"];

pub(super) struct Database {
    file: File,
    page: u64,
    pages: u64,
    root: u64,
}

/// What is done with a key and its value.
type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// One key of a bucket.
struct Element<'a> {
    key: &'a [u8],
    value: &'a [u8],
    /// Where the value is in the file.
    place: u64,
    is_bucket: bool,
}

pub(super) fn damaged(why: &str) -> StoreError {
    StoreError::Corrupt(format!("this is no whole database of etcd: {why}"))
}

pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).ok_or_else(|| damaged("a page ends early"))
}

fn short(bytes: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(number(bytes, at)?))
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(number(bytes, at)?))
}

fn long(bytes: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(number(bytes, at)?))
}

/// FNV-1a, by which such a page is known to be whole.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn read(file: &File, at: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).map_err(|error| damaged(&error.to_string()))?;
    Ok(bytes)
}

impl Database {
    pub(super) fn open(path: &Path, write: bool) -> Result<Self> {
        let failed =
            |error: std::io::Error| StoreError::Unavailable(format!("cannot open {}: {error}", path.display()));
        let file = OpenOptions::new().read(true).write(write).open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let page = u64::from(word(&read(&file, 0, HEADER + META)?, HEADER + 8)?);
        if !page.is_power_of_two() || !(512..=1 << 20).contains(&page) {
            return Err(damaged("its pages have no usual size"));
        }
        let mut newest: Option<(u64, u64)> = None;
        for number in 0..2 {
            let meta = &read(&file, number * page, HEADER + META)?[HEADER..];
            let whole =
                word(meta, 0)? == MAGIC && word(meta, 4)? == VERSION && long(meta, 56)? == checksum(&meta[..56]);
            let (root, transaction) = (long(meta, 16)?, long(meta, 48)?);
            if whole && newest.is_none_or(|(_, other)| transaction > other) {
                newest = Some((root, transaction));
            }
        }
        let (root, _) = newest.ok_or_else(|| damaged("it does not say where anything is"))?;
        Ok(Self { file, page, pages: length / page, root })
    }

    /// Visits the elements of a bucket in order, by the page that is its root.
    fn visit(&self, root: u64, visit: &mut dyn FnMut(&Element<'_>) -> Result<()>) -> Result<()> {
        // A page that is its own descendant is met more often than there are pages.
        let mut left = self.pages;
        self.descend(root, DEEPEST, &mut left, visit)
    }

    fn descend(
        &self,
        page: u64,
        depth: usize,
        left: &mut u64,
        visit: &mut dyn FnMut(&Element<'_>) -> Result<()>,
    ) -> Result<()> {
        if page >= self.pages || depth == 0 || *left == 0 {
            return Err(damaged("a page leads nowhere"));
        }
        *left -= 1;
        let begin = page * self.page;
        let overflow = u64::from(word(&read(&self.file, begin, HEADER)?, 12)?);
        let length = (overflow + 1) * self.page;
        if page + overflow >= self.pages || length > LARGEST {
            return Err(damaged("a page is longer than the file"));
        }
        let bytes = read(&self.file, begin, usize::try_from(length).unwrap_or(usize::MAX))?;
        match short(&bytes, 8)? {
            BRANCH => {
                for index in 0..usize::from(short(&bytes, 10)?) {
                    self.descend(long(&bytes, HEADER + index * ELEMENT + 8)?, depth - 1, left, visit)?;
                }
                Ok(())
            }
            LEAF => elements(&bytes, begin, visit),
            _ => Err(damaged("a page is of no known kind")),
        }
    }

    /// The elements of a bucket, which may be kept in its own entry when it is small.
    fn bucket(&self, entry: &Element<'_>, visit: &mut dyn FnMut(&Element<'_>) -> Result<()>) -> Result<()> {
        match long(entry.value, 0)? {
            0 => elements(entry.value.get(HEADER..).unwrap_or_default(), entry.place + HEADER as u64, visit),
            root => self.visit(root, visit),
        }
    }

    /// Visits the elements of the bucket with this name; says whether there is one.
    fn named(&self, name: &[u8], visit: &mut dyn FnMut(&Element<'_>) -> Result<()>) -> Result<bool> {
        let mut found = false;
        self.visit(self.root, &mut |entry| {
            if !entry.is_bucket || entry.key != name {
                return Ok(());
            }
            found = true;
            self.bucket(entry, visit)
        })?;
        Ok(found)
    }

    /// Visits the keys and values of a bucket that may not be there.
    pub(super) fn pairs(&self, name: &[u8], visit: Visit<'_>) -> Result<()> {
        self.named(name, &mut |element| visit(element.key, element.value)).map(drop)
    }

    /// Where the members that the database knows serve their clients.
    pub(super) fn client_urls(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        self.pairs(b"members", &mut |_, member| {
            let member: serde_json::Value =
                serde_json::from_slice(member).map_err(|_| damaged("a member cannot be read"))?;
            let urls = member.get("clientURLs").and_then(serde_json::Value::as_array);
            found.extend(urls.into_iter().flatten().filter_map(|url| url.as_str().map(str::to_owned)));
            Ok(())
        })?;
        Ok(found)
    }

    /// The newest revision, and how many changes are kept.
    pub(super) fn summary(&self) -> Result<(Revision, u64)> {
        let (mut newest, mut changes) = (0, 0);
        let found = self.named(b"key", &mut |change| {
            newest = newest.max(Revision::from_be_bytes(number(change.key, 0)?));
            changes += 1;
            Ok(())
        })?;
        if !found {
            return Err(damaged("it holds no keys"));
        }
        Ok((newest, changes))
    }

    /// Makes it the beginning of a new cluster: its members are forgotten, and no log was applied to it.
    pub(super) fn forget_members(&self) -> Result<()> {
        let failed =
            |error: std::io::Error| StoreError::Unavailable(format!("the database cannot be written: {error}"));
        let mut changes: Vec<(u64, Vec<u8>)> = Vec::new();
        self.visit(self.root, &mut |entry| {
            if entry.is_bucket && entry.key == b"meta" {
                self.bucket(entry, &mut |known| {
                    if OF_LOG.contains(&known.key) {
                        changes.push((known.place, vec![0; known.value.len()]));
                    }
                    Ok(())
                })?;
            }
            if entry.is_bucket && OF_MEMBERS.contains(&entry.key) {
                let page = match long(entry.value, 0)? {
                    0 => entry.place + HEADER as u64,
                    root if root < self.pages => root * self.page,
                    _ => return Err(damaged("a bucket leads nowhere")),
                };
                if short(&read(&self.file, page, HEADER)?, 8)? != LEAF {
                    return Err(damaged("it has more members than a cluster can have"));
                }
                // A page without elements.
                changes.push((page + 10, vec![0; 2]));
            }
            Ok(())
        })?;
        for (place, bytes) in changes {
            self.file.write_all_at(&bytes, place).map_err(failed)?;
        }
        self.file.sync_all().map_err(failed)
    }
}

fn elements(bytes: &[u8], begin: u64, visit: &mut dyn FnMut(&Element<'_>) -> Result<()>) -> Result<()> {
    if short(bytes, 8)? != LEAF {
        return Err(damaged("a page is of no known kind"));
    }
    for index in 0..usize::from(short(bytes, 10)?) {
        let at = HEADER + index * ELEMENT;
        let field = |offset: usize| word(bytes, at + offset).map(|value| value as usize);
        let (flags, key, key_length, length) = (word(bytes, at)?, at + field(4)?, field(8)?, field(12)?);
        let value = key + key_length;
        let within = || Some((bytes.get(key..value)?, bytes.get(value..value.checked_add(length)?)?));
        let (key, content) = within().ok_or_else(|| damaged("an element is outside of its page"))?;
        visit(&Element { key, value: content, place: begin + value as u64, is_bucket: flags & BUCKET != 0 })?;
    }
    Ok(())
}

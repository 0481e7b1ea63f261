//! Writes a database file as etcd's (bbolt) from keys that come in order: leaves as they fill, then the levels above them, and
//! last the page that says where everything is. A file that was cut off is none.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::bolt::{BRANCH, BUCKET, ELEMENT, HEADER, LEAF, MAGIC, VERSION, checksum, damaged};
use crate::{Result, StoreError};

const PAGE_SIZE: u32 = 4096;
const PAGE: usize = PAGE_SIZE as usize;
const META: u16 = 4;
const FREE_LIST: u16 = 16;
/// Behind the two pages that say where everything is.
const FREE_LIST_PAGE: u64 = 2;

/// The first key of a page, and the page.
type Child = (Vec<u8>, u64);

pub(super) struct Writer {
    file: BufWriter<File>,
    next: u64,
    /// By name, with the page that is the root of each.
    buckets: Vec<Child>,
}

fn failed(error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("the database cannot be written: {error}"))
}

fn short(number: usize) -> Result<[u8; 4]> {
    u32::try_from(number).map(u32::to_le_bytes).map_err(|_| damaged("an element is too large"))
}

/// What comes before the elements of a page, and the elements' own heads, which say how far from them the content is.
fn page(id: u64, kind: u16, heads: &[[u8; ELEMENT]], content: &[u8]) -> Result<Vec<u8>> {
    let length = HEADER + heads.len() * ELEMENT + content.len();
    let pages = length.div_ceil(PAGE).max(1);
    let mut bytes = Vec::with_capacity(pages * PAGE);
    bytes.extend(id.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    let count = u16::try_from(heads.len()).map_err(|_| damaged("a page has too many elements"))?;
    bytes.extend(count.to_le_bytes());
    bytes.extend(short(pages - 1)?);
    heads.iter().for_each(|head| bytes.extend(head));
    bytes.extend(content);
    bytes.resize(pages * PAGE, 0);
    Ok(bytes)
}

/// From an element's head to its content, which starts behind all heads.
fn distance(index: usize, count: usize, before: usize) -> Result<[u8; 4]> {
    short((count - index) * ELEMENT + before)
}

impl Writer {
    /// A new file, for nobody else.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|e| failed(&e))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.seek(SeekFrom::Start((FREE_LIST_PAGE + 1) * PAGE as u64)).map_err(|e| failed(&e))?;
        Ok(Self { file, next: FREE_LIST_PAGE + 1, buckets: Vec::new() })
    }

    fn put(&mut self, kind: u16, heads: &[[u8; ELEMENT]], content: &[u8]) -> Result<u64> {
        let (id, bytes) = (self.next, page(self.next, kind, heads, content)?);
        self.file.write_all(&bytes).map_err(|e| failed(&e))?;
        self.next += (bytes.len() / PAGE) as u64;
        Ok(id)
    }

    fn leaf(&mut self, flags: u32, elements: &[(Vec<u8>, Vec<u8>)]) -> Result<u64> {
        let (mut heads, mut content) = (Vec::with_capacity(elements.len()), Vec::new());
        for (index, (key, value)) in elements.iter().enumerate() {
            let mut head = [0; ELEMENT];
            head[..4].copy_from_slice(&flags.to_le_bytes());
            head[4..8].copy_from_slice(&distance(index, elements.len(), content.len())?);
            head[8..12].copy_from_slice(&short(key.len())?);
            head[12..].copy_from_slice(&short(value.len())?);
            heads.push(head);
            content.extend_from_slice(key);
            content.extend_from_slice(value);
        }
        self.put(LEAF, &heads, &content)
    }

    fn branch(&mut self, children: &[Child]) -> Result<u64> {
        let (mut heads, mut content) = (Vec::with_capacity(children.len()), Vec::new());
        for (index, (key, id)) in children.iter().enumerate() {
            let mut head = [0; ELEMENT];
            head[..4].copy_from_slice(&distance(index, children.len(), content.len())?);
            head[4..8].copy_from_slice(&short(key.len())?);
            head[8..].copy_from_slice(&id.to_le_bytes());
            heads.push(head);
            content.extend_from_slice(key);
        }
        self.put(BRANCH, &heads, &content)
    }

    /// Pages above pages until there is one.
    fn root(&mut self, mut level: Vec<Child>) -> Result<u64> {
        while level.len() > 1 {
            let mut groups: Vec<Vec<Child>> = vec![Vec::new()];
            let mut size = HEADER;
            for child in level {
                let added = ELEMENT + child.0.len();
                // A page with one page below it would be of no use.
                if size + added > PAGE && groups.last().is_some_and(|group| group.len() > 1) {
                    groups.push(Vec::new());
                    size = HEADER;
                }
                size += added;
                groups.last_mut().into_iter().for_each(|group| group.push(child.clone()));
            }
            if groups.last().is_some_and(|group| group.len() == 1)
                && let Some(alone) = groups.pop()
            {
                groups.last_mut().into_iter().for_each(|group| group.extend(alone.clone()));
            }
            let mut above = Vec::with_capacity(groups.len());
            for group in groups {
                let first = group.first().map(|(key, _)| key.clone()).unwrap_or_default();
                above.push((first, self.branch(&group)?));
            }
            level = above;
        }
        match level.pop() {
            Some((_, id)) => Ok(id),
            None => self.leaf(0, &[]),
        }
    }

    /// Begins a bucket. They come in the order of their names, and their keys in order.
    pub(super) fn bucket(&mut self, name: &[u8]) -> Bucket<'_> {
        Bucket { writer: self, name: name.to_vec(), elements: Vec::new(), size: HEADER, children: Vec::new() }
    }

    /// Makes it whole and durable.
    pub(super) fn finish(mut self) -> Result<()> {
        let buckets: Vec<(Vec<u8>, Vec<u8>)> = std::mem::take(&mut self.buckets)
            .into_iter()
            .map(|(name, root)| (name, [root.to_le_bytes(), 0_u64.to_le_bytes()].concat()))
            .collect();
        let root = self.leaf(BUCKET, &buckets)?;
        let pages = self.next;
        let mut first = Vec::new();
        for id in 0..2_u64 {
            let mut meta = Vec::new();
            for word in [MAGIC, VERSION, PAGE_SIZE, 0] {
                meta.extend(word.to_le_bytes());
            }
            for long in [root, 0, FREE_LIST_PAGE, pages, id] {
                meta.extend(long.to_le_bytes());
            }
            meta.extend(checksum(&meta).to_le_bytes());
            first.extend(page(id, META, &[], &meta)?);
        }
        first.extend(page(FREE_LIST_PAGE, FREE_LIST, &[], &[])?);
        let file = &mut self.file;
        // What is behind them is on disk first.
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| failed(&e))?;
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&first)).map_err(|e| failed(&e))?;
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|e| failed(&e))
    }
}

pub(super) struct Bucket<'a> {
    writer: &'a mut Writer,
    name: Vec<u8>,
    elements: Vec<(Vec<u8>, Vec<u8>)>,
    size: usize,
    children: Vec<Child>,
}

impl Bucket<'_> {
    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        let added = ELEMENT + key.len() + value.len();
        if self.size + added > PAGE && !self.elements.is_empty() {
            self.flush()?;
        }
        self.size += added;
        self.elements.push((key, value));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let elements = std::mem::take(&mut self.elements);
        self.size = HEADER;
        if let Some((first, _)) = elements.first() {
            self.children.push((first.clone(), self.writer.leaf(0, &elements)?));
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.flush()?;
        let root = self.writer.root(self.children)?;
        self.writer.buckets.push((self.name, root));
        Ok(())
    }
}

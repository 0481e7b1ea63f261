//! How much of everything a layer may bring: whoever pushes an image chooses the numbers in it.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::io::Errno;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Below this, unpacking stops before the disk is full for everybody.
pub(crate) const DISK_RESERVE: u64 = 256 * MIB;
const INODE_RESERVE: u64 = 10_000;
const LOOK_EVERY: u64 = 64 * MIB;
/// Zeros shrink to a thousandth; nothing that an image is meant to have shrinks further than to this part of it.
const DENSEST: u64 = 200;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of everything that comes before the content of one entry: long names, attributes, maps of sparse files.
    pub(super) header: u64,
    /// Files, folders that they need, and marks.
    pub(super) entries: u64,
    /// Of the names of folders that are remembered until the end.
    pub(super) names: u64,
    /// Of the archive without compression, and of what is written.
    pub(super) content: u64,
}

impl Limits {
    /// For a layer that was sent as so many bytes.
    pub(crate) fn of(sent: u64) -> Self {
        let content = sent.saturating_mul(DENSEST).clamp(GIB, 256 * GIB);
        Self { header: MIB, entries: 1_000_000, names: 64 * MIB, content }
    }
}

/// What is left of the limits on bytes.
pub(super) struct Meter {
    header: Cell<Option<u64>>,
    read: Cell<u64>,
    written: Cell<u64>,
    limits: Limits,
}

impl Meter {
    pub(super) fn new(limits: Limits) -> Rc<Self> {
        let content = || Cell::new(limits.content);
        Rc::new(Self { header: Cell::new(None), read: content(), written: content(), limits })
    }

    /// What is read until the next call with `false` belongs to one header.
    pub(super) fn in_header(&self, is_header: bool) {
        self.header.set(is_header.then_some(self.limits.header));
    }

    fn exceeded(&self, in_header: bool) -> io::Error {
        let (what, limit) = if in_header { ("a header", self.limits.header) } else { ("content", self.limits.content) };
        io::Error::other(format!("it has {what} of more than {limit} bytes"))
    }
}

/// An archive that is read within its limits.
pub(super) struct Metered<R> {
    pub(super) inner: R,
    pub(super) meter: Rc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (header, read) = (self.meter.header.get(), self.meter.read.get());
        let left = read.min(header.unwrap_or(u64::MAX));
        // One byte more than is allowed tells that there is more, where otherwise it would seem to end.
        let most = usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1).min(buffer.len());
        let length = self.inner.read(&mut buffer[..most])?;
        if length as u64 > left {
            return Err(self.meter.exceeded(header.is_some_and(|header| header == left)));
        }
        self.meter.read.set(read - length as u64);
        self.meter.header.set(header.map(|header| header - length as u64));
        Ok(length)
    }
}

/// The room that the disk has.
pub(crate) struct Room<F> {
    on: F,
    taken: u64,
}

impl<F: AsFd> Room<F> {
    pub(crate) fn new(on: F) -> io::Result<Self> {
        let mut room = Self { on, taken: LOOK_EVERY };
        room.take(0)?;
        Ok(room)
    }

    /// So much is about to be written.
    pub(crate) fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken < LOOK_EVERY {
            return Ok(());
        }
        self.taken = 0;
        let Ok(space) = rustix::fs::fstatvfs(&self.on) else { return Ok(()) };
        let few_bytes = space.f_bavail.saturating_mul(space.f_frsize) < DISK_RESERVE;
        // Some file systems have no such number.
        let few_inodes = space.f_files > 0 && space.f_favail < INODE_RESERVE;
        if few_bytes || few_inodes { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }
}

/// Copies everything, looking at the room while it does.
pub(super) fn copy<F: AsFd>(
    from: &mut impl Read,
    to: &mut impl Write,
    meter: &Meter,
    room: &mut Room<F>,
) -> io::Result<u64> {
    let mut buffer = vec![0; 128 * 1024];
    let mut copied = 0;
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(copied);
        }
        let left = meter.written.get().checked_sub(length as u64);
        meter.written.set(left.ok_or_else(|| meter.exceeded(false))?);
        room.take(length as u64)?;
        to.write_all(&buffer[..length])?;
        copied += length as u64;
    }
}

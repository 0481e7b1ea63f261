//! What files take on disk.

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, statat};

use crate::walk::{Visitor, walk};

/// Files with several names that are remembered: somebody can make more of them than there is memory.
const REMEMBERED: usize = 100_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

#[derive(Default)]
struct Counter {
    sum: Usage,
    linked: HashSet<u64>,
}

impl Counter {
    fn add(&mut self, stat: &Stat) {
        // A file with several names is there once.
        let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let mut again = || self.linked.len() < REMEMBERED && !self.linked.insert(stat.st_ino);
        if is_folder || stat.st_nlink < 2 || !again() {
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            self.sum.bytes = self.sum.bytes.saturating_add(bytes);
            self.sum.inodes += 1;
        }
    }
}

impl Visitor for Counter {
    fn enter(&mut self, _: BorrowedFd<'_>, _: &CStr, stat: &Stat) -> io::Result<bool> {
        self.add(stat);
        Ok(true)
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// What a file, or a folder with all below it, takes on its own file system. What goes away meanwhile, or cannot be read,
/// does not count.
pub fn count(path: &Path) -> Usage {
    let mut counter = Counter::default();
    let Ok(top) = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) else { return Usage::default() };
    counter.add(&top);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if FileType::from_raw_mode(top.st_mode).is_dir()
        && let Ok(folder) = openat(CWD, path, flags, Mode::empty())
    {
        let _ = walk(folder, &mut counter);
    }
    counter.sum
}

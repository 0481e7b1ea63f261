//! Giving a volume to a group: every file in it becomes the group's.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, chmodat, chownat, fchmod, fchown, fstat, openat};
use rustix::io::Errno;

use crate::file::own_path;
use crate::walk::{Visitor, walk};

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const ENTER: u32 = 0o110;
const INHERIT: u32 = 0o2000;

/// What the group may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

impl Access {
    fn file(self) -> u32 {
        match self {
            Self::Read => READ_ONLY,
            Self::ReadWrite => READ_WRITE,
        }
    }

    fn folder(self) -> u32 {
        self.file() | ENTER | INHERIT
    }
}

struct Giver {
    group: Gid,
    access: Access,
}

impl Giver {
    fn folder(&self, folder: impl AsFd) -> io::Result<()> {
        let folder = folder.as_fd();
        let mode = fstat(folder)?.st_mode & 0o7777 | self.access.folder();
        fchown(folder, None, Some(self.group))?;
        Ok(fchmod(folder, Mode::from_raw_mode(mode))?)
    }
}

impl Visitor for Giver {
    fn enter(&mut self, folder: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<bool> {
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Ok(true);
        }
        // The very thing that is looked at is what is changed, whatever has its name by then.
        let handle = match openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(true),
            opened => opened?,
        };
        let mode = fstat(&handle)?.st_mode;
        chownat(&handle, c"", None, Some(self.group), AtFlags::EMPTY_PATH)?;
        let kind = FileType::from_raw_mode(mode);
        if kind != FileType::Symlink && !kind.is_dir() {
            let mode = Mode::from_raw_mode(mode & 0o7777 | self.access.file());
            chmodat(CWD, own_path(&handle), mode, AtFlags::empty())?;
        }
        Ok(true)
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.folder(folder)
    }
}

/// Gives a folder and all below it to a group. `unless_given` spares the walk where the folder shows that it was done: it
/// is the last to be given.
pub fn give(path: &Path, group: u32, access: Access, unless_given: bool) -> io::Result<()> {
    let top = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&top)?;
    if unless_given && stat.st_gid == group && stat.st_mode & access.folder() == access.folder() {
        return Ok(());
    }
    let mut giver = Giver { group: Gid::from_raw(group), access };
    walk(top.try_clone()?, &mut giver)?;
    giver.folder(top)
}

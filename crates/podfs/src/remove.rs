//! Removing folders with all that is in them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::openat2;
use crate::walk::{Visitor, walk};

struct Remover;

fn unlink(folder: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> io::Result<()> {
    match unlinkat(folder, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Visitor for Remover {
    const REMOVES: bool = true;

    fn enter(&mut self, folder: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<bool> {
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            unlink(folder, name, AtFlags::empty())?;
        }
        Ok(true)
    }

    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr, _: BorrowedFd<'_>) -> io::Result<()> {
        unlink(parent, name, AtFlags::REMOVEDIR)
    }
}

/// Removes a name in a folder and all below it; what is not there is no error. A mount below is an error, and nothing of
/// what is mounted is removed.
pub fn remove_at(folder: impl AsFd, name: &Path) -> io::Result<()> {
    let folder = folder.as_fd();
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(stat) if !FileType::from_raw_mode(stat.st_mode).is_dir() => {
            return Ok(unlinkat(folder, name, AtFlags::empty())?);
        }
        Ok(_) => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let top = match openat2(folder, name, flags, Mode::empty(), inside) {
        Err(Errno::XDEV) => return Err(io::Error::other("something is mounted there")),
        opened => opened?,
    };
    walk(top, &mut Remover)?;
    Ok(unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// The same by path; the folder that holds it is the caller's own.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} cannot be removed", path.display())));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(parent) => remove_at(parent, Path::new(name)),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

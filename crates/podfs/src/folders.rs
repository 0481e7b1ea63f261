//! The folders directly in a folder: made, found empty, removed while they are.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, fchmod, mkdirat, statvfs, unlinkat};
use rustix::io::Errno;

use crate::openat2;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(folder: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(folder, name, FOLDER, Mode::empty(), inside)
}

fn is_empty(folder: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes a folder with this mode. One that is there and empty gets the mode; one with something in it stays as it is.
pub fn make_at(folder: impl AsFd, name: &Path, mode: u32) -> io::Result<()> {
    let folder = folder.as_fd();
    match mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let made = open(folder, name)?;
    if is_empty(&made)? {
        // Whatever the process's umask is, and whatever an earlier attempt came to.
        fchmod(&made, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Whether a folder of that name is there.
pub fn is_folder_at(folder: impl AsFd, name: &Path) -> io::Result<bool> {
    match open(folder.as_fd(), name) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The names of empty folders, `most` at most.
pub fn empty_folders(folder: impl AsFd, most: usize) -> io::Result<Vec<OsString>> {
    let folder = folder.as_fd();
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if names.len() >= most || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let name = OsString::from_vec(name.to_bytes().to_vec());
        match open(folder, Path::new(&name)) {
            Ok(inner) if is_empty(&inner)? => names.push(name),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(names)
}

/// Removes a folder if nothing is in it; whether it is gone.
pub fn remove_empty_at(folder: impl AsFd, name: &Path) -> io::Result<bool> {
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How many bytes the file system of a folder has for those who are not root.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

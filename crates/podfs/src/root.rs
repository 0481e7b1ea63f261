//! A folder as the root of everything below it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::{file, openat2};

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An opened folder of a volume or an image.
pub struct Root(OwnedFd);

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Root {
    /// The path itself is the caller's own; what is below need not be.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// A regular file, found as a process finds it whose root this folder is: links of an image stay inside.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let handle = openat2(&self.0, path, HANDLE, Mode::empty(), inside)?;
        file::reopen(&handle, OFlags::RDONLY)
    }

    /// A folder below, to be listed. A path that leads out is an error.
    pub fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.0, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), beneath)?)
    }

    /// Where a path leads as for a process whose root this folder is. For folders that nobody changes.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let handle = openat2(&self.0, path, HANDLE, Mode::empty(), inside)?;
        let found = readlinkat(CWD, file::own_path(&handle), Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(found.into_bytes())))
    }

    /// A part of a volume, of whatever kind, without opening it. A path that leads out of the volume is an error. What is
    /// not there is made: folders with the mode of the volume itself.
    pub fn part(&self, path: &Path) -> io::Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.0, path, HANDLE, Mode::empty(), beneath) {
            Err(Errno::NOENT) => self.make(path),
            found => Ok(found?),
        }
    }

    /// Makes the missing folders one by one, each below the one just opened.
    fn make(&self, path: &Path) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(fstat(&self.0)?.st_mode & 0o777);
        let mut folder = openat(&self.0, c".", FOLDER, Mode::empty())?;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                _ => {
                    let message = format!("invalid path {:?}", path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
                }
            };
            let made = match mkdirat(&folder, name, mode) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            folder = openat2(&folder, name, FOLDER, Mode::empty(), ResolveFlags::BENEATH)?;
            if made {
                // Whatever the process's umask is.
                fchmod(&folder, mode)?;
            }
        }
        Ok(folder)
    }
}

//! Single files by their paths.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat};
use rustix::io::Errno;

use crate::openat2;

/// Refers to a thing without opening it, so that neither a FIFO waits nor a device acts.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn kind(of: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(of)?.st_mode))
}

fn described(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::RegularFile | FileType::Unknown => "of an unknown type",
    }
}

/// Opens what a handle refers to, if it is a regular file. Never waits, not even for the holder of a lease.
pub(crate) fn reopen(handle: &OwnedFd, flags: OFlags) -> io::Result<File> {
    let kind = kind(handle)?;
    if kind != FileType::RegularFile {
        let message = format!("it is {}, not a regular file", described(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(CWD, own_path(handle), flags, Mode::empty())?.into())
}

/// The path under which this process finds what it holds open.
pub(crate) fn own_path(handle: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd())
}

/// Opens a regular file for reading. No part of the path may be a symbolic link.
pub fn open(path: &Path) -> io::Result<File> {
    reopen(&openat2(CWD, path, HANDLE, Mode::empty(), ResolveFlags::NO_SYMLINKS)?, OFlags::RDONLY)
}

/// The first bytes of a file, `most` at most.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last bytes of a file, `most` at most.
pub fn read_end(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file for writing, a new one where there is none; the folder is the caller's own.
fn open_or_create(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    // Whoever removes and makes it again and again may win once or twice.
    for _ in 0..8 {
        match openat(CWD, path, HANDLE, Mode::empty()) {
            Ok(handle) => return reopen(&handle, flags),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let new = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(CWD, path, new, Mode::from_raw_mode(mode)) {
            Ok(file) => {
                // Whatever the process's umask is.
                fchmod(&file, Mode::from_raw_mode(mode))?;
                return Ok(file.into());
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("it is made and removed again and again"))
}

/// Opens a regular file to add to its end, and makes it with `mode` where there is none.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    open_or_create(path, OFlags::WRONLY | OFlags::APPEND, mode)
}

/// Makes an empty regular file with `mode` where nothing is. What is there stays as it is, whatever it is.
pub fn create(path: &Path, mode: u32) -> io::Result<()> {
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(CWD, path, new, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok(fchmod(&file, Mode::from_raw_mode(mode))?),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Gives a file this content and mode, in place: it may be mounted into containers.
pub fn overwrite(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = open_or_create(path, OFlags::WRONLY, mode)?;
    file.set_len(0)?;
    file.write_all(content)?;
    Ok(fchmod(&file, Mode::from_raw_mode(mode))?)
}

/// Makes a folder, and those above it that are not there, with this mode.
pub fn make_folders(path: &Path, mode: u32) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    while !at.as_os_str().is_empty() && !at.exists() {
        missing.push(at);
        at = at.parent().unwrap_or(Path::new(""));
    }
    for folder in missing.into_iter().rev() {
        match mkdirat(CWD, folder, Mode::from_raw_mode(mode)) {
            // Whatever the process's umask is.
            Ok(()) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                fchmod(openat(CWD, folder, flags, Mode::empty())?, Mode::from_raw_mode(mode))?;
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

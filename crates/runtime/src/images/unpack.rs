//! Layers into folders, without trusting them: every path is resolved inside the image, whatever links it goes through.
//!
//! A layer is applied to an overlay of the ones below, so that links, owners and deleted files are those of the image as
//! a whole; what changes is caught in the layer's own folder.

use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ferry_podfs::remove_at;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, linkat, mkdirat, mknodat, openat, openat2, symlinkat, utimensat,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Below this, unpacking stops before the disk is full for everybody.
const DISK_RESERVE: u64 = 256 * 1024 * 1024;
const LOOK_EVERY: u64 = 64 * 1024 * 1024;
/// No image is meant to have more; a layer of nothing but empty files takes inodes instead of bytes.
const MOST_ENTRIES: u64 = 20_000_000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    #[error("{0}")]
    Read(std::io::Error),
    #[error("entry {path:?}: {error}")]
    Entry { path: PathBuf, error: std::io::Error },
    #[error("entry {0:?} leads out of the image")]
    Escape(PathBuf),
    #[error("no space left on device: less than {} MiB would be left", DISK_RESERVE / 1024 / 1024)]
    Full,
    #[error("it is corrupt: its content has the digest {0}")]
    Corrupt(String),
    #[error("it has too many entries")]
    Crowded,
}

struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}

/// Unpacks a compressed or plain archive into `root` and checks that its plain form has this digest.
pub(crate) fn unpack(archive: impl Read, root: &Path, diff_id: &str) -> Result<(), UnpackError> {
    let mut archive = BufReader::with_capacity(256 * 1024, archive);
    let magic = std::io::BufRead::fill_buf(&mut archive).map_err(UnpackError::Read)?;
    let plain: Box<dyn Read> = if magic.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(archive))
    } else {
        Box::new(archive)
    };
    let mut plain = Hashing { inner: plain, hash: Sha256::new() };
    let root = openat(CWD, root, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| UnpackError::Read(error.into()))?;
    apply(&mut plain, &root)?;
    // Archives may be padded behind their end.
    std::io::copy(&mut plain, &mut std::io::sink()).map_err(UnpackError::Read)?;
    let found = format!("sha256:{:x}", plain.hash.finalize());
    if found == diff_id { Ok(()) } else { Err(UnpackError::Corrupt(found)) }
}

fn apply(plain: &mut impl Read, root: &OwnedFd) -> Result<(), UnpackError> {
    let mut archive = tar::Archive::new(plain);
    let mut written = LOOK_EVERY;
    // Folders get their times last: what is put into them changes those.
    let mut folders: Vec<(PathBuf, Timestamps)> = Vec::new();
    // What this layer itself brought must survive an opaque mark that comes after it.
    let mut brought = std::collections::HashSet::new();
    for (count, entry) in archive.entries().map_err(UnpackError::Read)?.enumerate() {
        if count as u64 >= MOST_ENTRIES {
            return Err(UnpackError::Crowded);
        }
        let mut entry = entry.map_err(UnpackError::Read)?;
        let path = inside(&entry.path().map_err(UnpackError::Read)?)?;
        if path.as_os_str().is_empty() {
            continue;
        }
        written += entry.size();
        if written >= LOOK_EVERY {
            written = 0;
            let space = rustix::fs::fstatvfs(open_root(root).map_err(|e| UnpackError::Read(e.into()))?);
            if space.is_ok_and(|s| s.f_bavail.saturating_mul(s.f_frsize) < DISK_RESERVE) {
                return Err(UnpackError::Full);
            }
        }
        let failed = |error: std::io::Error| match error.raw_os_error() {
            Some(code) if code == Errno::NOSPC.raw_os_error() => UnpackError::Full,
            _ => UnpackError::Entry { path: path.clone(), error },
        };
        one(root, &path, &mut entry, &mut folders, &mut brought).map_err(failed)?;
    }
    for (path, times) in folders.into_iter().rev() {
        if let Ok((folder, name)) = parent(root, &path) {
            let _ = utimensat(&folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
    }
    Ok(())
}

/// The path without its leading slash and dots; one that climbs is refused.
fn inside(path: &Path) -> Result<PathBuf, UnpackError> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(UnpackError::Escape(path.to_owned())),
        }
    }
    Ok(clean)
}

fn open_root(root: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    openat(root, c".", OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// A folder of the image, never one outside of it.
fn open_inside(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// The folder that holds a path, made where it is not there, and the last name.
fn parent<'a>(root: &OwnedFd, path: &'a Path) -> std::io::Result<(OwnedFd, &'a Path)> {
    let name = Path::new(path.file_name().ok_or_else(|| std::io::Error::other("no name"))?);
    let folder = path.parent().unwrap_or(Path::new(""));
    match open_inside(root, folder) {
        Ok(found) => return Ok((found, name)),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let (above, last) = parent(root, folder)?;
    match mkdirat(&above, last, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok((open_inside(root, folder)?, name))
}

fn one(
    root: &OwnedFd,
    path: &Path,
    entry: &mut tar::Entry<'_, impl Read>,
    folders: &mut Vec<(PathBuf, Timestamps)>,
    brought: &mut std::collections::HashSet<PathBuf>,
) -> std::io::Result<()> {
    let (folder, name) = parent(root, path)?;
    let raw_name = name.as_os_str().as_bytes();
    if raw_name == OPAQUE {
        let holder = path.parent().unwrap_or(Path::new(""));
        return empty(&folder, holder, brought);
    }
    if let Some(hidden) = raw_name.strip_prefix(WHITEOUT) {
        if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(std::io::Error::other("a mark of deletion without a name"));
        }
        return remove_at(&folder, Path::new(std::ffi::OsStr::from_bytes(hidden)));
    }
    brought.insert(path.to_owned());
    let kind = entry.header().entry_type();
    let mode = Mode::from_raw_mode(entry.header().mode()? & 0o7777);
    let size = entry.size();
    let attributes = attributes(entry)?;
    let existing = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let was_folder = existing.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
    if existing.is_some() && !(was_folder && kind.is_dir()) {
        remove_at(&folder, name)?;
    }
    if kind.is_dir() {
        if !was_folder {
            mkdirat(&folder, name, mode)?;
        }
    } else if kind.is_file() || kind == tar::EntryType::GNUSparse || kind == tar::EntryType::Continuous {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(openat(&folder, name, flags, Mode::from_raw_mode(0o600))?);
        let copied = std::io::copy(entry, &mut file)?;
        if copied != size {
            return Err(std::io::Error::other("it is cut off"));
        }
    } else if kind.is_symlink() {
        let target = entry.link_name()?.ok_or_else(|| std::io::Error::other("a link to nowhere"))?;
        symlinkat(&*target, &folder, name)?;
    } else if kind.is_hard_link() {
        let target = entry.link_name()?.ok_or_else(|| std::io::Error::other("a link to nowhere"))?;
        let target = inside(&target).map_err(|e| std::io::Error::other(e.to_string()))?;
        let (at, last) = parent(root, &target)?;
        linkat(&at, last, &folder, name, AtFlags::empty())?;
        // It has the owner and mode of what it links to.
        return Ok(());
    } else if kind.is_fifo() {
        mknodat(&folder, name, FileType::Fifo, mode, 0)?;
    } else if kind.is_character_special() || kind.is_block_special() {
        let (major, minor) = (entry.header().device_major()?, entry.header().device_minor()?);
        let kind = if kind.is_block_special() { FileType::BlockDevice } else { FileType::CharacterDevice };
        let device = rustix::fs::makedev(major.unwrap_or(0), minor.unwrap_or(0));
        // 0/0 is how an overlay marks what is deleted: a layer must not make such marks itself.
        if device == 0 {
            return Ok(());
        }
        mknodat(&folder, name, kind, mode, device)?;
    } else {
        return Ok(());
    }
    finish(&folder, name, path, entry, kind, mode, &attributes, folders)
}

/// Owner, attributes, mode and time; the owner first, for a change of it takes the set-user-id bit away.
fn finish(
    folder: &OwnedFd,
    name: &Path,
    path: &Path,
    entry: &tar::Entry<'_, impl Read>,
    kind: tar::EntryType,
    mode: Mode,
    attributes: &[(String, Vec<u8>)],
    folders: &mut Vec<(PathBuf, Timestamps)>,
) -> std::io::Result<()> {
    let number = |value: u64| u32::try_from(value).map_err(|_| std::io::Error::other("an owner beyond 32 bits"));
    let (uid, gid) = (number(entry.header().uid()?)?, number(entry.header().gid()?)?);
    chownat(folder, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
    if !kind.is_symlink() {
        if kind.is_dir() || kind.is_file() {
            let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let opened = openat(folder, name, flags, Mode::empty())?;
            for (key, value) in attributes {
                match rustix::fs::fsetxattr(&opened, key.as_str(), value, XattrFlags::empty()) {
                    Ok(()) | Err(Errno::NOTSUP) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            fchmod(&opened, mode)?;
        } else {
            rustix::fs::chmodat(folder, name, mode, AtFlags::empty())?;
        }
    }
    let seconds = i64::try_from(entry.header().mtime()?).unwrap_or(0);
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    if kind.is_dir() {
        folders.push((path.to_owned(), times));
    } else {
        let _ = utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
    Ok(())
}

/// File capabilities and what users set; never those by which an overlay works.
fn attributes(entry: &mut tar::Entry<'_, impl Read>) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions.flatten() {
            let key = extension.key().ok().and_then(|key| key.strip_prefix("SCHILY.xattr."));
            if let Some(key) = key.filter(|key| *key == "security.capability" || key.starts_with("user.")) {
                found.push((key.to_owned(), extension.value_bytes().to_vec()));
            }
        }
    }
    Ok(found)
}

/// An opaque folder shows nothing of the layers below.
fn empty(folder: &OwnedFd, path: &Path, brought: &std::collections::HashSet<PathBuf>) -> std::io::Result<()> {
    for child in names(folder)? {
        if !brought.contains(&path.join(&child)) {
            remove_at(folder, &child)?;
        }
    }
    Ok(())
}

fn names(folder: &OwnedFd) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder.as_fd())? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            found.push(PathBuf::from(std::ffi::OsStr::from_bytes(&name)));
        }
    }
    Ok(found)
}

//! One entry after the other into the image.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ferry_podfs::{openat2, remove_at};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    fchmod, fsetxattr, linkat, makedev, mkdirat, mknodat, openat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::bounds::{Limits, Meter, Room, copy};
use super::inside;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Paths of which only is asked whether they were there. A million of them take 16 MB, however long they are, and keys of
/// its own keep anybody from making two of them look the same.
#[derive(Default)]
struct Paths {
    known: HashSet<(u64, u64)>,
    keys: (RandomState, RandomState),
}

impl Paths {
    fn key(&self, path: &Path) -> (u64, u64) {
        (self.keys.0.hash_one(path), self.keys.1.hash_one(path))
    }

    fn insert(&mut self, path: &Path) {
        self.known.insert(self.key(path));
    }

    fn contains(&self, path: &Path) -> bool {
        self.known.contains(&self.key(path))
    }
}

/// A layer that is being put into an image.
pub(super) struct Layer<'a> {
    root: &'a OwnedFd,
    meter: Rc<Meter>,
    room: Room<BorrowedFd<'a>>,
    entries: u64,
    names: u64,
    crowded: bool,
    /// The times that folders are to have.
    folders: Vec<(PathBuf, Timestamps)>,
    /// What this layer itself brought must survive an opaque mark that comes after it.
    brought: Paths,
}

type Entry<'a, R> = tar::Entry<'a, R>;

impl<'a> Layer<'a> {
    pub(super) fn new(root: &'a OwnedFd, meter: &Rc<Meter>, limits: Limits) -> io::Result<Self> {
        Ok(Self {
            root,
            meter: meter.clone(),
            room: Room::new(root.as_fd())?,
            entries: limits.entries,
            names: limits.names,
            crowded: false,
            folders: Vec::new(),
            brought: Paths::default(),
        })
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    fn count(&mut self) -> io::Result<()> {
        match self.entries.checked_sub(1) {
            Some(left) => self.entries = left,
            None => return self.is_too_much(),
        }
        // An empty file takes room too.
        self.room.take(4096)
    }

    fn is_too_much<T>(&mut self) -> io::Result<T> {
        self.crowded = true;
        Err(io::Error::other("too many entries"))
    }

    /// Passes over what is left of an entry.
    pub(super) fn skip(&mut self, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        copy(entry, &mut io::sink(), &self.meter, &mut self.room).map(drop)
    }

    /// A folder of the image, never one outside of it.
    fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        openat2(self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// The folder that holds a path, made where it is not there, and the last name.
    fn parent<'p>(&mut self, path: &'p Path) -> io::Result<(OwnedFd, &'p Path)> {
        let name = Path::new(path.file_name().ok_or_else(|| io::Error::other("no name"))?);
        let folder = path.parent().unwrap_or(Path::new(""));
        // The nearest that is there, then downwards.
        let mut missing = Vec::new();
        let mut at = folder;
        let mut found = loop {
            match self.open(at) {
                Ok(found) => break found,
                Err(Errno::NOENT) => {
                    missing.push(at);
                    at = at.parent().unwrap_or(Path::new(""));
                }
                Err(error) => return Err(error.into()),
            }
        };
        for folder in missing.into_iter().rev() {
            let last = folder.file_name().ok_or_else(|| io::Error::other("no name"))?;
            self.count()?;
            match mkdirat(&found, last, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let made = self.open(folder)?;
                    // Whatever the process's umask is.
                    fchmod(&made, Mode::from_raw_mode(0o755))?;
                    found = made;
                }
                Err(Errno::EXIST) => found = self.open(folder)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((found, name))
    }

    pub(super) fn apply(&mut self, path: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        self.count()?;
        let (folder, name) = self.parent(path)?;
        let raw_name = name.as_os_str().as_bytes();
        if raw_name == OPAQUE {
            return self.empty(&folder, path.parent().unwrap_or(Path::new("")));
        }
        if let Some(hidden) = raw_name.strip_prefix(WHITEOUT) {
            if hidden.is_empty() || hidden == b"." || hidden == b".." {
                return Err(io::Error::other("a mark of deletion without a name"));
            }
            return remove_at(&folder, Path::new(OsStr::from_bytes(hidden)));
        }
        self.brought.insert(path);
        let kind = entry.header().entry_type();
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o7777);
        let existing = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let was_folder = existing.is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
        if existing.is_some() && !(was_folder && kind.is_dir()) {
            remove_at(&folder, name)?;
        }
        if kind.is_dir() {
            if !was_folder {
                mkdirat(&folder, name, mode)?;
            }
        } else if kind.is_file() || kind == tar::EntryType::GNUSparse || kind == tar::EntryType::Continuous {
            self.write(&folder, name, entry)?;
        } else if kind.is_symlink() {
            let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link to nowhere"))?;
            symlinkat(&*target, &folder, name)?;
        } else if kind.is_hard_link() {
            let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link to nowhere"))?;
            let target = inside(&target).map_err(|e| io::Error::other(e.to_string()))?;
            let (at, last) = self.parent(&target)?;
            // It has the owner and mode of what it links to.
            return Ok(linkat(&at, last, &folder, name, AtFlags::empty())?);
        } else if kind.is_fifo() {
            mknodat(&folder, name, FileType::Fifo, mode, 0)?;
        } else if kind.is_character_special() || kind.is_block_special() {
            let (major, minor) = (entry.header().device_major()?, entry.header().device_minor()?);
            let kind = if kind.is_block_special() { FileType::BlockDevice } else { FileType::CharacterDevice };
            let device = makedev(major.unwrap_or(0), minor.unwrap_or(0));
            // 0/0 is how an overlay marks what is deleted: a layer must not make such marks itself.
            if device == 0 {
                return Ok(());
            }
            mknodat(&folder, name, kind, mode, device)?;
        } else {
            return Ok(());
        }
        self.finish(&folder, name, path, entry, mode)
    }

    fn write(&mut self, folder: &OwnedFd, name: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(openat(folder, name, flags, Mode::from_raw_mode(0o600))?);
        let size = entry.size();
        if copy(entry, &mut file, &self.meter, &mut self.room)? != size {
            return Err(io::Error::other("it is cut off"));
        }
        Ok(())
    }

    /// Owner, attributes, mode and time; the owner first, for a change of it takes the set-user-id bit away.
    fn finish(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        path: &Path,
        entry: &mut Entry<'_, impl Read>,
        mode: Mode,
    ) -> io::Result<()> {
        let kind = entry.header().entry_type();
        let number = |value: u64| u32::try_from(value).map_err(|_| io::Error::other("an owner beyond 32 bits"));
        let (uid, gid) = (number(entry.header().uid()?)?, number(entry.header().gid()?)?);
        chownat(folder, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
        if kind.is_dir() || kind.is_file() {
            let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let opened = openat(folder, name, flags, Mode::empty())?;
            for (key, value) in attributes(entry)? {
                match fsetxattr(&opened, key.as_str(), &value, XattrFlags::empty()) {
                    Ok(()) | Err(Errno::NOTSUP) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            fchmod(&opened, mode)?;
        } else if !kind.is_symlink() {
            chmodat(folder, name, mode, AtFlags::empty())?;
        }
        let seconds = i64::try_from(entry.header().mtime()?).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        if kind.is_dir() {
            match self.names.checked_sub(path.as_os_str().len() as u64) {
                Some(left) => self.names = left,
                None => return self.is_too_much(),
            }
            self.folders.push((path.to_owned(), times));
        } else {
            let _ = utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
        Ok(())
    }

    /// Folders get their times last: what is put into them changes those. Some may be gone again.
    pub(super) fn set_times(&self) {
        for (path, times) in self.folders.iter().rev() {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
            if let Ok(folder) = self.open(parent) {
                let _ = utimensat(&folder, name, times, AtFlags::SYMLINK_NOFOLLOW);
            }
        }
    }

    /// An opaque folder shows nothing of the layers below.
    fn empty(&self, folder: &OwnedFd, path: &Path) -> io::Result<()> {
        let mut below = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            let child = PathBuf::from(OsStr::from_bytes(&name));
            if name != b"." && name != b".." && !self.brought.contains(&path.join(&child)) {
                below.push(child);
            }
        }
        below.iter().try_for_each(|child| remove_at(folder, child))
    }
}

/// File capabilities and what users set; never those by which an overlay works.
fn attributes(entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<(String, Vec<u8>)>> {
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

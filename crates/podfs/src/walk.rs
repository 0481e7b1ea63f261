//! Walking through a folder that may be deeper than the stack, wider than the memory, and changing meanwhile.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::openat2;

/// Folders that are held open. Below them the way up is looked for, and checked to be the way down.
const HELD: usize = 64;
/// Names of folders that are remembered, over all levels.
const REMEMBERED: usize = 100_000;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is done on the way.
pub(crate) trait Visitor {
    /// Removes what it visits: a folder is read until nothing is left in it.
    const REMOVES: bool = false;

    /// Something that is no folder, or a folder before anything in it. False leaves a folder out.
    fn enter(&mut self, folder: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<bool>;

    /// A folder after everything in it.
    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr, folder: BorrowedFd<'_>) -> io::Result<()>;
}

/// Which folder it is, wherever it stands.
type Identity = (u64, u64);

fn identity(folder: &OwnedFd) -> io::Result<Identity> {
    let stat = fstat(folder)?;
    Ok((stat.st_dev, stat.st_ino))
}

struct Level {
    name: CString,
    identity: Identity,
    /// Folders to go into.
    pending: Vec<CString>,
    /// There may be more in it than was read.
    more: bool,
    /// Kept while deeper ones are visited.
    held: Option<OwnedFd>,
}

/// Visits everything in a folder, in whatever order, but a folder's content before its `leave`. Mounts are not gone into.
/// An error of the visitor ends the walk. What goes away meanwhile is passed over.
pub(crate) fn walk<V: Visitor>(root: OwnedFd, visitor: &mut V) -> io::Result<()> {
    let mut folder = root;
    let mut remembered = 0;
    let mut levels = vec![read(&folder, CString::default(), &mut remembered, visitor)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.pending.pop() {
            remembered -= 1;
            let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let next = match openat2(&folder, &*name, FOLDER, Mode::empty(), inside) {
                Ok(next) => next,
                Err(Errno::XDEV) if V::REMOVES => return Err(io::Error::other("something is mounted in it")),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue,
                Err(error) => return Err(error.into()),
            };
            let below = read(&next, name, &mut remembered, visitor)?;
            let above = std::mem::replace(&mut folder, next);
            if levels.len() <= HELD
                && let Some(level) = levels.last_mut()
            {
                level.held = Some(above);
            }
            levels.push(below);
        } else if level.more {
            let name = std::mem::take(&mut level.name);
            *level = read(&folder, name, &mut remembered, visitor)?;
        } else {
            let name = std::mem::take(&mut level.name);
            levels.pop();
            let Some(parent) = levels.last_mut() else { break };
            let above = match parent.held.take() {
                Some(held) => held,
                None => openat(&folder, c"..", FOLDER, Mode::empty())?,
            };
            if identity(&above)? != parent.identity {
                return Err(io::Error::other("folders were moved meanwhile"));
            }
            visitor.leave(above.as_fd(), &name, folder.as_fd())?;
            folder = above;
        }
    }
    Ok(())
}

/// Visits what is directly in a folder, and notes the folders to go into.
fn read<V: Visitor>(folder: &OwnedFd, name: CString, remembered: &mut usize, visitor: &mut V) -> io::Result<Level> {
    let mut level = Level { name, identity: identity(folder)?, pending: Vec::new(), more: false, held: None };
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let has_room = *remembered < REMEMBERED || level.pending.is_empty();
        // Reading while names are removed may pass over some: another look tells that nothing is left.
        level.more |= V::REMOVES;
        if is_folder && V::REMOVES && !has_room {
            break;
        }
        if visitor.enter(folder.as_fd(), name, &stat)? && is_folder && has_room {
            level.pending.push(name.to_owned());
            *remembered += 1;
        }
    }
    Ok(level)
}

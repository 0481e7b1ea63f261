//! A part of a volume as a mount: found without following links out of the volume, and bound to a place of its own.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::UnmountFlags;

/// Binds `volume`/`part` to `place`, making the part as a folder when it is absent, and gives `place`.
///
/// The container's user may own the volume and plant links in it; the kernel is told to resolve the path within the
/// volume, and what is mounted is the opened thing itself, not its name.
pub(super) fn bind(volume: &Path, part: &str, place: &Path) -> io::Result<PathBuf> {
    let root = rustix::fs::open(volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let target = match open(&root, part) {
        Ok(target) => target,
        Err(rustix::io::Errno::NOENT) => make(&root, part)?,
        Err(error) => return Err(error.into()),
    };
    let is_folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&target)?.st_mode).is_dir();
    if fs::symlink_metadata(place).is_ok() {
        // Of an earlier start: the volume may have changed since.
        let _ = rustix::mount::unmount(place, UnmountFlags::DETACH);
    }
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent)?;
    }
    if is_folder {
        fs::create_dir_all(place)?;
    } else {
        fs::OpenOptions::new().create(true).append(true).open(place)?;
    }
    rustix::mount::mount_bind(format!("/proc/self/fd/{}", target.as_fd().as_raw_fd()), place)?;
    Ok(place.to_owned())
}

fn open(root: &OwnedFd, part: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(root, part, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
}

/// Makes the missing folders one by one, each below the one just opened.
fn make(root: &OwnedFd, part: &str) -> io::Result<OwnedFd> {
    let mut folder = rustix::fs::openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for component in Path::new(part).components() {
        let Component::Normal(name) = component else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid subPath {part:?}")));
        };
        match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = rustix::fs::openat2(&folder, name, flags, Mode::empty(), ResolveFlags::BENEATH)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_volume_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = folder.path().join("volume");
        fs::create_dir(&volume).expect("a volume");
        std::os::unix::fs::symlink("/etc", volume.join("evil")).expect("a link");
        for part in ["evil", "evil/passwd", "../x", "a/../../x", "/etc"] {
            assert!(bind(&volume, part, &folder.path().join("place")).is_err(), "{part}");
        }
    }
}

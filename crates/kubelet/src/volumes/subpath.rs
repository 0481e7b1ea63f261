//! A part of a volume as a mount: found without following links out of the volume, and bound to a place of its own.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use ferry_podfs::Root;
use rustix::fs::{FileType, fstat};
use rustix::mount::UnmountFlags;

/// Binds `volume`/`part` to `place`, making the part as a folder when it is absent, and gives `place`.
///
/// The container's user may own the volume and plant links in it; the kernel is told to resolve the path within the
/// volume, and what is mounted is the opened thing itself, not its name.
pub(super) fn bind(volume: &Path, part: &str, place: &Path) -> io::Result<PathBuf> {
    let target = Root::open(volume)?.part(Path::new(part))?;
    let is_folder = FileType::from_raw_mode(fstat(&target)?.st_mode).is_dir();
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
        ferry_podfs::create(place, 0o600)?;
    }
    rustix::mount::mount_bind(format!("/proc/self/fd/{}", target.as_fd().as_raw_fd()), place)?;
    Ok(place.to_owned())
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

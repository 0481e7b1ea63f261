//! A block device, held open: its name may come to mean another one, or nothing, at any moment.

use std::fmt;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, major, minor};
use rustix::io::Errno;

use crate::volumes::mount_table::MountPoint;

/// So much from the beginning of a device has to be readable before it counts as empty.
const BEGINNING: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Device {
    /// Without links.
    path: PathBuf,
    /// Its numbers stay its own while it is open.
    file: File,
    number: u64,
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(formatter)
    }
}

impl Device {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("local: device {}: {error}", path.display());
        let own = path.canonicalize().map_err(failed)?;
        // What it is, is known before it is opened: some devices act on that alone.
        let found = rustix::fs::open(&own, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let found = File::from(found.map_err(|error| failed(error.into()))?);
        let about = found.metadata().map_err(failed)?;
        if !about.file_type().is_block_device() {
            return Err(format!("local: {} is not a block device", own.display()));
        }
        let file = reopen(&found, OFlags::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self { path: own, file, number: about.rdev() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A name of the device that stays its own whatever is done to its path: for programs that this process starts.
    pub(super) fn held(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Checks that the path still leads to this device.
    pub(super) fn check(&self) -> Result<(), String> {
        match fs::symlink_metadata(&self.path) {
            Ok(about) if about.file_type().is_block_device() && about.rdev() == self.number => Ok(()),
            Ok(_) => Err(format!("{self} is not the device any more that it was")),
            Err(error) => Err(format!("{self}: {error}")),
        }
    }

    /// Whether something on this node has it: another volume of the same disk, or the host.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(reopen(&self.file, OFlags::EXCL), Err(Errno::BUSY))
    }

    /// Checks before it is formatted that nobody else has it, and that it is empty rather than unreadable.
    pub(super) fn check_free(&self) -> Result<(), String> {
        match reopen(&self.file, OFlags::EXCL) {
            Ok(_) => {}
            Err(Errno::BUSY) => return Err(format!("{self} is in use on this node, and is not formatted")),
            Err(error) => return Err(format!("{self}: {error}")),
        }
        let mut beginning = vec![0; BEGINNING];
        match self.file.read_at(&mut beginning, 0) {
            Ok(0) => Err(format!("{self} has no size, and is not formatted")),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{self} cannot be read, and is not formatted: {error}")),
        }
    }

    /// Whether a mount is of this device. File systems over several devices have numbers of their own.
    pub(super) fn is_mounted_as(&self, mount: &MountPoint) -> bool {
        mount.device == format!("{}:{}", major(self.number), minor(self.number))
            || fs::metadata(&mount.source)
                .is_ok_and(|about| about.file_type().is_block_device() && about.rdev() == self.number)
    }

    pub(super) fn is_write_protected(&self) -> bool {
        let path = format!("/sys/dev/block/{}:{}/ro", major(self.number), minor(self.number));
        fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
    }
}

fn reopen(file: &File, flags: OFlags) -> Result<File, Errno> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | flags;
    rustix::fs::open(name, flags, Mode::empty()).map(File::from)
}

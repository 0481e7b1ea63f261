//! What a container finds in /dev besides what is mounted there.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::document::{Device, Document};
use super::rootfs::{Rootfs, already, because};

/// (name, major, minor): every program expects them.
const USUAL: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// Where /dev is a folder of the machine, nothing is made in it.
pub(super) fn own(document: &Document) -> bool {
    !document.mounts.iter().any(|mount| mount.kind == "bind" && mount.destination == Path::new("/dev"))
}

pub(super) fn make(rootfs: &Rootfs, document: &Document) -> Result<(), String> {
    if !own(document) {
        return Ok(());
    }
    let listed = |path: &str| document.linux.devices.iter().any(|device| device.path == Path::new(path));
    for (name, major, minor) in USUAL {
        let path = format!("/dev/{name}");
        if !listed(&path) {
            let device =
                Device { path: path.into(), kind: "c".to_owned(), major, minor, file_mode: 0o666, uid: 0, gid: 0 };
            make_one(rootfs, &device)?;
        }
    }
    for device in &document.linux.devices {
        make_one(rootfs, device)?;
    }
    let folder = rootfs.parent_of(Path::new("/dev/null"))?;
    for (target, name) in LINKS {
        if name == "ptmx" {
            // One of the machine would be for terminals of the machine.
            let _ = rustix::fs::unlinkat(&folder, name, AtFlags::empty());
        }
        rustix::fs::symlinkat(target, &folder, name).or_else(already).map_err(because(format!("/dev/{name}")))?;
    }
    Ok(())
}

fn make_one(rootfs: &Rootfs, device: &Device) -> Result<(), String> {
    let kind = match device.kind.as_str() {
        "b" => FileType::BlockDevice,
        "c" | "u" => FileType::CharacterDevice,
        other => return Err(format!("device {}: kind {other:?} is not supported", device.path.display())),
    };
    let failed = || because::<Errno>(format!("device {}", device.path.display()));
    let name = device.path.file_name().ok_or("a device without a name")?;
    let folder = rootfs.parent_of(&device.path)?;
    let mode = Mode::from_raw_mode(device.file_mode & 0o777);
    let number = rustix::fs::makedev(device.major, device.minor);
    match rustix::fs::mknodat(&folder, name, kind, mode, number) {
        // What the image has there is what the container gets only if it is this device.
        Err(Errno::EXIST) => {
            let about = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed())?;
            if FileType::from_raw_mode(about.st_mode) != kind || about.st_rdev != number {
                return Err(format!("device {}: something else is in its place", device.path.display()));
            }
        }
        made => made.map_err(failed())?,
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat(&folder, name, flags, Mode::empty()).map_err(failed())?;
    // Whatever the umask is.
    rustix::fs::chmodat(CWD, super::rootfs::own_path(node.as_fd()), mode, AtFlags::empty()).map_err(failed())?;
    let (owner, group) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    rustix::fs::chownat(&node, c"", Some(owner), Some(group), AtFlags::EMPTY_PATH).map_err(failed())
}

/// The container's terminal, where programs look for the machine's console.
pub(super) fn console(rootfs: &Rootfs, terminal: BorrowedFd<'_>) -> Result<(), String> {
    rootfs.bind_file(terminal, Path::new("/dev/console"))
}

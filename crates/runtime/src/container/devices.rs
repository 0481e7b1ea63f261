//! What a container finds in /dev besides what is mounted there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::document::{Device, Document};
use super::rootfs::{Rootfs, already, because};
use crate::users::Users;

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
    for device in all(document) {
        make_one(&rootfs.parent_of(&device.path)?, &device)?;
    }
    make_links(&rootfs.parent_of(Path::new("/dev/null"))?)
}

/// The same before the container's users are entered, who can make no device: in a tree that becomes /dev, and in the root
/// for those that belong elsewhere. What was asked for is for the container's users. What is there because a privileged
/// container sees all devices stays the machine's: its disks, too, are among them.
pub(super) fn make_for(users: &Users, tree: &Rootfs, rootfs: &Rootfs, document: &Document) -> Result<(), String> {
    for mut device in all(document) {
        let root = users.root();
        if !device.owned_by_machine {
            device.uid = users.uid(device.uid).unwrap_or(root.0);
            device.gid = users.gid(device.gid).unwrap_or(root.1);
        }
        let folder = match device.path.strip_prefix("/dev") {
            Ok(below) => tree.parent_of(&Path::new("/").join(below))?,
            Err(_) => rootfs.parent_of(&device.path)?,
        };
        make_one(&folder, &device)?;
    }
    make_links(&tree.parent_of(Path::new("/null"))?)
}

/// Those that every program expects, and those that are asked for.
fn all(document: &Document) -> Vec<Device> {
    let listed = |path: &str| document.linux.devices.iter().any(|device| device.path == Path::new(path));
    let usual = USUAL.into_iter().filter_map(|(name, major, minor)| {
        let path = format!("/dev/{name}");
        let wanted = !listed(&path);
        let device = Device {
            path: path.into(),
            kind: "c".to_owned(),
            major,
            minor,
            file_mode: 0o666,
            uid: 0,
            gid: 0,
            owned_by_machine: false,
        };
        wanted.then_some(device)
    });
    usual.chain(document.linux.devices.iter().cloned()).collect()
}

fn make_links(folder: &OwnedFd) -> Result<(), String> {
    for (target, name) in LINKS {
        if name == "ptmx" {
            // One of the machine would be for terminals of the machine.
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
        rustix::fs::symlinkat(target, folder, name).or_else(already).map_err(because(format!("/dev/{name}")))?;
    }
    Ok(())
}

fn make_one(folder: &OwnedFd, device: &Device) -> Result<(), String> {
    let kind = match device.kind.as_str() {
        "b" => FileType::BlockDevice,
        "c" | "u" => FileType::CharacterDevice,
        other => return Err(format!("device {}: kind {other:?} is not supported", device.path.display())),
    };
    let failed = || because::<Errno>(format!("device {}", device.path.display()));
    let name = device.path.file_name().ok_or("a device without a name")?;
    let mode = Mode::from_raw_mode(device.file_mode & 0o777);
    let number = rustix::fs::makedev(device.major, device.minor);
    match rustix::fs::mknodat(folder, name, kind, mode, number) {
        // What the image has there is what the container gets only if it is this device.
        Err(Errno::EXIST) => {
            let about = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed())?;
            if FileType::from_raw_mode(about.st_mode) != kind || about.st_rdev != number {
                return Err(format!("device {}: something else is in its place", device.path.display()));
            }
        }
        made => made.map_err(failed())?,
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(failed())?;
    // Whatever the umask is.
    rustix::fs::chmodat(CWD, super::rootfs::own_path(node.as_fd()), mode, AtFlags::empty()).map_err(failed())?;
    let (owner, group) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    rustix::fs::chownat(&node, c"", Some(owner), Some(group), AtFlags::EMPTY_PATH).map_err(failed())
}

/// The container's terminal, where programs look for the machine's console.
pub(super) fn console(rootfs: &Rootfs, terminal: BorrowedFd<'_>) -> Result<(), String> {
    rootfs.bind_file(terminal, Path::new("/dev/console"))
}

//! Trees of mounts that are in no place yet: copies of what is mounted elsewhere, and new file systems of the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::document::Mount;
use super::options::Options;
use super::rootfs::because;
use super::system;

pub(crate) fn clone_tree(folder: impl AsFd, path: &Path, recursive: bool) -> Result<OwnedFd, String> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    rustix::mount::open_tree(folder, path, flags).map_err(because(path.display()))
}

pub(super) fn clone_open(file: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(file, c"", flags).map_err(because("it cannot be mounted a second time"))
}

pub(super) fn clone_open_tree(file: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(file, c"", flags).map_err(because("it cannot be mounted a second time"))
}

pub(super) fn new_file_system(kind: &str, source: &Path, options: &Options) -> Result<OwnedFd, String> {
    let failed = |what: &str| because::<Errno>(format!("{kind}{what}"));
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed(""))?;
    rustix::mount::fsconfig_set_string(&context, "source", source).map_err(failed(": its source"))?;
    for (key, value) in &options.data {
        let set = match value {
            Some(value) => rustix::mount::fsconfig_set_string(&context, key.as_str(), value.as_str()),
            None => rustix::mount::fsconfig_set_flag(&context, key.as_str()),
        };
        set.map_err(failed(&format!(": option {key:?}")))?;
    }
    rustix::mount::fsconfig_create(&context).map_err(failed(""))?;
    let attributes = MountAttrFlags::from_bits_retain(u32::try_from(options.set).unwrap_or(0));
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed(""))
}

/// A folder or file of the machine as a mount says, shown as that of a pod's users where it is to be.
pub(super) fn bound(mount: &Mount, users: Option<BorrowedFd<'_>>) -> Result<OwnedFd, String> {
    let options = Options::parse(&mount.options)?;
    let tree = clone_tree(CWD, &mount.source, options.recursive)?;
    match (options.map_owners, users) {
        (None, _) => {}
        (Some(recursive), Some(users)) => map_owners(tree.as_fd(), recursive, users)?,
        (Some(_), None) => return Err("the container has no user namespace to show files in".to_owned()),
    }
    if options.set != 0 || options.clear != 0 {
        system::set_mount_attributes(tree.as_fd(), false, options.set, options.clear).map_err(because("attributes"))?;
    }
    if options.set_all != 0 {
        system::set_mount_attributes(tree.as_fd(), true, options.set_all, 0)
            .map_err(because("attributes of all below"))?;
    }
    if let Some((propagation, recursive)) = options.propagation {
        system::set_mount_propagation(tree.as_fd(), recursive, propagation).map_err(because("propagation"))?;
    }
    Ok(tree)
}

/// Whoever is root in the user namespace owns what root owns on the disk.
pub(crate) fn map_owners(tree: BorrowedFd<'_>, recursive: bool, users: BorrowedFd<'_>) -> Result<(), String> {
    system::map_owners(tree, recursive, users).map_err(|error| {
        format!(
            "its owners cannot be shown as the pod's (MOUNT_ATTR_IDMAP): {error}; the file system may not be able to"
        )
    })
}

/// Puts a tree into a place of the machine.
pub(crate) fn put(tree: BorrowedFd<'_>, place: &Path) -> Result<(), String> {
    rustix::mount::move_mount(tree, c"", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(because(place.display()))
}

/// Whether this kernel shows the files of this folder, and those of memory, as those of other users.
pub(crate) fn try_mapping(folder: &Path, users: BorrowedFd<'_>) -> Result<(), String> {
    let memory = new_file_system("tmpfs", Path::new("tmpfs"), &Options::parse(&[])?)?;
    map_owners(memory.as_fd(), false, users).map_err(because("tmpfs"))?;
    let tree = clone_tree(CWD, folder, false)?;
    map_owners(tree.as_fd(), false, users).map_err(because(folder.display()))
}

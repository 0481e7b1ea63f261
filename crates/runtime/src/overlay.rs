//! File systems of containers and images: layers on top of each other by the kernel's overlay.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

use crate::container::trees;

/// What a container writes goes to `upper`; without one the result is read-only. `lower` is bottom first.
pub(crate) fn assemble(lower: &[PathBuf], upper: Option<(&Path, &Path)>, extra: &str, target: &Path) -> io::Result<()> {
    if lower.is_empty() || (upper.is_none() && lower.len() == 1) {
        let only = lower.first().ok_or_else(|| io::Error::other("an image without layers"))?;
        mount_bind(only, target)?;
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, c"")?;
        return Ok(());
    }
    let mut options = b"lowerdir=".to_vec();
    for (place, layer) in lower.iter().rev().enumerate() {
        if place > 0 {
            options.push(b':');
        }
        options.extend_from_slice(layer.as_os_str().as_bytes());
    }
    if let Some((upper, work)) = upper {
        options.extend_from_slice(b",upperdir=");
        options.extend_from_slice(upper.as_os_str().as_bytes());
        options.extend_from_slice(b",workdir=");
        options.extend_from_slice(work.as_os_str().as_bytes());
    }
    options.extend_from_slice(extra.as_bytes());
    let options = CString::new(options).map_err(io::Error::other)?;
    let flags = if upper.is_none() { MountFlags::RDONLY } else { MountFlags::empty() };
    mount("overlay", target, "overlay", flags, Some(options.as_c_str())).map_err(|error| {
        let why = io::Error::from(error);
        io::Error::new(why.kind(), format!("cannot put {} layers on top of each other: {why}", lower.len()))
    })
}

/// The same for a pod with users of its own: its root owns what root owns in the layers. What is written is owned by ids of
/// the machine that are the pod's alone.
pub(crate) fn assemble_for(
    users: BorrowedFd<'_>,
    lower: &[PathBuf],
    upper: Option<(&Path, &Path)>,
    extra: &str,
    target: &Path,
) -> io::Result<()> {
    let folder = target.parent().unwrap_or(target);
    let places: Vec<PathBuf> = (0..lower.len()).map(|number| folder.join(format!("layer-{number}"))).collect();
    let mut trees = Vec::with_capacity(lower.len());
    let mut made = || -> io::Result<()> {
        for (layer, place) in lower.iter().zip(&places) {
            let failed = |why: String| io::Error::other(format!("layer {}: {why}", layer.display()));
            let tree = trees::clone_tree(rustix::fs::CWD, layer, false).map_err(failed)?;
            trees::map_owners(tree.as_fd(), false, users).map_err(failed)?;
            std::fs::create_dir_all(place)?;
            // Older kernels take layers from places alone.
            trees::put(tree.as_fd(), place).map_err(failed)?;
            trees.push(tree);
        }
        // The options are one page; names of descriptors are short.
        let names: Vec<PathBuf> =
            trees.iter().map(|tree| PathBuf::from(format!("/proc/thread-self/fd/{}", tree.as_raw_fd()))).collect();
        assemble(&names, upper, extra, target)
    };
    let made = made();
    // The overlay has copies of its own.
    for place in &places {
        take_away(place);
        let _ = std::fs::remove_dir(place);
    }
    made
}

pub(crate) fn shared_memory(target: &Path, size: u64) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = CString::new(format!("mode=1777,size={size}")).map_err(io::Error::other)?;
    Ok(mount("shm", target, "tmpfs", flags, Some(options.as_c_str()))?)
}

/// Takes a mount away, whoever still uses it; what is not mounted is no error.
pub(crate) fn take_away(target: &Path) {
    while unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_ok() {}
}

/// Makes mounts below a folder of its own, so that they reach no other place.
pub(crate) fn keep_to_itself(folder: &Path) -> io::Result<()> {
    if is_mount_point(folder) {
        return Ok(());
    }
    mount_bind(folder, folder)?;
    Ok(rustix::mount::mount_change(folder, MountPropagationFlags::PRIVATE)?)
}

fn is_mount_point(folder: &Path) -> bool {
    mount_points().iter().any(|point| point == folder)
}

/// Everything mounted here.
pub(crate) fn mount_points() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().filter_map(|line| line.split(' ').nth(1)).map(|p| PathBuf::from(p.replace("\\040", " "))).collect()
}

//! This binary as helpers are executed from it.
//!
//! A container's first process begins as a copy of a shim. What it is executed from can be reached from inside of the
//! container (`/proc/self/exe`), by root also for writing. So shims are executed from a read-only mount of the file.

use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount_bind, mount_remount};

/// Helpers copy themselves, so they have one thread: none of the allocator's. They are many and small, so that what they free
/// goes back at once.
pub(crate) const ALLOCATOR: (&str, &str) =
    ("_RJEM_MALLOC_CONF", "background_thread:false,narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0");

/// Mounts the binary below `folder`, in place of one that is mounted there already: shims that run go on with theirs.
pub(crate) fn read_only(binary: &Path, folder: &Path) -> io::Result<PathBuf> {
    crate::overlay::keep_to_itself(folder)?;
    let place = folder.join("ferry");
    crate::overlay::take_away(&place);
    std::fs::File::create(&place)?;
    mount_bind(binary, &place)?;
    mount_remount(&place, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID, c"")?;
    Ok(place)
}

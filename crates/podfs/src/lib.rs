//! Files that a container, an image or a volume can change: the only place where the kubelet and the runtime open them.
//!
//! Whoever writes such files may put links, FIFOs, devices, leases and folders without end where something else is expected,
//! and may swap one for the other at any moment. So the kernel resolves every path inside a folder that is held open
//! (openat2), nothing but regular files is opened, never so that it could wait, reads are bounded, and walks through
//! folders use neither recursion nor a descriptor per level. Everything here blocks as file access does: call it off the
//! async workers. Depends on no other crate of Ferry.

mod count;
mod file;
mod folders;
mod give;
mod log_files;
mod remove;
mod root;
mod walk;

pub use count::{Usage, count};
pub use file::{append, create, make_folders, open, overwrite, read_end, read_start};
pub use folders::{empty_folders, free_bytes, is_folder_at, make_at, remove_empty_at};
pub use give::{Access, give};
pub use log_files::{remove_oldest, set_aside};
pub use remove::{remove_all, remove_at};
pub use root::Root;

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// How often a path is looked up anew when something was renamed while it was.
const TRIES: usize = 10_000;

/// Opens a path below a folder within the bounds of `resolve`.
///
/// Wherever on the machine something is renamed or mounted meanwhile, the kernel may be unable to tell that `..` did not
/// lead out, and says that it should be asked again.
pub fn openat2(
    folder: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    for _ in 0..TRIES {
        match rustix::fs::openat2(&folder, path, flags, mode, resolve) {
            Err(Errno::AGAIN) => std::thread::yield_now(),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests;

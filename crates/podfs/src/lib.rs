//! Files that a container, an image or a volume can change: the only place where the kubelet and the runtime open them.
//!
//! Whoever writes such files may put links, FIFOs, devices, leases and folders without end where something else is expected,
//! and may swap one for the other at any moment. So the kernel resolves every path inside a folder that is held open
//! (openat2), nothing but regular files is opened, never so that it could wait, reads are bounded, and walks through
//! folders use neither recursion nor a descriptor per level. Everything here blocks as file access does: call it off the
//! async workers. Depends on no other crate of Ferry.

mod count;
mod file;
mod give;
mod remove;
mod root;
mod walk;

pub use count::{Usage, count};
pub use file::{append, create, make_folders, open, overwrite, read_end, read_start};
pub use give::{Access, give};
pub use remove::{remove_all, remove_at};
pub use root::Root;

#[cfg(test)]
mod tests;

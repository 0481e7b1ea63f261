//! Container logs: the files the runtime writes, read and rotated here.

pub(crate) mod line;
mod read;
mod rotate;
mod watch;

pub(crate) use read::{Options, Wanted, read};
pub(crate) use rotate::{LogFiles, rotate};
pub(crate) use watch::Watch as FolderWatch;

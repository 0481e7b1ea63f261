//! Container logs: the files the runtime writes, read and rotated here.

pub(crate) mod line;
mod links;
mod read;
mod rotate;
mod watch;

use std::path::PathBuf;

pub(crate) use links::{link, remove_dangling};
pub(crate) use read::{Options, Wanted, read};
pub(crate) use rotate::{Kept, LogFiles, rotate};
pub(crate) use watch::Watch as FolderWatch;

use crate::volumes::blocking;

/// Removes the folder with the logs of a pod.
pub(crate) async fn remove(folder: PathBuf) {
    let shown = folder.clone();
    let removed = blocking(move || ferry_podfs::remove_all(&folder).map_err(|error| error.to_string())).await;
    if let Err(why) = removed {
        tracing::warn!(folder = %shown.display(), "logs are not removed: {why}");
    }
}

//! Pods that stand in files of the node and not on the API server: they run without it, and it is shown a mirror of
//! each, so that users see them.

mod mirror;
mod read;

use std::path::PathBuf;

use serde_json::Value;

pub(crate) use mirror::{Mirror, Mirrors, keep, remove};
pub(crate) use read::Files;

/// Where pods of the node's own stand.
#[derive(Clone)]
pub struct Manifests {
    /// A folder of files with one pod each, or one such file.
    pub path: PathBuf,
    /// Makes an object out of a file, with its defaults; the reason where it is no pod.
    pub parse: fn(&[u8]) -> Result<Value, String>,
}

//! Checks the list of tables that each of fjall's trees keeps: it has a checksum, which is not looked at otherwise.
//!
//! A wrong byte there can make fjall believe that changes of the log are in a table already, and skip them.
//! The files are lsm-tree's, which fjall keeps its tables in; as with the log, their form is known of one release.

use std::fs;
use std::path::Path;

use super::folder::io_error;
use crate::{Result, StoreError};

/// The release whose files are read here, and in which they were last compared with `version/` of lsm-tree's source.
#[cfg(test)]
pub(super) const REVIEWED: (&str, &str) = ("lsm-tree", "3.1.10");

pub(crate) fn check(tables: &Path) -> Result<()> {
    let trees = tables.join("keyspaces");
    let damaged = |path: &Path| StoreError::Corrupt(format!("{} is damaged", path.display()));
    for tree in fs::read_dir(&trees).map_err(|_| StoreError::Corrupt(format!("{} is missing", trees.display())))? {
        let tree = tree.map_err(|e| io_error("read", &trees, &e))?.path();
        let pointer = tree.join("current");
        let content = match fs::read(&pointer) {
            Ok(content) => content,
            // Its creation was interrupted: fjall removes it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io_error("read", &pointer, &error)),
        };
        let (Some(number), Some(checksum)) = (content.first_chunk::<8>(), content.get(8..24)) else {
            return Err(damaged(&pointer));
        };
        let list = tree.join(format!("v{}", u64::from_le_bytes(*number)));
        match fs::read(&list) {
            Ok(content) if xxhash_rust::xxh3::xxh3_128(&content).to_le_bytes() == checksum => {}
            Ok(_) => return Err(damaged(&list)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(damaged(&pointer)),
            Err(error) => return Err(io_error("read", &list, &error)),
        }
    }
    Ok(())
}

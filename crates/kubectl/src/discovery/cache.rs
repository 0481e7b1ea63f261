//! Discovery on disk, in kubectl's folder for it, one file per server.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Discovered;

const KEPT: Duration = Duration::from_secs(6 * 3600);
const FILE: &str = "ferry-discovery.json";

/// The folder of a server: every character that is not plain becomes `_`.
pub fn folder(cache: &Path, host: &str) -> PathBuf {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '(' | ')' | '/');
    let name: String = host.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    cache.join("discovery").join(name)
}

pub fn read(folder: &Path) -> Option<Discovered> {
    let path = folder.join(FILE);
    let written = std::fs::metadata(&path).ok()?.modified().ok()?;
    // One from the future is of another clock.
    if SystemTime::now().duration_since(written).ok()? > KEPT {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// What cannot be kept is asked for again.
pub fn write(folder: &Path, found: &Discovered) {
    let attempt = || -> Option<()> {
        std::fs::create_dir_all(folder).ok()?;
        let file = tempfile::NamedTempFile::new_in(folder).ok()?;
        serde_json::to_writer(&file, found).ok()?;
        file.persist(folder.join(FILE)).ok()?;
        Some(())
    };
    let _ = attempt();
}

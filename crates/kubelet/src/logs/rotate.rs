//! Keeps logs from filling the disk: a full one is set aside, and only the newest few are kept.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::runtime::Runtime;

const PERIOD: Duration = Duration::from_secs(10);

/// The logs that are being written: by pod uid, the containers and their files.
#[derive(Default)]
pub(crate) struct LogFiles(Mutex<HashMap<String, Vec<(String, PathBuf)>>>);

impl LogFiles {
    pub(crate) fn set(&self, uid: &str, files: Vec<(String, PathBuf)>) {
        let mut all = self.0.lock();
        if files.is_empty() {
            all.remove(uid);
        } else {
            all.insert(uid.to_owned(), files);
        }
    }

    fn all(&self) -> Vec<(String, PathBuf)> {
        self.0.lock().values().flatten().cloned().collect()
    }
}

/// Looks at the sizes now and then, for ever.
/// `most` files of each log are kept, with the one that is being written.
pub(crate) async fn rotate(files: Arc<LogFiles>, runtime: Arc<dyn Runtime>, size: u64, most: usize) {
    loop {
        tokio::time::sleep(PERIOD).await;
        for (id, path) in files.all() {
            let full = tokio::fs::symlink_metadata(&path).await.is_ok_and(|m| m.is_file() && m.len() >= size);
            if full && let Err(error) = turn(&*runtime, &id, &path, most).await {
                tracing::warn!(log = %path.display(), "not rotated: {error}");
            }
        }
    }
}

async fn turn(runtime: &dyn Runtime, id: &str, path: &Path, most: usize) -> Result<(), String> {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let aside = PathBuf::from(format!("{}.{stamp}", path.display()));
    tokio::fs::rename(path, &aside).await.map_err(|e| e.to_string())?;
    if let Err(error) = runtime.reopen_log(id).await {
        // The runtime goes on writing to the old file: give it its name back.
        let _ = tokio::fs::rename(&aside, path).await;
        return Err(error.to_string());
    }
    remove_oldest(path, most).await.map_err(|e| e.to_string())
}

async fn remove_oldest(path: &Path, most: usize) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut entries = tokio::fs::read_dir(folder).await?;
    let mut old = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            old.push(entry.path());
        }
    }
    // The names hold their times.
    old.sort();
    let excess = old.len().saturating_sub(most.saturating_sub(1));
    for path in old.into_iter().take(excess) {
        tokio::fs::remove_file(path).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_files_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        for day in 1..=7 {
            std::fs::write(folder.path().join(format!("0.log.2026010{day}-000000")), "").expect("written");
        }
        std::fs::write(&path, "").expect("written");
        remove_oldest(&path, 5).await.expect("removed");
        let mut left: Vec<String> = std::fs::read_dir(folder.path())
            .expect("a list")
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into())
            .collect();
        left.sort();
        let kept = [
            "0.log",
            "0.log.20260104-000000",
            "0.log.20260105-000000",
            "0.log.20260106-000000",
            "0.log.20260107-000000",
        ];
        assert_eq!(left, kept);
    }
}

//! Keeps logs from filling the disk: a full one is set aside, and only the newest few are kept.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;

use crate::Config;
use crate::runtime::Runtime;
use crate::settings::Logs;
use crate::volumes::blocking;

/// Between two looks while a container writes so much that its log could outgrow its size by far until the next.
const HURRY: Duration = Duration::from_millis(250);

/// How large logs grow, how many files of each are kept, and how that is seen to.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    size: u64,
    most: usize,
    interval: Duration,
    workers: usize,
}

impl Kept {
    pub(crate) fn of(config: &Config) -> Self {
        let Logs { interval, workers } = config.settings.logs;
        Self { size: config.log_size, most: config.log_files, interval, workers }
    }
}

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

/// How long the next look can wait.
#[derive(Default)]
struct Pace {
    before: HashMap<String, u64>,
}

impl Pace {
    /// A twentieth of a log in one look, and it is looked at more often.
    fn next(&mut self, sizes: HashMap<String, u64>, limit: u64, interval: Duration) -> Duration {
        let grown = |(id, size): (&String, &u64)| match self.before.get(id) {
            Some(before) if before <= size => size - before,
            // New, or set aside.
            _ => *size,
        };
        let hurry = !self.before.is_empty() && sizes.iter().map(grown).any(|grown| grown > limit / 20);
        self.before = sizes;
        if hurry { HURRY } else { interval }
    }
}

/// Looks at the sizes now and then, for ever; often where much is written. Ferry's own runtime sets a full log aside itself.
/// So many files of each log are kept, with the one that is being written.
pub(crate) async fn rotate(files: Arc<LogFiles>, runtime: Arc<dyn Runtime>, kept: Kept) {
    let mut pace = Pace::default();
    let mut wait = kept.interval;
    loop {
        tokio::time::sleep(wait).await;
        let sizes = files.all().into_iter().map(|(id, path)| look(&*runtime, id, path, kept));
        let sizes = futures::stream::iter(sizes).buffer_unordered(kept.workers).collect().await;
        wait = pace.next(sizes, kept.size, kept.interval);
    }
}

/// Sets a log aside that is full. Gives its size before.
async fn look(runtime: &dyn Runtime, id: String, path: PathBuf, kept: Kept) -> (String, u64) {
    let found = tokio::fs::symlink_metadata(&path).await.ok().filter(std::fs::Metadata::is_file);
    let length = found.map_or(0, |metadata| metadata.len());
    if length >= kept.size
        && let Err(error) = turn(runtime, &id, &path, kept.most).await
    {
        tracing::warn!(log = %path.display(), "not rotated: {error}");
    }
    (id, length)
}

async fn turn(runtime: &dyn Runtime, id: &str, path: &Path, most: usize) -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "a part of a name: nothing is decided by it")]
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    let place = path.to_owned();
    let set_aside = move || ferry_podfs::set_aside(&place, &stamp).map_err(|error| error.to_string());
    let aside = blocking(set_aside).await?;
    if let Err(error) = runtime.reopen_log(id).await {
        // The runtime goes on writing to the old file: give it its name back.
        let _ = tokio::fs::rename(&aside, path).await;
        return Err(error.to_string());
    }
    let place = path.to_owned();
    blocking(move || ferry_podfs::remove_oldest(&place, most).map_err(|error| error.to_string())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn who_writes_much_is_looked_at_often() {
        let mut pace = Pace::default();
        let seen = |pace: &mut Pace, sizes: &[(&str, u64)]| {
            pace.next(sizes.iter().map(|(id, size)| ((*id).to_owned(), *size)).collect(), 100, INTERVAL)
        };
        assert_eq!(seen(&mut pace, &[("a", 10), ("b", 90)]), INTERVAL);
        assert_eq!(seen(&mut pace, &[("a", 14), ("b", 90)]), INTERVAL);
        assert_eq!(seen(&mut pace, &[("a", 20), ("b", 90)]), HURRY);
        // Set aside meanwhile: what is there was all written since.
        assert_eq!(seen(&mut pace, &[("a", 20), ("b", 6)]), HURRY);
        assert_eq!(seen(&mut pace, &[("a", 20), ("b", 6)]), INTERVAL);
        assert_eq!(seen(&mut pace, &[("new", 500)]), HURRY);
    }
}

//! Why a container ended: the message it left in its termination file, or the end of its log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ferry_cri::v1;
use tokio::sync::Semaphore;

use crate::logs::line;
use crate::runtime::{Record, label};

/// The API server takes no longer message.
const LONGEST_MESSAGE: u64 = 4096;
/// With `FallbackToLogsOnError`: the end of the log, whichever is shorter.
const LONGEST_LOG: usize = 2048;
const LOG_LINES: usize = 80;
/// The file may lie on a volume that stands still: the pod's end is told without it then.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many threads may wait for such volumes.
static READS: Semaphore = Semaphore::const_new(16);

/// Where the message of an ended container may be.
struct Places {
    file: Option<PathBuf>,
    /// Where the message is empty.
    log: Option<PathBuf>,
}

/// Completes the record of an ended container.
pub(crate) async fn explain(status: &v1::ContainerStatus, record: &mut Record) {
    let annotation = |key: &str| status.annotations.get(key).map(String::as_str).unwrap_or_default();
    let path = annotation(label::TERMINATION_MESSAGE_PATH);
    let file = status.mounts.iter().find(|m| !path.is_empty() && m.container_path == path);
    let falls_back = annotation(label::TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError" && record.exit_code != 0;
    let places = Places {
        file: file.map(|mount| PathBuf::from(&mount.host_path)),
        log: falls_back.then(|| PathBuf::from(&status.log_path)),
    };
    let message = message(places).await;
    if !message.is_empty() {
        record.message = if record.message.is_empty() { message } else { format!("{}: {message}", record.message) };
    }
}

async fn message(places: Places) -> String {
    let read = async {
        let permit = READS.acquire().await.ok()?;
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            places.read()
        });
        read.await.ok()
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(message) => message.unwrap_or_default(),
        Err(_) => {
            tracing::warn!("a termination message is left out: its volume does not answer");
            String::new()
        }
    }
}

impl Places {
    fn read(&self) -> String {
        let message = self.file.as_deref().map(start_of).unwrap_or_default();
        match &self.log {
            Some(log) if message.is_empty() => end_of_log(log),
            _ => message,
        }
    }
}

/// The file may be anything: the container can mount a volume of its own there.
fn start_of(path: &Path) -> String {
    match ferry_podfs::read_start(path, LONGEST_MESSAGE) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            tracing::debug!(file = %path.display(), "no termination message: {error}");
            String::new()
        }
    }
}

fn end_of_log(path: &Path) -> String {
    // Each line carries a time and a stream, hence more than the message itself.
    let Ok(bytes) = ferry_podfs::read_end(path, LONGEST_LOG as u64 * 4) else { return String::new() };
    let mut text = Vec::new();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    let skip = lines.len().saturating_sub(LOG_LINES);
    for raw in lines.into_iter().skip(skip) {
        if let Some(entry) = line::parse(raw) {
            text.extend_from_slice(entry.content);
            if !entry.partial {
                text.push(b'\n');
            }
        }
    }
    let start = text.len().saturating_sub(LONGEST_LOG);
    String::from_utf8_lossy(&text[start..]).into_owned()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A FIFO there froze one worker of the whole process for each such container.
    #[tokio::test(flavor = "current_thread")]
    async fn what_stands_at_the_path_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().canonicalize().expect("a path without links");
        mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a FIFO");
        std::fs::write(at.join("secret"), "of the node").expect("written");
        std::os::unix::fs::symlink(at.join("secret"), at.join("link")).expect("a link");
        std::fs::write(at.join("plain"), "why").expect("written");
        std::fs::write(at.join("log"), "2026-01-01T00:00:01Z stdout F last words\n").expect("written");
        let check = async |file: &str, log: Option<&str>, want: &str| {
            let places = Places { file: Some(at.join(file)), log: log.map(|name| at.join(name)) };
            assert_eq!(message(places).await, want, "{file}");
        };
        for bad in ["fifo", "link", "none", "."] {
            check(bad, None, "").await;
            check(bad, Some("log"), "last words\n").await;
        }
        check("plain", Some("log"), "why").await;
        check("none", Some("fifo"), "").await;
    }
}

//! Reading a log: from where, how much, and on as it grows.

use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ferry_cri::v1::ContainerState;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{mpsc, watch};

use super::line::{self, Line, Stream};
use super::watch::Watch;
use crate::runtime::Runtime;

const BLOCK: usize = 64 * 1024;
/// A line longer than this was not written by a runtime: it splits long ones itself.
const LONGEST_LINE: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Stdout,
    Stderr,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) follow: bool,
    pub(crate) timestamps: bool,
    pub(crate) since: Option<Timestamp>,
    pub(crate) tail_lines: Option<u64>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) streams: Wanted,
}

/// Sends the log to `out`, and with `follow` what is added to it until the container has ended. `changes` tells that
/// something happened in the runtime.
pub(crate) async fn read(
    runtime: Arc<dyn Runtime>,
    id: String,
    path: PathBuf,
    options: Options,
    out: mpsc::Sender<Bytes>,
    mut changes: watch::Receiver<u64>,
) -> io::Result<()> {
    // The watch stands before the first read, so that nothing written in between is missed.
    let watch = match path.parent().filter(|_| options.follow) {
        Some(folder) => Some(Watch::new(folder)?),
        None => None,
    };
    let mut file = open(&path).await?;
    let start = match options.tail_lines {
        Some(lines) => start_of_tail(&mut file, lines).await?,
        None => 0,
    };
    file.seek(SeekFrom::Start(start)).await?;
    let mut feed = Feed { left: options.limit_bytes, at_line_start: true, options, out, pending: BytesMut::new() };
    loop {
        if !feed.drain(&mut file).await? {
            return Ok(());
        }
        let Some(watch) = &watch else { return Ok(()) };
        if let Some(next) = rotated(&path, &file).await {
            file = next;
            feed.pending.clear();
            continue;
        }
        let over = match runtime.container(&id).await {
            Ok(status) => status.state() != ContainerState::ContainerRunning,
            Err(_) => true,
        };
        if over {
            // What it wrote last may have come after our last read.
            feed.drain(&mut file).await?;
            return Ok(());
        }
        tokio::select! {
            changed = watch.changed() => changed?,
            changed = changes.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            () = feed.out.closed() => return Ok(()),
        }
    }
}

/// Opens a log. Who may write to the folder of logs may put something else there.
async fn open(path: &Path) -> io::Result<File> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || ferry_podfs::open(&path)).await;
    Ok(File::from_std(opened.map_err(io::Error::other)??))
}

/// The new file, when the log has been rotated away from under us.
async fn rotated(path: &Path, file: &File) -> Option<File> {
    let (now, ours) = (tokio::fs::symlink_metadata(path).await.ok()?, file.metadata().await.ok()?);
    if now.ino() == ours.ino() {
        return None;
    }
    open(path).await.ok()
}

/// Where the last `lines` lines begin.
async fn start_of_tail(file: &mut File, lines: u64) -> io::Result<u64> {
    let end = file.metadata().await?.len();
    if lines == 0 {
        return Ok(end);
    }
    let (mut position, mut seen) = (end, 0);
    let mut block = vec![0; BLOCK];
    while position > 0 {
        let length = position.min(BLOCK as u64);
        position -= length;
        let part = &mut block[..usize::try_from(length).unwrap_or(BLOCK)];
        file.seek(SeekFrom::Start(position)).await?;
        file.read_exact(part).await?;
        for (index, byte) in part.iter().enumerate().rev() {
            // The newline at the very end closes the last line and opens none.
            if *byte == b'\n' && position + index as u64 + 1 < end {
                seen += 1;
                if seen == lines {
                    return Ok(position + index as u64 + 1);
                }
            }
        }
    }
    Ok(0)
}

struct Feed {
    options: Options,
    out: mpsc::Sender<Bytes>,
    /// The beginning of a line that is not complete yet.
    pending: BytesMut,
    left: Option<u64>,
    at_line_start: bool,
}

impl Feed {
    /// Reads to the end of what is there. False when nobody wants more.
    async fn drain(&mut self, file: &mut File) -> io::Result<bool> {
        loop {
            self.pending.reserve(BLOCK);
            if file.read_buf(&mut self.pending).await? == 0 {
                return Ok(!self.out.is_closed());
            }
            let Some(last) = self.pending.iter().rposition(|b| *b == b'\n') else {
                if self.pending.len() > LONGEST_LINE {
                    self.pending.clear();
                }
                continue;
            };
            let whole = self.pending.split_to(last + 1);
            let mut text = BytesMut::with_capacity(whole.len());
            for raw in whole.split_inclusive(|b| *b == b'\n') {
                if let Some(line) = line::parse(raw) {
                    self.put(&line, &mut text);
                }
            }
            if !self.send(text).await {
                return Ok(false);
            }
        }
    }

    fn put(&mut self, line: &Line<'_>, text: &mut BytesMut) {
        let wanted = match self.options.streams {
            Wanted::All => true,
            Wanted::Stdout => line.stream == Stream::Stdout,
            Wanted::Stderr => line.stream == Stream::Stderr,
        };
        if !wanted {
            return;
        }
        if let Some(since) = self.options.since
            && line.timestamp().is_none_or(|at| at < since)
        {
            return;
        }
        if self.options.timestamps && self.at_line_start {
            text.extend_from_slice(line.time.as_bytes());
            text.extend_from_slice(b" ");
        }
        text.extend_from_slice(line.content);
        if !line.partial {
            text.extend_from_slice(b"\n");
        }
        self.at_line_start = !line.partial;
    }

    async fn send(&mut self, mut text: BytesMut) -> bool {
        if let Some(left) = &mut self.left {
            text.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= text.len() as u64;
        }
        if !text.is_empty() && self.out.send(text.freeze()).await.is_err() {
            return false;
        }
        self.left != Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(text: &str, options: Options) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        std::fs::write(&path, text).expect("written");
        let mut file = File::open(&path).await.expect("a file");
        let start = match options.tail_lines {
            Some(lines) => start_of_tail(&mut file, lines).await.expect("a start"),
            None => 0,
        };
        file.seek(SeekFrom::Start(start)).await.expect("a place");
        let (out, mut received) = mpsc::channel(16);
        let mut feed = Feed { left: options.limit_bytes, at_line_start: true, options, out, pending: BytesMut::new() };
        feed.drain(&mut file).await.expect("read");
        drop(feed);
        let mut all = Vec::new();
        while let Some(part) = received.recv().await {
            all.extend_from_slice(&part);
        }
        String::from_utf8(all).expect("text")
    }

    fn options() -> Options {
        Options {
            follow: false,
            timestamps: false,
            since: None,
            tail_lines: None,
            limit_bytes: None,
            streams: Wanted::All,
        }
    }

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n\
                       2026-01-01T00:00:03Z stdout P th\n2026-01-01T00:00:03Z stdout F ree\nbroken\n";

    #[tokio::test]
    async fn options_choose_what_is_shown() {
        assert_eq!(read_all(LOG, options()).await, "one\ntwo\nthree\n");
        assert_eq!(read_all(LOG, Options { tail_lines: Some(3), ..options() }).await, "three\n");
        assert_eq!(read_all(LOG, Options { tail_lines: Some(0), ..options() }).await, "");
        assert_eq!(read_all(LOG, Options { tail_lines: Some(99), ..options() }).await, "one\ntwo\nthree\n");
        assert_eq!(read_all(LOG, Options { limit_bytes: Some(5), ..options() }).await, "one\nt");
        assert_eq!(read_all(LOG, Options { streams: Wanted::Stderr, ..options() }).await, "two\n");
        let since = "2026-01-01T00:00:02Z".parse().ok();
        assert_eq!(read_all(LOG, Options { since, ..options() }).await, "two\nthree\n");
        let stamped = read_all(LOG, Options { timestamps: true, ..options() }).await;
        assert!(stamped.ends_with("2026-01-01T00:00:03Z three\n"), "{stamped}");
    }
}

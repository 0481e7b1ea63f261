//! A container's log in the format of CRI: a time, the stream, whether the line is whole, the line.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::protocol::LogLimit;

/// Longer lines are written in parts.
const LONGEST_LINE: usize = 16 * 1024;

pub(crate) struct Log {
    path: Option<PathBuf>,
    file: RefCell<Option<File>>,
    /// Bytes of the file.
    length: Cell<u64>,
    limit: Option<LogLimit>,
}

/// One of a container's two streams, with the line that is not complete yet.
pub(crate) struct Stream {
    name: &'static str,
    pending: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, pending: Vec::new() }
    }
}

impl Log {
    pub(crate) fn open(path: Option<PathBuf>, limit: Option<LogLimit>) -> std::io::Result<Self> {
        let log = Self { path, file: RefCell::default(), length: Cell::default(), limit };
        log.reopen()?;
        Ok(log)
    }

    /// Begins a new file at the old place: the one there before was set aside.
    pub(crate) fn reopen(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = open(path)?;
        self.length.set(file.metadata()?.len());
        *self.file.borrow_mut() = Some(file);
        Ok(())
    }

    pub(crate) fn write(&self, stream: &mut Stream, data: &[u8]) {
        if self.path.is_none() {
            return;
        }
        let mut out = Vec::with_capacity(data.len() + 64);
        let mut now = None;
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            let whole = part.last() == Some(&b'\n');
            stream.pending.extend_from_slice(if whole { &part[..part.len() - 1] } else { part });
            while stream.pending.len() > LONGEST_LINE {
                let rest = stream.pending.split_off(LONGEST_LINE);
                line(&mut out, &mut now, stream.name, 'P', &stream.pending);
                stream.pending = rest;
            }
            if whole {
                line(&mut out, &mut now, stream.name, 'F', &stream.pending);
                stream.pending.clear();
            }
        }
        self.put(&out);
    }

    /// What came without an end of line before the stream ended: readers add none either.
    pub(crate) fn finish(&self, stream: &mut Stream) {
        if !stream.pending.is_empty() {
            let mut out = Vec::new();
            line(&mut out, &mut None, stream.name, 'P', &stream.pending);
            stream.pending.clear();
            self.put(&out);
        }
    }

    /// A container that writes faster than anybody looks fills no disk.
    fn make_room(&self, more: u64) {
        let (Some(path), Some(limit)) = (&self.path, self.limit) else { return };
        if self.length.get() == 0 || self.length.get().saturating_add(more) <= limit.size {
            return;
        }
        let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        let turned = match ferry_podfs::set_aside(path, &time) {
            // Somebody else has just set it aside.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => self.reopen(),
        };
        if let Err(error) = turned.and_then(|()| ferry_podfs::remove_oldest(path, limit.files)) {
            eprintln!("a log is not set aside: {error}");
        }
    }

    /// A line that cannot be written (the disk is full) is lost: the container must not stand still for it.
    fn put(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.make_room(length);
        if let Some(file) = self.file.borrow_mut().as_mut() {
            self.length.set(self.length.get().saturating_add(length));
            if let Err(error) = file.write_all(bytes) {
                eprintln!("a line of a log is lost: {error}");
            }
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    ferry_podfs::append(path, 0o640)
}

fn line(out: &mut Vec<u8>, now: &mut Option<String>, stream: &str, tag: char, content: &[u8]) {
    let time = now.get_or_insert_with(|| jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string());
    out.extend_from_slice(format!("{time} {stream} {tag} ").as_bytes());
    out.extend_from_slice(content);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_whole_or_in_parts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c/0.log");
        let log = Log::open(Some(path.clone()), None).expect("a log");
        let mut stream = Stream::new("stdout");
        log.write(&mut stream, b"one\ntw");
        log.write(&mut stream, b"o\n");
        log.write(&mut stream, &[b'x'; LONGEST_LINE + 1]);
        log.write(&mut stream, b"\nlast");
        log.finish(&mut stream);
        let text = std::fs::read_to_string(&path).expect("a log");
        let seen: Vec<(&str, &str, usize)> = text
            .lines()
            .map(|line| {
                let mut words = line.splitn(4, ' ').skip(1);
                let mut word = || words.next().expect("a word");
                (word(), word(), word().len())
            })
            .collect();
        let wanted = [("F", 3), ("F", 3), ("P", LONGEST_LINE), ("F", 1), ("P", 4)];
        assert_eq!(seen, wanted.map(|(tag, length)| ("stdout", tag, length)));
        std::fs::rename(&path, folder.path().join("old")).expect("moved");
        log.reopen().expect("reopened");
        log.write(&mut stream, b"new\n");
        assert!(std::fs::read_to_string(&path).expect("a log").ends_with("new\n"));
    }

    #[test]
    fn a_full_log_is_set_aside_before_it_is_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        let limit = LogLimit { size: 10_000, files: 3 };
        let log = Log::open(Some(path.clone()), Some(limit)).expect("a log");
        let mut stream = Stream::new("stdout");
        for _ in 0..100 {
            log.write(&mut stream, &[&[b'x'; 999][..], b"\n"].concat());
        }
        let files: Vec<u64> = std::fs::read_dir(folder.path())
            .expect("a list")
            .flatten()
            .map(|entry| entry.metadata().expect("a file").len())
            .collect();
        assert_eq!(files.len(), 3, "{files:?}");
        assert!(files.iter().all(|size| (1_000..=10_000).contains(size)), "{files:?}");
        assert!(std::fs::read_to_string(&path).expect("a log").ends_with("x\n"));
    }
}

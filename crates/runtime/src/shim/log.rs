//! A container's log in the format of CRI: a time, the stream, whether the line is whole, the line.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Longer lines are written in parts.
const LONGEST_LINE: usize = 16 * 1024;

pub(crate) struct Log {
    path: Option<PathBuf>,
    file: RefCell<Option<File>>,
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
    pub(crate) fn open(path: Option<PathBuf>) -> std::io::Result<Self> {
        let file = path.as_deref().map(open).transpose()?;
        Ok(Self { path, file: RefCell::new(file) })
    }

    /// Begins a new file at the old place: the one there before was set aside.
    pub(crate) fn reopen(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = open(path)?;
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

    /// A line that cannot be written (the disk is full) is lost: the container must not stand still for it.
    fn put(&self, bytes: &[u8]) {
        if !bytes.is_empty()
            && let Some(file) = self.file.borrow_mut().as_mut()
            && let Err(error) = file.write_all(bytes)
        {
            eprintln!("a line of a log is lost: {error}");
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
        let log = Log::open(Some(path.clone())).expect("a log");
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
}

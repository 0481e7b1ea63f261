//! The file from which a DNS process that was just started answers before anybody tells it anything.
//!
//! A line with the version and whose names they are, the lines that would be told, and a line with their number and a checksum:
//! a file without its end is no file. It is replaced as a whole, and not forced to the disk: after a crash of the machine it is
//! written anew.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::line::Line;

const MAGIC: &str = "ferry-dns-names 1";
/// Some 400,000 endpoints.
const MOST: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Snapshot {
    path: PathBuf,
    first_line: String,
    most: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it is not whole")]
    Torn,
    #[error("it is of another cluster, node or version")]
    Foreign,
    #[error("it has {0} bytes, more than are read")]
    TooLarge(u64),
    #[error("it is no file of this user's, or others may write it")]
    NotOwn,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Snapshot {
    pub(super) fn new(path: PathBuf, about: &str) -> Self {
        Self { path, first_line: format!("{MAGIC} {about}\n"), most: MOST }
    }

    #[cfg(test)]
    pub(super) fn bounded(self, most: u64) -> Self {
        Self { most, ..self }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file. Where there is too much for one, there is none afterwards: it would only grow old.
    pub(super) fn write(&self, lines: impl Iterator<Item = Line>) -> Result<(), Unusable> {
        let new = self.path.with_extension("new");
        let written = self.write_to(&new, lines);
        match &written {
            Ok(()) => std::fs::rename(&new, &self.path)?,
            Err(error) => {
                let _ = std::fs::remove_file(&new);
                if matches!(error, Unusable::TooLarge(_)) {
                    let _ = std::fs::remove_file(&self.path);
                }
            }
        }
        written
    }

    fn write_to(&self, path: &Path, lines: impl Iterator<Item = Line>) -> Result<(), Unusable> {
        // Never one that is there already: it could be open to others.
        let _ = std::fs::remove_file(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::from_raw_mode(0o600)).map_err(io::Error::from)?;
        let mut file = BufWriter::new(File::from(file));
        let (mut sum, mut count, mut length) = (Sum::default(), 0_u64, 0_u64);
        let first = self.first_line.as_bytes().to_vec();
        for bytes in std::iter::once(Ok(first)).chain(lines.map(|line| line.bytes())) {
            let bytes = bytes?;
            length += bytes.len() as u64;
            if length > self.most {
                return Err(Unusable::TooLarge(length));
            }
            sum.add(&bytes);
            count += 1;
            file.write_all(&bytes)?;
        }
        file.write_all(end(count, &sum).as_bytes())?;
        Ok(file.flush()?)
    }

    /// Gives the lines of a good file; false where there is none.
    pub(super) fn read(&self, mut each: impl FnMut(Line)) -> Result<bool, Unusable> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(CWD, &self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let data = file.metadata()?;
        if !data.is_file() || data.uid() != rustix::process::geteuid().as_raw() || data.mode() & 0o022 != 0 {
            return Err(Unusable::NotOwn);
        }
        // What is written is bounded without its last line.
        if data.len() > self.most + 64 {
            return Err(Unusable::TooLarge(data.len()));
        }
        let mut file = BufReader::new(file.take(data.len()));
        let count = self.check(&mut file)?;
        let mut inner = file.into_inner().into_inner();
        inner.rewind()?;
        let mut file = BufReader::new(inner.take(data.len()));
        let mut line = Vec::new();
        for number in 0..count {
            line.clear();
            file.read_until(b'\n', &mut line)?;
            if number > 0 {
                each(Line::read(&line)?);
            }
        }
        Ok(true)
    }

    /// The number of lines before the last one, once all is known to be as it was written.
    fn check(&self, file: &mut impl BufRead) -> Result<u64, Unusable> {
        let (mut sum, mut count, mut line) = (Sum::default(), 0_u64, Vec::new());
        loop {
            line.clear();
            file.read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Err(Unusable::Torn);
            }
            if count == 0 && line != self.first_line.as_bytes() {
                return Err(Unusable::Foreign);
            }
            if count > 0 && line == end(count, &sum).as_bytes() {
                return Ok(count);
            }
            sum.add(&line);
            count += 1;
        }
    }
}

fn end(count: u64, sum: &Sum) -> String {
    format!("end {count} {:016x}\n", sum.0)
}

/// FNV-1a: against a file that was cut or damaged, not against somebody who may write it.
struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

//! Layers into folders, without trusting them: every path is resolved inside the image, whatever links it goes through,
//! and everything has a bound.
//!
//! A layer is applied to an overlay of the ones below, so that links, owners and deleted files are those of the image as
//! a whole; what changes is caught in the layer's own folder.

mod bounds;
mod entry;
#[cfg(test)]
mod tests;
mod zstd;

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

pub(crate) use bounds::{DISK_RESERVE, Limits, Room};
use bounds::{Meter, Metered};
use entry::Layer;

/// The kernel takes no longer path.
const LONGEST_PATH: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    #[error("{0}")]
    Read(io::Error),
    #[error("entry {path:?}: {error}")]
    Entry { path: PathBuf, error: io::Error },
    #[error("entry {0:?} leads out of the image")]
    Escape(PathBuf),
    #[error("it has an entry with a path of {0} bytes")]
    LongPath(usize),
    #[error("no space left on device: less than {} MiB would be left, or hardly a file", DISK_RESERVE / 1024 / 1024)]
    Full,
    #[error("it is corrupt: its content has the digest {0}")]
    Corrupt(String),
    #[error("it has too many entries")]
    Crowded,
}

struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}

/// Unpacks a compressed or plain archive into `root` and checks that its plain form has this digest.
pub(crate) fn unpack(archive: impl Read, root: &Path, diff_id: &str, limits: Limits) -> Result<(), UnpackError> {
    let mut archive = BufReader::with_capacity(256 * 1024, archive);
    let magic = archive.fill_buf().map_err(UnpackError::Read)?;
    let plain: Box<dyn Read> = if magic.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(archive))
    } else if magic.starts_with(&zstd::MAGIC) {
        Box::new(zstd::Zstd::new(archive))
    } else {
        Box::new(archive)
    };
    let meter = Meter::new(limits);
    let mut plain = Hashing { inner: Metered { inner: plain, meter: meter.clone() }, hash: Sha256::new() };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty()).map_err(|error| UnpackError::Read(error.into()))?;
    apply(&mut plain, &root, &meter, limits)?;
    // Archives may be padded behind their end.
    meter.in_header(false);
    io::copy(&mut plain, &mut io::sink()).map_err(UnpackError::Read)?;
    let found = format!("sha256:{:x}", plain.hash.finalize());
    if found == diff_id { Ok(()) } else { Err(UnpackError::Corrupt(found)) }
}

/// For the fuzzer: a layer of bytes that nobody vouches for, within narrow limits.
#[doc(hidden)]
pub fn unpack_layer(archive: &[u8], root: &Path, diff_id: &str) -> Result<(), String> {
    let limits = Limits { header: 64 << 10, entries: 256, names: 16 << 10, content: 1 << 20 };
    unpack(archive, root, diff_id, limits).map_err(|error| error.to_string())
}

fn full(error: io::Error, other: impl FnOnce(io::Error) -> UnpackError) -> UnpackError {
    match error.raw_os_error() {
        Some(code) if code == Errno::NOSPC.raw_os_error() => UnpackError::Full,
        _ => other(error),
    }
}

fn apply(plain: &mut impl Read, root: &OwnedFd, meter: &Rc<Meter>, limits: Limits) -> Result<(), UnpackError> {
    let mut archive = tar::Archive::new(plain);
    let mut layer = Layer::new(root, meter, limits).map_err(|error| full(error, UnpackError::Read))?;
    let mut entries = archive.entries().map_err(UnpackError::Read)?;
    loop {
        meter.in_header(true);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(UnpackError::Read)?;
        let path = inside(&entry.path().map_err(UnpackError::Read)?)?;
        meter.in_header(false);
        if !path.as_os_str().is_empty() {
            let applied = layer.apply(&path, &mut entry);
            let crowded = layer.is_crowded();
            applied.map_err(|error| {
                if crowded {
                    return UnpackError::Crowded;
                }
                full(error, |error| UnpackError::Entry { path: path.clone(), error })
            })?;
        }
        // What is left of it is not part of the next header.
        layer.skip(&mut entry).map_err(|error| full(error, UnpackError::Read))?;
    }
    layer.set_times();
    Ok(())
}

/// The path without its leading slash and dots; one that climbs is refused.
fn inside(path: &Path) -> Result<PathBuf, UnpackError> {
    let length = path.as_os_str().len();
    if length > LONGEST_PATH {
        return Err(UnpackError::LongPath(length));
    }
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(UnpackError::Escape(path.to_owned())),
        }
    }
    Ok(clean)
}

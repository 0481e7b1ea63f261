//! Small files in which a part of the kubelet keeps what it has given out.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// A node has not so many containers.
const LARGEST: u64 = 16 << 20;

/// FNV-1a, of what upstream prints.
pub(crate) fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Whole or not at all, also when the machine loses its power.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let half = path.with_extension("new");
    let mut file = fs::File::create(&half)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(half, path)
}

/// None where there is none.
pub(crate) fn contents(path: &Path) -> io::Result<Option<String>> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        about => about?,
    };
    if about.len() > LARGEST {
        return Err(io::Error::other("it is too large"));
    }
    fs::read_to_string(path).map(Some)
}

/// What a manager kept, as `parse` reads it; None where it kept nothing. What cannot be read is told in upstream's words.
pub(crate) fn restore<T>(
    path: &Path,
    manager: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let read = match contents(path) {
        Ok(None) => return Ok(None),
        Ok(Some(text)) => parse(&text),
        Err(error) => Err(error.to_string()),
    };
    read.map(Some).map_err(|why| {
        format!(
            "could not restore state from checkpoint: {why}, please drain this node and delete the {manager} checkpoint file \
             {:?} before restarting Kubelet",
            path.display().to_string()
        )
    })
}

/// Keeps what a manager has given out.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), String> {
    write(path, text).map_err(|error| format!("could not save checkpoint {}: {error}", path.display()))
}

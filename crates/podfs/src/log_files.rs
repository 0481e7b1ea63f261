//! The files of one log: the one that is written, and those that were set aside with the time in their names.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Gives a log another name, `0.log.20260102-150405`, and says which.
pub fn set_aside(path: &Path, time: &str) -> io::Result<PathBuf> {
    // Several of one second are told apart, so that none replaces another; the names sort as the times do.
    for number in 0..1000 {
        let mut name = OsString::from(path);
        name.push(if number == 0 { format!(".{time}") } else { format!(".{time}.{number:03}") });
        match rustix::fs::renameat_with(
            rustix::fs::CWD,
            path,
            rustix::fs::CWD,
            Path::new(&name),
            rustix::fs::RenameFlags::NOREPLACE,
        ) {
            Ok(()) => return Ok(name.into()),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files of one second"))
}

/// Keeps the newest files: `most` of them with the one that is written.
pub fn remove_oldest(path: &Path, most: usize) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut old = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            old.push(entry.path());
        }
    }
    old.sort();
    let excess = old.len().saturating_sub(most.saturating_sub(1));
    old.into_iter().take(excess).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_go_and_none_replaces_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        for text in ["a", "b", "c", "d"] {
            std::fs::write(&path, text).expect("written");
            set_aside(&path, "20260102-150405").expect("set aside");
        }
        std::fs::write(&path, "e").expect("written");
        set_aside(&path, "20260102-150406").expect("set aside");
        std::fs::write(&path, "").expect("written");
        std::fs::write(folder.path().join("1.log"), "another").expect("written");
        remove_oldest(&path, 4).expect("removed");
        let mut left: Vec<(String, String)> = std::fs::read_dir(folder.path())
            .expect("a list")
            .flatten()
            .map(|e| (e.file_name().to_string_lossy().into(), std::fs::read_to_string(e.path()).expect("a file")))
            .collect();
        left.sort();
        let kept = [
            ("0.log", ""),
            ("0.log.20260102-150405.002", "c"),
            ("0.log.20260102-150405.003", "d"),
            ("0.log.20260102-150406", "e"),
            ("1.log", "another"),
        ];
        assert_eq!(left, kept.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}

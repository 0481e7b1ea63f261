//! Tar archives of files here, and files here of tar archives. What a container sends stays in the target folder.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::Receiver;

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2};

/// Pieces of an archive on their way to a container.
pub struct Pieces(pub tokio::sync::mpsc::Sender<Vec<u8>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the container no longer reads");
        self.0.blocking_send(bytes.to_vec()).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a container sent, as something to read.
pub struct Received {
    parts: Receiver<Vec<u8>>,
    part: Vec<u8>,
    at: usize,
}

impl Received {
    pub fn new(parts: Receiver<Vec<u8>>) -> Self {
        Self { parts, part: Vec::new(), at: 0 }
    }
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.part.len() {
            let Ok(part) = self.parts.recv() else { return Ok(0) };
            (self.part, self.at) = (part, 0);
        }
        let count = buffer.len().min(self.part.len() - self.at);
        buffer[..count].copy_from_slice(&self.part[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

pub fn pack(from: &Path, name: &Path, to: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(64 << 10, to));
    archive.follow_symlinks(false);
    add(&mut archive, from, name)?;
    archive.into_inner()?.flush()
}

fn add(archive: &mut tar::Builder<impl Write>, from: &Path, name: &Path) -> io::Result<()> {
    let metadata = from.symlink_metadata()?;
    if !metadata.is_dir() {
        return archive.append_path_with_name(from, name);
    }
    let mut entries = std::fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
    if entries.is_empty() {
        return archive.append_dir(name, from);
    }
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        add(archive, &entry.path(), &name.join(entry.file_name()))?;
    }
    Ok(())
}

/// How the names of an archive begin that a path was packed into.
pub fn prefix(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names of an archive without their beginning, below a folder, or as the one file that is meant. Returns what was
/// left out.
pub fn unpack(archive: impl Read, prefix: &str, to: &Path) -> io::Result<Vec<String>> {
    let mut skipped = Vec::new();
    let mut folder: Option<OwnedFd> = None;
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let name = name.to_str().unwrap_or_default().trim_start_matches("./");
        let rest = name.trim_start_matches('/').strip_prefix(prefix);
        let Some(rest) = rest.filter(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/')) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "tar contents corrupted"));
        };
        let Some(inside) = inside(rest) else {
            let place = to.join(rest.trim_start_matches('/'));
            skipped.push(format!(
                "warning: file {:?} is outside target destination, skipping",
                place.display().to_string()
            ));
            continue;
        };
        let kind = entry.header().entry_type();
        let place = to.join(&inside).display().to_string();
        if kind.is_symlink() || kind.is_hard_link() {
            let target = entry.link_name()?.unwrap_or_default().display().to_string();
            skipped.push(format!("warning: skipping symlink: {place:?} -> {target:?}"));
            continue;
        }
        if !kind.is_dir() && !kind.is_file() {
            continue;
        }
        if inside.as_os_str().is_empty() {
            if kind.is_dir() {
                std::fs::create_dir_all(to)?;
            } else {
                to.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                io::copy(&mut entry, &mut std::fs::File::create(to)?)?;
            }
            continue;
        }
        let root = match &folder {
            Some(root) => root,
            None => {
                std::fs::create_dir_all(to)?;
                folder.insert(open(to, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
            }
        };
        write(root, &inside, kind.is_dir(), &mut entry)?;
    }
    Ok(skipped)
}

/// The name below the folder; none where it leads out of it.
fn inside(name: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(name.trim_start_matches('/')).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    Some(path)
}

/// The kernel keeps it below the folder, wherever links of that folder lead.
fn write(root: &OwnedFd, name: &Path, is_dir: bool, from: &mut impl Read) -> io::Result<()> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let folders = if is_dir { name } else { name.parent().unwrap_or(Path::new("")) };
    let mut at = PathBuf::new();
    let mut parent = rustix::io::fcntl_dupfd_cloexec(root, 0)?;
    for part in folders.components() {
        at.push(part);
        match mkdirat(&parent, Path::new(part.as_os_str()), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        parent = openat2(root, &at, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), beneath)?;
    }
    if is_dir {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = openat2(root, name, flags, Mode::from_raw_mode(0o666), beneath)?;
    io::copy(from, &mut std::fs::File::from(file))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, text) in entries {
            let mut header = tar::Header::new_gnu();
            // Set by hand: the library does not write names that lead out.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            archive.append(&header, text.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn a_tree_goes_there_and_back() {
        let here = tempfile::tempdir().unwrap();
        let from = here.path().join("from");
        std::fs::create_dir_all(from.join("a/empty")).unwrap();
        std::fs::write(from.join("a/one"), "1").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.join("link")).unwrap();
        let mut bytes = Vec::new();
        pack(&from, Path::new("x"), &mut bytes).unwrap();
        let to = here.path().join("to");
        let skipped = unpack(&*bytes, "x", &to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("a/one")).unwrap(), "1");
        assert!(to.join("a/empty").is_dir() && !to.join("link").exists());
        assert!(skipped.len() == 1 && skipped[0].contains("skipping symlink"), "{skipped:?}");
        let file = here.path().join("file");
        let mut bytes = Vec::new();
        pack(&from.join("a/one"), Path::new("y"), &mut bytes).unwrap();
        unpack(&*bytes, "y", &file).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "1");
    }

    #[test]
    fn nothing_leaves_the_folder() {
        let here = tempfile::tempdir().unwrap();
        let (to, outside) = (here.path().join("to"), here.path().join("outside"));
        std::fs::create_dir_all(&to).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        let skipped = unpack(&*archive(&[("x/../../outside/a", "bad"), ("x/good", "1")]), "x", &to).unwrap();
        assert!(skipped[0].contains("outside target destination"), "{skipped:?}");
        assert_eq!(std::fs::read_to_string(to.join("good")).unwrap(), "1");
        // A link that is there already leads nowhere either.
        std::os::unix::fs::symlink(&outside, to.join("out")).unwrap();
        assert!(unpack(&*archive(&[("x/out/a", "bad")]), "x", &to).is_err());
        assert!(std::fs::read_dir(&outside).unwrap().next().is_none());
        assert!(unpack(&*archive(&[("y/a", "bad")]), "x", &to).unwrap_err().to_string().contains("corrupted"));
    }

    #[test]
    fn names_in_an_archive_have_no_slash_before_them() {
        assert_eq!((&*prefix("/tmp/a/../b/"), &*prefix("./x"), &*prefix("/")), ("tmp/b", "x", ""));
    }
}

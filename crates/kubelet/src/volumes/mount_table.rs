//! What is mounted where, as the kernel tells it. A share or a disk that does not answer is not touched by a look into the
//! table.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::directory::unescape;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountPoint {
    pub(super) place: PathBuf,
    /// The device's numbers; those of a file system without a device are made up.
    pub(super) device: String,
    pub(super) source: String,
    /// Of this mount point.
    pub(super) options: Vec<String>,
    /// Of the file system, wherever it is mounted.
    pub(super) file_system_options: Vec<String>,
}

impl MountPoint {
    fn parse(line: &str) -> Option<Self> {
        let (own, shared) = line.split_once(" - ")?;
        let own: Vec<&str> = own.split(' ').collect();
        let shared: Vec<&str> = shared.split(' ').collect();
        let options = |text: &str| text.split(',').map(str::to_owned).collect();
        Some(Self {
            device: (*own.get(2)?).to_owned(),
            place: unescape(own.get(4)?).into(),
            options: options(own.get(5)?),
            source: unescape(shared.get(1)?),
            file_system_options: options(shared.get(2)?),
        })
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

fn read() -> io::Result<Vec<MountPoint>> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?.lines().filter_map(MountPoint::parse).collect())
}

/// What is mounted at a place: the newest, where there are several. The place itself is not looked at.
pub(super) fn at(place: &Path) -> io::Result<Option<MountPoint>> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { return Ok(None) };
    let place = match parent.canonicalize() {
        Ok(parent) => parent.join(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(read()?.into_iter().rfind(|mount| mount.place == place))
}

/// What is mounted below a folder, the newest and deepest first; nothing where there is no such folder.
pub(super) fn below(folder: &Path) -> io::Result<Vec<MountPoint>> {
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all: Vec<MountPoint> = read()?.into_iter().filter(|mount| mount.place.starts_with(&folder)).rev().collect();
    all.sort_by_key(|mount| std::cmp::Reverse(mount.place.components().count()));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = "49 27 7:0 / /a\\040b ro,relatime shared:5 master:1 - nfs4 [fe80::1%eth0]:/x\\040y rw,vers=4.2";
        let mount = MountPoint::parse(line).expect("a mount");
        assert_eq!(mount.place, Path::new("/a b"));
        assert_eq!((mount.device.as_str(), mount.source.as_str()), ("7:0", "[fe80::1%eth0]:/x y"));
        assert!(mount.is_read_only());
        assert_eq!(mount.file_system_options, ["rw", "vers=4.2"]);
        assert_eq!(MountPoint::parse("49 27 7:0 / /a ro"), None);
        assert_eq!(at(Path::new("/nonexistent/below")).expect("read"), None);
        assert_eq!(at(Path::new("/proc")).expect("read").expect("mounted").source, "proc");
    }
}

//! A folder whose content changes all at once.
//!
//! Files live in a folder of their own, `..data` points to it, and each visible name is a link through `..data`. A
//! change writes a new folder and swaps the one link, so that a reader never sees half of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Payload {
    pub(crate) data: Vec<u8>,
    pub(crate) mode: u32,
    /// Root where nobody is named.
    pub(crate) owner: Option<u32>,
}

/// Paths below the folder, and what is to be in them.
pub(crate) type Files = BTreeMap<String, Payload>;

/// Of the volume itself and of folders in it. Only the kubelet writes there.
pub(crate) const FOLDER_MODE: u32 = 0o755;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Makes `folder` show exactly `files`. Does nothing when it already does. True when something changed.
pub(crate) fn write(folder: &Path, files: &Files, group: Option<u32>) -> io::Result<bool> {
    for path in files.keys() {
        check(path)?;
    }
    if !folder.exists() {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?;
    }
    let data = folder.join(DATA);
    let old = fs::read_link(&data).ok();
    if let Some(old) = &old
        && is_current(&folder.join(old), files, group)
    {
        return Ok(false);
    }
    #[expect(clippy::disallowed_methods, reason = "a part of a name: nothing is decided by it")]
    let stamp = format!(
        "..{}.{:09}",
        jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S"),
        rand::random_range(0..1_000_000_000)
    );
    let fresh = folder.join(&stamp);
    let made = fill(&fresh, files, group).and_then(|()| {
        let next = folder.join(NEW_DATA);
        let _ = fs::remove_file(&next);
        symlink(&stamp, &next)?;
        fs::rename(&next, &data)
    });
    if let Err(error) = made {
        let _ = fs::remove_dir_all(&fresh);
        return Err(error);
    }
    link_names(folder, files)?;
    if let Some(old) = old.filter(|old| old.to_string_lossy() != stamp) {
        let _ = fs::remove_dir_all(folder.join(old));
    }
    Ok(true)
}

/// A path must stay below the folder and out of the writer's own names.
fn check(path: &str) -> io::Result<()> {
    let bad = Path::new(path).components().any(|c| !matches!(c, Component::Normal(_))) || path.is_empty();
    if bad || path.starts_with("..") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid path: {path:?}")));
    }
    Ok(())
}

fn is_current(data: &Path, files: &Files, group: Option<u32>) -> bool {
    let mut present = BTreeSet::new();
    if collect(data, data, &mut present).is_err() || present.len() != files.len() {
        return false;
    }
    files.iter().all(|(path, payload)| {
        let file = data.join(path);
        present.contains(Path::new(path))
            && fs::read(&file).is_ok_and(|bytes| bytes == payload.data)
            && fs::metadata(&file).is_ok_and(|about| {
                let mode = mode_of_file(payload.mode, group);
                (about.mode() & 0o7777, about.uid()) == (mode, payload.owner.unwrap_or(0))
            })
    })
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(root, &entry.path(), found)?;
        } else if let Ok(path) = entry.path().strip_prefix(root) {
            found.insert(path.to_owned());
        }
    }
    Ok(())
}

fn fill(fresh: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    fs::create_dir(fresh)?;
    own(fresh, mode_of_folder(group), None, group)?;
    for (path, payload) in files {
        let file = fresh.join(path);
        let mut parents: Vec<&Path> = file.ancestors().skip(1).take_while(|p| *p != fresh).collect();
        parents.reverse();
        for parent in parents {
            if !parent.exists() {
                fs::create_dir(parent)?;
                own(parent, mode_of_folder(group), None, group)?;
            }
        }
        // Closed until it has its owner: it may be a key.
        let mut new = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        new.write_all(&payload.data)?;
        own(&file, mode_of_file(payload.mode, group), payload.owner, group)?;
    }
    Ok(())
}

/// Members of the group may read.
fn mode_of_file(mode: u32, group: Option<u32>) -> u32 {
    if group.is_some() { mode | 0o040 } else { mode }
}

fn mode_of_folder(group: Option<u32>) -> u32 {
    if group.is_some() { FOLDER_MODE | 0o2050 } else { FOLDER_MODE }
}

/// The owner first: a change of it takes bits of the mode away.
fn own(path: &Path, mode: u32, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
    if owner.is_some() || group.is_some() {
        chown(path, owner, group)?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn link_names(folder: &Path, files: &Files) -> io::Result<()> {
    let names: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !names.contains(name.as_ref()) && entry.file_type()?.is_symlink() {
            fs::remove_file(entry.path())?;
        }
    }
    for name in names {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter()
            .map(|(p, d)| ((*p).to_owned(), Payload { data: d.as_bytes().to_vec(), mode: 0o644, owner: None }))
            .collect()
    }

    #[test]
    fn content_changes_at_once_and_old_names_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert!(write(root, &files(&[("a", "1"), ("deep/b", "2")]), None).expect("written"));
        assert_eq!(fs::read_to_string(root.join("deep/b")).expect("b"), "2");
        assert!(!write(root, &files(&[("a", "1"), ("deep/b", "2")]), None).expect("unchanged"));
        let first = fs::read_link(root.join(DATA)).expect("a link");
        assert!(write(root, &files(&[("a", "3")]), None).expect("written"));
        assert_eq!(fs::read_to_string(root.join("a")).expect("a"), "3");
        assert!(fs::symlink_metadata(root.join("deep")).is_err());
        assert!(!root.join(first).exists());
    }

    #[test]
    fn files_have_the_mode_and_the_owner_they_are_to_have() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = folder.path().join("volume");
        let of = |mode, owner| {
            let payload = Payload { data: b"key".to_vec(), mode, owner };
            Files::from([("token".to_owned(), payload)])
        };
        let seen = || {
            let about = fs::metadata(volume.join("token")).expect("there");
            (about.mode() & 0o7777, about.uid(), about.gid())
        };
        assert!(write(&volume, &of(0o600, Some(1000)), None).expect("written"));
        assert_eq!(seen(), (0o600, 1000, 0));
        assert!(!write(&volume, &of(0o600, Some(1000)), None).expect("unchanged"));
        assert!(write(&volume, &of(0o644, None), None).expect("written"), "another user came into the pod");
        assert_eq!(seen(), (0o644, 0, 0));
        assert!(write(&volume, &of(0o600, None), Some(2000)).expect("written"));
        assert_eq!(seen(), (0o640, 0, 2000));
        assert_eq!(fs::metadata(&volume).expect("there").mode() & 0o777, FOLDER_MODE);
    }

    #[test]
    fn paths_out_of_the_folder_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for bad in ["../x", "/x", "a/../../x", "..data", "", "a/./../b"] {
            assert!(write(folder.path(), &files(&[(bad, "x")]), None).is_err(), "{bad}");
        }
    }
}

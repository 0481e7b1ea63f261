//! Giving a volume to the group that the pod names: every file in it becomes the group's, readable and writable.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const ENTER: u32 = 0o110;
const INHERIT: u32 = 0o2000;

/// `unless_given` spares the walk where the root shows that it has been done.
pub(super) fn give(root: &Path, group: u32, read_only: bool, unless_given: bool) -> io::Result<()> {
    let about = fs::metadata(root)?;
    let mask = if read_only { READ_ONLY } else { READ_WRITE } | ENTER | INHERIT;
    if unless_given && about.gid() == group && about.mode() & mask == mask {
        return Ok(());
    }
    walk(root, group, read_only)
}

fn walk(path: &Path, group: u32, read_only: bool) -> io::Result<()> {
    let about = fs::symlink_metadata(path)?;
    if about.is_dir() {
        // The root comes last: it shows that all of it is done.
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), group, read_only)?;
        }
    }
    lchown(path, None, Some(group))?;
    if about.is_symlink() {
        return Ok(());
    }
    let mut mode = about.mode() & 0o7777 | if read_only { READ_ONLY } else { READ_WRITE };
    if about.is_dir() {
        mode |= ENTER | INHERIT;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, file) = (folder.path().join("inner"), folder.path().join("inner/file"));
        fs::create_dir(&inner).expect("a folder");
        fs::write(&file, "").expect("a file");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a mode");
        std::os::unix::fs::symlink("/nowhere", folder.path().join("link")).expect("a link");
        give(folder.path(), 4711, false, true).expect("given");
        for (path, mode) in [(folder.path(), 0o2770), (&*inner, 0o2770), (&*file, 0o660)] {
            let about = fs::metadata(path).expect("metadata");
            assert_eq!((about.gid(), about.mode() & mode), (4711, mode), "{}", path.display());
        }
        // Found done, it is left alone.
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a mode");
        give(folder.path(), 4711, false, true).expect("given");
        assert_eq!(fs::metadata(&file).expect("metadata").mode() & 0o777, 0o600);
    }
}

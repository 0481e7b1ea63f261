//! Folders as volumes: empty ones, in memory, of the node; and taking them away again.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::quantity;

pub(super) fn empty(folder: &Path, source: &EmptyDirVolumeSource, group: Option<u32>) -> io::Result<()> {
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    if source.medium.as_deref() == Some("Memory") {
        return memory(folder, source.size_limit.as_ref().and_then(quantity::value), mode, group);
    }
    if folder.exists() {
        return Ok(());
    }
    // Whole or not at all: one that exists is never given to the group again. No volume's name has a dot.
    let half = folder.with_extension("new");
    fs::create_dir_all(&half)?;
    if group.is_some() {
        chown(&half, None, group)?;
    }
    fs::set_permissions(&half, Permissions::from_mode(mode))?;
    fs::rename(half, folder)
}

/// Mounts a file system in memory, once; its root has this mode and group.
pub(super) fn memory(folder: &Path, size: Option<i64>, mode: u32, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if is_mount_point(folder)? {
        return Ok(());
    }
    let mut options = format!("mode={mode:o}");
    if let Some(bytes) = size.filter(|bytes| *bytes > 0) {
        options += &format!(",size={bytes}");
    }
    if let Some(group) = group {
        options += &format!(",gid={group}");
    }
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // Where that may not be, the volume may not be: a folder on disk is not what was asked for.
    Ok(rustix::mount::mount("tmpfs", folder, "tmpfs", flags, options.as_c_str())?)
}

pub(super) fn is_mount_point(folder: &Path) -> io::Result<bool> {
    let parent = folder.parent().unwrap_or(folder);
    Ok(fs::metadata(folder)?.dev() != fs::metadata(parent)?.dev())
}

/// Checks a path of the node, and makes it where its type says so.
pub(super) fn host_path(path: &str, kind: &str) -> Result<PathBuf, String> {
    let place = PathBuf::from(path);
    if !place.is_absolute() {
        return Err(format!("hostPath {path:?} is not absolute"));
    }
    let failed = |what: &str| format!("hostPath type check failed: {path} is not {what}");
    let kind_of = || fs::metadata(&place).map(|m| m.file_type()).ok();
    match kind {
        "DirectoryOrCreate" => {
            ferry_podfs::make_folders(&place, 0o755).map_err(|e| e.to_string())?;
        }
        "FileOrCreate" => {
            ferry_podfs::create(&place, 0o644).map_err(|e| e.to_string())?;
        }
        _ => {}
    }
    match kind {
        "Directory" | "DirectoryOrCreate" if !kind_of().is_some_and(|t| t.is_dir()) => Err(failed("a directory")),
        "File" | "FileOrCreate" if !kind_of().is_some_and(|t| t.is_file()) => Err(failed("a file")),
        "Socket" if !kind_of().is_some_and(|t| t.is_socket()) => Err(failed("a socket file")),
        "CharDevice" if !kind_of().is_some_and(|t| t.is_char_device()) => Err(failed("a character device")),
        "BlockDevice" if !kind_of().is_some_and(|t| t.is_block_device()) => Err(failed("a block device")),
        _ => Ok(place),
    }
}

/// Unmounts everything below a folder, then removes it. Nothing is removed while something is still mounted: that
/// could be another's data.
pub(super) fn remove_all(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for point in mounts_below(folder)? {
        rustix::mount::unmount(&point, UnmountFlags::DETACH)?;
    }
    if !mounts_below(folder)?.is_empty() {
        return Err(io::Error::other("something is still mounted"));
    }
    ferry_podfs::remove_all(folder)
}

/// Mount points below a folder, the deepest first.
pub(super) fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = folder.canonicalize()?;
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape(field)))
        .filter(|point| point.starts_with(&folder))
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(points)
}

/// The kernel writes spaces and the like as three octal digits.
pub(super) fn unescape(field: &str) -> String {
    let mut out = Vec::new();
    let bytes = field.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) if bytes[at] == b'\\' => {
                out.push(byte);
                at += 4;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_checked_by_type() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        assert!(host_path(&path("made"), "DirectoryOrCreate").is_ok());
        assert!(host_path(&path("made"), "Directory").is_ok());
        assert!(host_path(&path("made"), "File").is_err_and(|e| e.contains("is not a file")));
        assert!(host_path(&path("file"), "FileOrCreate").is_ok());
        assert!(host_path(&path("none"), "Socket").is_err());
        assert!(host_path("relative", "").is_err());
    }

    /// A kubelet that was killed half-way leaves nothing that looks like the volume.
    #[test]
    fn an_empty_folder_is_made_whole() {
        if !rustix::process::geteuid().is_root() {
            return ferry_testkit::skip("giving files to a group needs root");
        }
        let root = tempfile::tempdir().expect("a folder");
        let about = |path: &Path| fs::metadata(path).map(|about| (about.mode() & 0o7777, about.gid())).expect("there");
        let disk = root.path().join("volumes/disk");
        fs::create_dir_all(disk.with_extension("new")).expect("half of it");
        empty(&disk, &EmptyDirVolumeSource::default(), Some(77)).expect("made");
        assert_eq!(about(&disk), (0o2777, 77));
        assert!(!disk.with_extension("new").exists());
        fs::set_permissions(&disk, Permissions::from_mode(0o700)).expect("by a container");
        empty(&disk, &EmptyDirVolumeSource::default(), Some(77)).expect("there already");
        assert_eq!(about(&disk), (0o700, 77), "it stays as it is");
        let memory = root.path().join("volumes/memory");
        fs::create_dir_all(&memory).expect("before it was mounted");
        let source = EmptyDirVolumeSource { medium: Some("Memory".into()), ..EmptyDirVolumeSource::default() };
        empty(&memory, &source, Some(77)).expect("made");
        let seen = about(&memory);
        rustix::mount::unmount(&memory, UnmountFlags::DETACH).expect("unmounted");
        assert_eq!(seen, (0o2777, 77));
    }

    #[test]
    fn escapes_of_the_mount_table_are_undone() {
        assert_eq!(unescape("/a\\040b\\134"), "/a b\\");
        assert_eq!(unescape("/plain\\"), "/plain\\");
    }
}

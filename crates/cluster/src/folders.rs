//! Ferry's own folders: what is in them is nobody else's on this machine to read.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::Mode;

/// What Ferry keeps in its data folder and in the one for sockets.
const OWN: [&str; 33] = [
    "addresses",
    "bridge",
    "cgroup-root",
    "cni",
    "containerd",
    "containerd.log",
    "containerd.pid",
    "containerd.sock",
    "containerd.sock.ttrpc",
    "containerd.toml",
    "dns-names",
    "dns.lock",
    "dns.log",
    "dns.sock",
    "etcd",
    "etcd.log",
    "etcd.pid",
    "ferry.lock",
    "ferry.log",
    "kubeconfig",
    "kubelet",
    "kubelet-folders.json",
    "local-path",
    "logs",
    "membership.json",
    "migration.json",
    "moved.json",
    "node-pki",
    "pki",
    "pod-network",
    "registries",
    "runtime",
    "server.json",
];
const STORE: [&str; 2] = ["store", "store.sock"];
/// Group and others may not write, others not even look.
const MOST: u32 = 0o750;

/// What this process makes from now on is closed to others, unless it is given another mode on purpose: what containers
/// are to see is.
pub fn keep_private() {
    rustix::process::umask(Mode::from_raw_mode(0o027));
}

/// For programs whose files others are meant to see: the folders that containerd makes are the roots of containers.
pub fn usual_umask() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// Makes a folder, and closes it and what Ferry has in it. A folder with other things in it stays as it is: it is not
/// Ferry's to close (`--data-dir /srv`), what Ferry has in it is.
pub fn prepare(folder: &Path) -> Result<()> {
    let failed = || format!("cannot prepare {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    let mut is_own = true;
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name();
        if OWN.iter().chain(&STORE).any(|own| name == *own) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                close(&entry.path()).with_context(failed)?;
            }
        } else if name != "lost+found" {
            is_own = false;
        }
    }
    if is_own {
        close(folder).with_context(failed)?;
    }
    Ok(())
}

fn close(folder: &Path) -> std::io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode() & 0o7777;
    if mode & !MOST == 0 {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(mode & MOST))
}

/// What a file holds; none where there is no such file.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    #[test]
    fn own_folders_are_closed_and_those_of_others_left() {
        let place = tempfile::tempdir().expect("a folder");
        let open = |path: &Path| {
            fs::create_dir_all(path).expect("a folder");
            fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a mode");
        };
        let (own, shared) = (place.path().join("own"), place.path().join("shared"));
        for folder in [&own, &shared] {
            open(folder);
            open(&folder.join("store"));
            open(&folder.join("lost+found"));
        }
        open(&shared.join("photos"));
        prepare(&own).expect("prepared");
        prepare(&shared).expect("prepared");
        assert_eq!((mode(&own), mode(&own.join("store"))), (0o750, 0o750));
        assert_eq!((mode(&shared), mode(&shared.join("store")), mode(&shared.join("photos"))), (0o755, 0o750, 0o755));
        fs::set_permissions(&own, Permissions::from_mode(0o700)).expect("a mode");
        prepare(&own).expect("prepared");
        assert_eq!(mode(&own), 0o700, "it is never opened");
    }
}

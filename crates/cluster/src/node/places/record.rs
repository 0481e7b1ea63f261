//! Which folders of a node are outside its data folder, and which of them Ferry made: written down there for `ferry down`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use super::MARK;
use crate::node::remove;

const FILE: &str = "kubelet-folders.json";
/// What a kubelet has in its folder, where the folder is not its own.
const OF_KUBELET: [&str; 10] = [
    "pods",
    "plugins_registry",
    "device-plugins",
    "pod-resources",
    "image_manager",
    "dra_manager_state",
    // Another kubelet does not start where these tell of another policy.
    "cpu_manager_state",
    "memory_manager_state",
    "graceful_node_shutdown_state",
    MARK,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    Kubelet,
    Logs,
    Links,
    Manifests,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    pub path: PathBuf,
    pub holds: Holds,
    /// It was not there before.
    pub made: bool,
    /// It was bound to itself to share what is mounted below it.
    pub bound: bool,
}

/// The folders of a node that are outside its data folder.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Elsewhere(Vec<Folder>);

impl Elsewhere {
    pub fn read(data_dir: &Path) -> Result<Self> {
        let file = data_dir.join(FILE);
        match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    pub(super) fn write(&self, data_dir: &Path) -> Result<()> {
        let file = data_dir.join(FILE);
        let text = format!("{:#}\n", serde_json::to_value(self)?);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// What was true of a folder at an earlier start stays true.
    pub(super) fn note(&mut self, new: Folder) {
        match self.0.iter_mut().find(|folder| folder.path == new.path && folder.holds == new.holds) {
            Some(known) => {
                known.made |= new.made;
                known.bound |= new.bound;
            }
            None => self.0.push(new),
        }
    }

    /// Takes away what is mounted below them.
    pub fn unmount(&self) {
        for folder in self.0.iter().filter(|folder| folder.holds == Holds::Kubelet) {
            remove::mounts(&[&folder.path]);
            if folder.bound {
                let _ = unmount(&folder.path, UnmountFlags::DETACH);
            }
        }
    }

    /// Removes what Ferry made, and nothing else. Gives the folders that are gone.
    pub fn remove(&self) -> Result<Vec<&Path>> {
        let mut removed = Vec::new();
        // Links after the logs that they lead to.
        for folder in &self.0 {
            let path = folder.path.as_path();
            match folder.holds {
                Holds::Kubelet if folder.made => remove_all(entries(path))?,
                Holds::Kubelet => remove_all(OF_KUBELET.iter().map(|name| path.join(name)))?,
                Holds::Logs if folder.made => remove_all(entries(path))?,
                Holds::Logs => remove_all(entries(path).into_iter().filter(|entry| is_of_a_pod(entry)))?,
                Holds::Links => remove_all(entries(path).into_iter().filter(|entry| self.is_a_link(entry)))?,
                Holds::Manifests => {}
            }
            // One that others have put something into stays.
            if folder.made && fs::remove_dir(path).is_ok() {
                removed.push(path);
            }
        }
        Ok(removed)
    }

    /// Whether it leads to a log of this node.
    fn is_a_link(&self, entry: &Path) -> bool {
        let Ok(target) = fs::read_link(entry) else { return false };
        // The kubelet resolves links on the way to its folders.
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut logs = self.0.iter().filter(|folder| folder.holds == Holds::Logs);
        logs.any(|folder| target.starts_with(&folder.path) || target.starts_with(real(&folder.path)))
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// `namespace_name_uid`.
fn is_of_a_pod(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.is_dir() && name.split('_').count() == 3
}

fn remove_all(paths: impl IntoIterator<Item = PathBuf>) -> Result<()> {
    for path in paths {
        match ferry_podfs::remove_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, "x").expect("written");
    }

    fn folder(path: &Path, holds: Holds, made: bool) -> Folder {
        Folder { path: path.to_owned(), holds, made, bound: false }
    }

    #[test]
    fn what_ferry_made_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let path = |name: &str| place.path().join(name);
        let mut record = Elsewhere::default();
        record.note(folder(&path("made"), Holds::Kubelet, true));
        record.note(folder(&path("found"), Holds::Kubelet, false));
        record.note(folder(&path("logs"), Holds::Logs, false));
        record.note(folder(&path("links"), Holds::Links, true));
        record.note(folder(&path("manifests"), Holds::Manifests, true));
        // A later start finds what the first one made.
        record.note(folder(&path("made"), Holds::Kubelet, false));
        record.write(place.path()).expect("written");
        assert_eq!(Elsewhere::read(place.path()).expect("read"), record);
        for name in [
            "made/plugins/driver/state",
            "made/pods/uid/file",
            "found/seccomp/profile.json",
            "found/pods/uid/file",
            "found/cpu_manager_state",
            "found/memory_manager_state",
            "logs/default_web_uid/main/0.log",
            "logs/other.log",
            "manifests/mine.yaml",
        ] {
            file(&path(name));
        }
        fs::create_dir_all(path("links")).expect("made");
        for (name, target) in [("own", path("logs/default_web_uid/main/0.log")), ("foreign", path("elsewhere"))] {
            std::os::unix::fs::symlink(target, path("links").join(name)).expect("linked");
        }
        let removed = record.remove().expect("removed");
        assert_eq!(removed, [path("made")]);
        for (name, stays) in [
            ("found/seccomp/profile.json", true),
            ("found/pods", false),
            ("found/cpu_manager_state", false),
            ("found/memory_manager_state", false),
            ("logs/default_web_uid", false),
            ("logs/other.log", true),
            ("manifests/mine.yaml", true),
        ] {
            assert_eq!(path(name).exists(), stays, "{name}");
        }
        let links: Vec<_> =
            entries(&path("links")).into_iter().filter_map(|p| Some(p.file_name()?.to_owned())).collect();
        assert_eq!(links, ["foreign"]);
    }
}

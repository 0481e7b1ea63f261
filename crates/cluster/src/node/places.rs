//! Where the kubelet of this machine has its files. Storage drivers, device plug-ins and collectors of logs look in the
//! places of upstream's kubelet; the one cluster of a machine has them there, others in their data folders.

mod record;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

pub use record::Elsewhere;
use record::{Folder, Holds};

const USUAL_DATA: &str = "/var/lib/ferry";
const USUAL_ROOT: &str = "/var/lib/kubelet";
const USUAL_LOGS: &str = "/var/log/pods";
const USUAL_LINKS: &str = "/var/log/containers";
const USUAL_MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Says in the kubelet's folder whose it is.
const MARK: &str = ".ferry";

/// What the flags say.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub root_dir: Option<PathBuf>,
    pub log_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Volumes, plug-ins, records.
    pub root_dir: PathBuf,
    /// Logs of containers.
    pub log_dir: PathBuf,
    /// Links to the logs, named by pod and container.
    pub log_links: Option<PathBuf>,
    /// Pods that run whatever the API server says.
    pub manifests: Option<PathBuf>,
}

impl Places {
    /// Of a node of a cluster.
    pub fn of_cluster(data_dir: &Path, given: &Given) -> Self {
        // A cluster that was made before has its pods there.
        let older = data_dir.join("kubelet");
        let usual = data_dir == Path::new(USUAL_DATA) && !older.exists() && is_free(Path::new(USUAL_ROOT), data_dir);
        Self::plan(given, if usual { None } else { Some(data_dir) })
    }

    /// Of a kubelet that runs alone: upstream's own, but for the static pods, which it has by a flag only.
    pub fn alone(given: &Given) -> Self {
        Self { manifests: None, ..Self::plan(given, None) }
    }

    /// Whether these are the places of the machine's kubelet.
    pub fn are_usual(&self) -> bool {
        self.root_dir == Path::new(USUAL_ROOT)
    }

    /// In `data_dir`, or in the usual places where none is given.
    fn plan(given: &Given, data_dir: Option<&Path>) -> Self {
        let pick = |given: &Option<PathBuf>, known: &str, own: &str| match (given, data_dir) {
            (Some(given), _) => given.clone(),
            (None, None) => PathBuf::from(known),
            (None, Some(data_dir)) => data_dir.join(own),
        };
        let log_dir = pick(&given.log_dir, USUAL_LOGS, "logs");
        Self {
            root_dir: pick(&given.root_dir, USUAL_ROOT, "kubelet"),
            // The links are one folder for the machine; they belong to the logs beside it.
            log_links: (log_dir == Path::new(USUAL_LOGS)).then(|| USUAL_LINKS.into()),
            log_dir,
            manifests: data_dir.is_none().then(|| USUAL_MANIFESTS.into()),
        }
    }

    /// Makes what has to be there, and notes down whose it is and what was made.
    pub fn prepare(&self, data_dir: &Path) -> Result<()> {
        let manifests = self.manifests.as_deref();
        let folders = [
            Some((self.root_dir.as_path(), Holds::Kubelet)),
            Some((self.log_dir.as_path(), Holds::Logs)),
            self.log_links.as_deref().map(|folder| (folder, Holds::Links)),
            manifests.map(|folder| (folder, Holds::Manifests)),
            manifests.and_then(Path::parent).map(|folder| (folder, Holds::Manifests)),
        ];
        let apart: Vec<_> = folders.into_iter().flatten().filter(|(path, _)| !path.starts_with(data_dir)).collect();
        if apart.is_empty() {
            return Ok(());
        }
        let mut record = Elsewhere::read(data_dir)?;
        for (path, holds) in &apart {
            record.note(Folder { path: path.to_path_buf(), holds: *holds, made: !path.exists(), bound: false });
        }
        // Written down first: what is made and not written down would stay for ever.
        record.write(data_dir)?;
        for (path, holds) in apart {
            fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
            if holds == Holds::Kubelet {
                let mark = path.join(MARK);
                fs::write(&mark, data_dir.as_os_str().as_encoded_bytes())
                    .with_context(|| format!("cannot write {}", mark.display()))?;
                record.note(Folder { path: path.to_owned(), holds, made: false, bound: !is_shared(path)? });
                record.write(data_dir)?;
                share(path).with_context(|| format!("cannot share mounts below {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Whether a kubelet's folder is this cluster's, or has nobody's pods in it.
fn is_free(root_dir: &Path, data_dir: &Path) -> bool {
    match fs::read(root_dir.join(MARK)) {
        Ok(owner) => owner == data_dir.as_os_str().as_encoded_bytes(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::read_dir(root_dir.join("pods")).map_or(true, |mut pods| pods.next().is_none())
        }
        Err(_) => false,
    }
}

/// A storage driver in a pod mounts volumes below the kubelet's folder, and the kubelet has to see them. Where init does not
/// share the machine's mounts, this folder alone is shared.
fn share(folder: &Path) -> io::Result<()> {
    if is_shared(folder)? {
        return Ok(());
    }
    mount_bind(folder, folder)?;
    Ok(mount_change(folder, MountPropagationFlags::SHARED)?)
}

/// Whether mounts below a folder reach whoever has a copy of its mount.
fn is_shared(folder: &Path) -> io::Result<bool> {
    let folder = fs::canonicalize(folder)?;
    Ok(shared_in(&fs::read_to_string("/proc/self/mountinfo")?, &folder))
}

fn shared_in(table: &str, folder: &Path) -> bool {
    let rows = table.lines().filter_map(|row| {
        let mut fields = row.split(' ');
        let point = super::remove::unescaped(fields.nth(4)?);
        let shared = fields.skip(1).take_while(|field| *field != "-").any(|field| field.starts_with("shared:"));
        folder.starts_with(&point).then(|| (point.as_os_str().len(), shared))
    });
    // The innermost, and of several at one place the last.
    rows.max_by_key(|(length, _)| *length).is_some_and(|(_, shared)| shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_cluster_of_a_machine_is_where_others_look() {
        let none = Given::default();
        let usual = Places::plan(&none, None);
        assert_eq!((usual.root_dir.to_str(), usual.log_dir.to_str()), (Some(USUAL_ROOT), Some(USUAL_LOGS)));
        assert_eq!((usual.log_links, usual.manifests), (Some(USUAL_LINKS.into()), Some(USUAL_MANIFESTS.into())));
        let other = Places::of_cluster(Path::new("/srv/b"), &none);
        assert_eq!((other.root_dir.to_str(), other.log_dir.to_str()), (Some("/srv/b/kubelet"), Some("/srv/b/logs")));
        assert_eq!((other.log_links, other.manifests), (None, None));
        let given = Given { root_dir: Some("/r".into()), log_dir: Some("/l".into()) };
        let given = Places::alone(&given);
        assert_eq!((given.root_dir.to_str(), given.log_dir.to_str()), (Some("/r"), Some("/l")));
        assert_eq!((given.log_links, given.manifests), (None, None));
    }

    #[test]
    fn a_kubelet_of_somebody_else_keeps_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, data) = (folder.path().join("kubelet"), folder.path().join("data"));
        assert!(is_free(&root, &data), "there is none");
        fs::create_dir_all(root.join("pods/uid")).expect("made");
        assert!(!is_free(&root, &data), "it has pods, and nobody says whose");
        fs::write(root.join(MARK), data.as_os_str().as_encoded_bytes()).expect("written");
        assert!(is_free(&root, &data) && !is_free(&root, Path::new("/other")));
    }

    #[test]
    fn the_innermost_and_newest_mount_says_what_is_shared() {
        let row = |point: &str, tags: &str| format!("1 2 8:1 / {point} rw,relatime {tags}- ext4 /dev/sda rw\n");
        let check = |rows: &[String], want: bool| {
            assert_eq!(shared_in(&rows.concat(), Path::new("/var/lib/kubelet")), want, "{rows:?}");
        };
        check(&[row("/", "shared:1 ")], true);
        check(&[row("/", "")], false);
        check(&[row("/", "shared:1 "), row("/var/lib", "master:1 ")], false);
        check(&[row("/", ""), row("/var/lib/kubelet", ""), row("/var/lib/kubelet", "master:2 shared:3 ")], true);
        check(&[row("/", "shared:1 "), row("/var/lib/kube", "")], true);
    }
}

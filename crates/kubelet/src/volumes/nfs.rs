//! Shares of NFS servers, mounted by this node's own programs. A server that does not answer costs the pod its volume, and
//! nobody else anything: programs have a time limit, and nothing here looks into a share.

use std::collections::{BTreeSet, HashSet};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::NFSVolumeSource;

use super::jobs::Jobs;
use super::programs::{Programs, missing};
use super::{Unmounted, blocking, mount_table};

/// `mount.nfs` itself gives up after two minutes, and says why.
const MOUNT: Duration = Duration::from_secs(150);
/// What was written is sent to the server first.
const UNMOUNT: Duration = Duration::from_secs(30);
const DETACH: Duration = Duration::from_secs(10);

/// What a pod wants mounted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// `server:path`
    source: String,
    options: String,
}

impl Share {
    pub(super) fn new(source: &NFSVolumeSource, options: &[String], read_only: bool) -> Result<Self, String> {
        let server = source.server.as_str();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_:%[]".contains(letter);
        // Helpers of `mount` read what begins with a hyphen as an option.
        if server.is_empty() || server.starts_with('-') || !server.chars().all(is_plain) {
            return Err(format!("nfs: server {server:?} is neither a host name nor an address"));
        }
        let address = server.split_once('%').map_or(server, |(address, _)| address);
        let server = if address.parse::<Ipv6Addr>().is_ok() { format!("[{server}]") } else { server.to_owned() };
        let read_only = (read_only || source.read_only == Some(true)).then_some("ro");
        // Each once and in order, as upstream gives them.
        let options: BTreeSet<&str> = options.iter().map(String::as_str).chain(read_only).collect();
        let options = options.into_iter().collect::<Vec<_>>().join(",");
        Ok(Self { source: format!("{server}:{}", source.path), options })
    }
}

pub(super) struct Shares {
    programs: Arc<Programs>,
    jobs: Arc<Jobs>,
}

/// Where the shares of a pod are.
fn folder(pod: &Path) -> PathBuf {
    pod.join("volumes").join("kubernetes.io~nfs")
}

impl Shares {
    pub(super) fn new(programs: Arc<Programs>, jobs: Arc<Jobs>) -> Self {
        Self { programs, jobs }
    }

    /// Mounts a share as a volume of the pod that has this folder, once. Gives where.
    pub(super) async fn mount(&self, pod: &Path, volume: &str, share: Share) -> Result<PathBuf, Unmounted> {
        let target = folder(pod).join(volume);
        let place = target.clone();
        let mounted = blocking(move || {
            let mounted = mount_table::at(&place).map_err(|error| error.to_string())?.is_some();
            if !mounted {
                std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
            }
            Ok(mounted)
        });
        if mounted.await? {
            return Ok(target);
        }
        let (programs, place) = (self.programs.clone(), target.clone());
        let work = || async move {
            let Share { source, options } = share;
            let mounted = programs.mount("nfs", &options, source.as_ref(), &place, MOUNT).await;
            mounted.map_err(|why| match programs.find("mount.nfs") {
                Some(_) => why,
                None => format!("{why}\n{}", missing("mount.nfs")),
            })
        };
        self.jobs.run(&target, work).await?;
        Ok(target)
    }

    /// Unmounts the shares of a pod, and the parts of them that are mounted elsewhere for its containers.
    pub(super) async fn unmount(&self, pod: &Path) -> Result<(), String> {
        let own = folder(pod);
        self.jobs.stop(&own).await;
        let pod = pod.to_owned();
        let places = blocking(move || {
            let failed = |error: std::io::Error| error.to_string();
            let shares = mount_table::below(&own).map_err(failed)?;
            if shares.is_empty() {
                return Ok(Vec::new());
            }
            let devices: HashSet<&str> = shares.iter().map(|mount| mount.device.as_str()).collect();
            let all = mount_table::below(&pod).map_err(failed)?.into_iter();
            let own = own.canonicalize().map_err(failed)?;
            let parts = all.filter(|mount| devices.contains(mount.device.as_str()) && !mount.place.starts_with(&own));
            // The shares last: they tell which parts are theirs.
            Ok(parts.chain(shares.iter().cloned()).map(|mount| mount.place).collect::<Vec<_>>())
        });
        for place in places.await? {
            self.unmount_one(&place).await?;
        }
        Ok(())
    }

    async fn unmount_one(&self, place: &Path) -> Result<(), String> {
        let Err(why) = self.programs.unmount(place, false, UNMOUNT).await else { return Ok(()) };
        tracing::warn!("unmounting {} lazily: {why}", place.display());
        let detached = self.programs.unmount(place, true, DETACH).await;
        // Killed while the kernel waited for the server, it may have been successful for all that.
        let place = place.to_owned();
        let still = blocking(move || mount_table::at(&place).map_err(|error| error.to_string())).await?;
        if still.is_none() { Ok(()) } else { detached }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ferry_tasks::Tasks;
    use serde_json::json;

    use super::super::directory;
    use super::super::programs::tests::script;
    use super::*;

    fn share(server: &str, path: &str, options: &[&str], read_only: bool) -> Result<Share, String> {
        let source = serde_json::from_value(json!({"server": server, "path": path})).expect("a source");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        Share::new(&source, &options, read_only)
    }

    #[test]
    fn a_share_is_named_as_the_mount_program_wants_it() {
        let check = |server: &str, path: &str, options: &[&str], read_only: bool, want: (&str, &str)| {
            let share = share(server, path, options, read_only).expect("a share");
            assert_eq!((share.source.as_str(), share.options.as_str()), want);
        };
        check("nfs.example.com", "/", &[], false, ("nfs.example.com:/", ""));
        check("192.0.2.1", "/a b,c", &["vers=4.1", "hard"], true, ("192.0.2.1:/a b,c", "hard,ro,vers=4.1"));
        check("2001:db8::1", "/x", &["ro", "-x"], true, ("[2001:db8::1]:/x", "-x,ro"));
        check("[2001:db8::1]", "/x", &[], false, ("[2001:db8::1]:/x", ""));
        check("fe80::1%eth0", "/x", &[], false, ("[fe80::1%eth0]:/x", ""));
        for server in ["-o", "--help", "", "a b", "a,b", "a/b", "a\nb", "$(id)", "UUID=x"] {
            let why = share(server, "/x", &[], false).expect_err(server);
            assert_eq!(why, format!("nfs: server {server:?} is neither a host name nor an address"));
        }
        let own: NFSVolumeSource =
            serde_json::from_value(json!({"server": "s", "path": "/", "readOnly": true})).expect("a source");
        assert_eq!(Share::new(&own, &[], false).expect("a share").options, "ro");
    }

    fn shares(programs: &Path) -> Shares {
        let programs = Programs::in_folders(vec![programs.to_owned(), "/usr/bin".into(), "/bin".into()]);
        Shares::new(Arc::new(programs), Arc::new(Jobs::new(&Tasks::new("test"))))
    }

    #[tokio::test]
    async fn a_share_is_mounted_by_the_nodes_own_programs() {
        if !rustix::process::geteuid().is_root() {
            return ferry_testkit::skip("mounts need root");
        }
        let root = tempfile::tempdir().expect("a folder");
        let (pod, told) = (root.path().join("pod"), root.path().join("told"));
        // In the place of the real ones: what they mount is in memory.
        let (told_at, mount) = (told.display(), "exec /bin/mount -t tmpfs memory \"$7\"");
        script(root.path(), "mount", &format!("printf 'mount %s\\n' \"$*\" >> {told_at}; {mount}"));
        script(root.path(), "umount", &format!("printf 'umount %s\\n' \"$*\" >> {told_at}; exec /bin/umount \"$@\""));
        let shares = shares(root.path());
        let want = || share("192.0.2.1", "/a b", &["vers=4"], true).expect("a share");
        let target = shares.mount(&pod, "v", want()).await.expect("mounted");
        assert_eq!(target, pod.join("volumes/kubernetes.io~nfs/v"));
        fs::create_dir(target.join("part")).expect("made");
        let part = super::super::subpath::bind(&target, "part", &pod.join("volume-subpaths/v/c/0")).expect("bound");

        // A kubelet that begins anew finds it, and mounts nothing.
        let again = Shares::new(shares.programs.clone(), Arc::new(Jobs::new(&Tasks::new("test"))));
        assert_eq!(again.mount(&pod, "v", want()).await.expect("there"), target);
        again.unmount(&pod).await.expect("unmounted");
        assert!(mount_table::below(&pod).expect("read").is_empty());
        directory::remove_all(&pod).expect("removed");
        let (target, part) = (target.display(), part.display());
        assert_eq!(
            fs::read_to_string(&told).expect("told"),
            format!("mount -t nfs -o ro,vers=4 -- 192.0.2.1:/a b {target}\numount -- {part}\numount -- {target}\n")
        );
        again.unmount(&pod).await.expect("nothing is there");
    }

    #[tokio::test]
    async fn a_mount_that_fails_says_what_the_program_said_and_what_is_missing() {
        let root = tempfile::tempdir().expect("a folder");
        let pod = root.path().join("pod");
        script(root.path(), "mount", "echo \"mount.nfs: Connection timed out\" >&2; exit 32");
        let want = || share("192.0.2.1", "/x", &[], false).expect("a share");
        let failed = shares(root.path()).mount(&pod, "v", want()).await.expect_err("no server").to_string();
        let target = pod.join("volumes/kubernetes.io~nfs/v");
        let words = format!(
            "mount failed: exit status 32\nMounting command: mount\n\
             Mounting arguments: -t nfs -- 192.0.2.1:/x {}\nOutput: mount.nfs: Connection timed out",
            target.display()
        );
        let install = "\nthis node has no program mount.nfs; install it with: apt-get install nfs-common";
        assert_eq!(failed, format!("{words}{install}"));
        script(root.path(), "mount.nfs", "");
        let failed = shares(root.path()).mount(&pod, "v", want()).await.expect_err("no server").to_string();
        assert_eq!(failed, words);
    }

    /// The share of a dead server leaves the node lazily, and its pod does not stay for it.
    #[tokio::test]
    async fn a_share_that_cannot_be_unmounted_is_detached() {
        if !rustix::process::geteuid().is_root() {
            return ferry_testkit::skip("mounts need root");
        }
        let root = tempfile::tempdir().expect("a folder");
        let pod = root.path().join("pod");
        script(root.path(), "mount", "exec /bin/mount -t tmpfs memory \"$5\"");
        script(root.path(), "umount", "[ \"$1\" = -l ] || { echo busy; exit 32; }; exec /bin/umount \"$@\"");
        let shares = shares(root.path());
        let want = share("192.0.2.1", "/x", &[], false).expect("a share");
        let target = shares.mount(&pod, "v", want).await.expect("mounted");
        let _open = fs::File::create(target.join("file")).expect("a file");
        shares.unmount(&pod).await.expect("detached");
        assert_eq!(mount_table::at(&target).expect("read"), None);
    }
}

//! Local volumes that are block devices: checked, formatted where nothing is on them, mounted once for the node and bound into
//! each pod that uses them. What is mounted stands in the kernel's table and who uses it in the pods' folders, so that a
//! kubelet that begins anew goes on from there.

mod device;
mod format;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::LocalVolumeSource;
use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags};

use super::jobs::Jobs;
use super::mount_table::{self, MountPoint};
use super::programs::Programs;
use super::{Unmounted, blocking, note, write_note};
use device::Device;

/// Where a pod's folder notes the disks that it uses: they stay mounted meanwhile.
const USED: &str = "local-disks";

/// How long each program may take. A large disk takes its time to be checked.
#[derive(Clone, Copy, Debug)]
struct Limits {
    look: Duration,
    format: Duration,
    check: Duration,
    mount: Duration,
    unmount: Duration,
}

const LIMITS: Limits = Limits {
    look: Duration::from_secs(30),
    format: Duration::from_secs(15 * 60),
    check: Duration::from_secs(60 * 60),
    mount: Duration::from_secs(120),
    unmount: Duration::from_secs(60),
};

/// What a pod wants mounted.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// The name of the PersistentVolume.
    pub(super) name: String,
    path: PathBuf,
    /// None takes what is there.
    file_system: Option<String>,
    options: Vec<String>,
    read_only: bool,
}

impl Disk {
    pub(super) fn new(
        name: &str,
        source: &LocalVolumeSource,
        options: Vec<String>,
        read_only: bool,
    ) -> Result<Self, String> {
        let file_system = source.fs_type.clone().filter(|kind| !kind.is_empty());
        if let Some(kind) = file_system.as_deref().filter(|kind| !is_file_system(kind)) {
            return Err(format!(
                "local: fsType {kind:?} is no type of a file system: only a-z and 0-9 may stand in it"
            ));
        }
        Ok(Self { name: name.to_owned(), path: source.path.clone().into(), file_system, options, read_only })
    }

    fn is_read_only(&self) -> bool {
        self.read_only || self.options.iter().flat_map(|options| options.split(',')).any(|option| option == "ro")
    }
}

/// It becomes a part of a program's name.
fn is_file_system(kind: &str) -> bool {
    (1..=32).contains(&kind.len()) && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// A disk in a pod.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) path: PathBuf,
    /// Whether its files can be given to somebody.
    pub(super) is_writable: bool,
}

type Lock = Arc<tokio::sync::Mutex<()>>;

pub(super) struct Disks {
    /// Holds a folder for each disk that is mounted.
    mounts: PathBuf,
    pods: PathBuf,
    programs: Arc<Programs>,
    jobs: Arc<Jobs>,
    limits: Limits,
    /// One pod at a time begins or ends to use a disk.
    locks: Mutex<HashMap<String, Lock>>,
}

fn target(pod: &Path, name: &str) -> PathBuf {
    pod.join("volumes").join("kubernetes.io~local-volume").join(name)
}

/// Whether a pod has begun to use a disk.
pub(super) fn uses(pod: &Path, name: &str) -> bool {
    note(pod, USED, name).exists()
}

impl Disks {
    /// `root` is the kubelet's folder: the places in it are upstream's.
    pub(super) fn new(root: &Path, programs: Arc<Programs>, jobs: Arc<Jobs>) -> Self {
        let mounts = root.join("plugins/kubernetes.io/local-volume/mounts");
        Self { mounts, pods: root.join("pods"), programs, jobs, limits: LIMITS, locks: Mutex::default() }
    }

    fn lock(&self, name: &str) -> Lock {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(name.to_owned()).or_default().clone()
    }

    /// Mounts a disk where it is not mounted yet, and binds it into the pod that has this folder. May be repeated.
    pub(super) async fn mount(&self, pod: &Path, disk: Disk) -> Result<Bound, Unmounted> {
        let lock = self.lock(&disk.name);
        let Ok(_one) = lock.try_lock() else {
            return Err(Unmounted::NotYet(format!("{} is being mounted or unmounted for another pod", disk.name)));
        };
        let (at, target) = (self.mounts.join(&disk.name), target(pod, &disk.name));
        let (used, place) = (note(pod, USED, &disk.name), target.clone());
        let bound = blocking(move || {
            // Before anything is mounted: whoever ends to use it sees that it is needed.
            write_note(&used)?;
            mount_table::at(&place).map_err(said)
        });
        if bound.await?.is_none() {
            self.mount_at(pod, &disk, &at).await?;
        }
        let (place, read_only) = (target.clone(), disk.read_only);
        let bound = blocking(move || {
            let bound = bind(&at, &place, read_only);
            bound.map_err(|error| format!("local: failed to bind {} to {}: {error}", at.display(), place.display()))
        });
        let bound = bound.await?;
        let is_writable = !bound.is_read_only() && !is_option(&bound.file_system_options, "ro");
        Ok(Bound { path: target, is_writable })
    }

    async fn mount_at(&self, pod: &Path, disk: &Disk, at: &Path) -> Result<(), Unmounted> {
        let (path, place) = (disk.path.clone(), at.to_owned());
        let (device, mut mounted) =
            blocking(move || Ok((Device::open(&path)?, mount_table::at(&place).map_err(said)?))).await?;
        if let Some(other) = mounted.as_ref().filter(|mounted| !device.is_mounted_as(mounted)) {
            // A volume of this name was another disk before.
            if self.is_used_beside(pod, &disk.name).await? {
                let (at, source) = (at.display(), &other.source);
                return Err(format!("local: {source} is mounted at {at} for another pod, and not {device}").into());
            }
            self.programs.unmount(at, false, self.limits.unmount).await?;
            mounted = None;
        }
        let (programs, limits, place) = (self.programs.clone(), self.limits, at.to_owned());
        match mounted {
            None => {
                let disk = disk.clone();
                self.jobs.run(at, || async move { format::mount(&programs, limits, device, &disk, &place).await }).await
            }
            // The pods before this one were not to write to it.
            Some(mounted)
                if is_option(&mounted.file_system_options, "ro")
                    && !disk.is_read_only()
                    && !device.is_write_protected() =>
            {
                let work = || async move { programs.remount_writable(&place, limits.mount).await };
                self.jobs.run(at, work).await
            }
            Some(_) => Ok(()),
        }
    }

    async fn is_used_beside(&self, pod: &Path, name: &str) -> Result<bool, String> {
        let (pods, pod, name) = (self.pods.clone(), pod.to_owned(), name.to_owned());
        blocking(move || {
            let mut pods = fs::read_dir(&pods).map_err(said)?.flatten().map(|entry| entry.path());
            Ok(pods.any(|other| other != pod && uses(&other, &name)))
        })
        .await
    }

    /// Takes the disks back from a pod, and unmounts those that no other pod uses.
    pub(super) async fn unmount(&self, pod: &Path) -> Result<(), String> {
        let notes = pod.join(USED);
        let names = blocking(move || {
            let notes = fs::read_dir(notes).into_iter().flatten().flatten();
            Ok(notes.map(|note| note.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>())
        });
        for name in names.await? {
            self.unmount_one(pod, &name).await?;
        }
        Ok(())
    }

    async fn unmount_one(&self, pod: &Path, name: &str) -> Result<(), String> {
        let lock = self.lock(name);
        let _one = lock.lock().await;
        let (at, own, bound) = (self.mounts.join(name), pod.to_owned(), target(pod, name));
        let place = at.clone();
        blocking(move || detach(&own, &place, &bound).map_err(said)).await?;
        if !self.is_used_beside(pod, name).await? {
            self.jobs.stop(&at).await;
            let (limit, place) = (self.limits.unmount, at.clone());
            if blocking(move || mount_table::at(&place).map_err(said)).await?.is_some() {
                self.programs.unmount(&at, false, limit).await?;
            }
            let _ = tokio::fs::remove_dir(&at).await;
        }
        let note = note(pod, USED, name);
        blocking(move || fs::remove_file(&note).map_err(|error| format!("{}: {error}", note.display()))).await
    }
}

/// Detaches a disk from a pod, with the parts of it that are mounted elsewhere for its containers: nothing holds it then.
fn detach(pod: &Path, at: &Path, target: &Path) -> io::Result<()> {
    let device = mount_table::at(target)?.or(mount_table::at(at)?).map(|mount| mount.device);
    let Some(device) = device else { return Ok(()) };
    for mount in mount_table::below(pod)?.into_iter().filter(|mount| mount.device == device) {
        rustix::mount::unmount(&mount.place, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Binds what is mounted at a place to another one, once.
fn bind(at: &Path, target: &Path, read_only: bool) -> io::Result<MountPoint> {
    if mount_table::at(target)?.is_none() {
        fs::create_dir_all(target)?;
        rustix::mount::mount_bind(at, target)?;
    }
    let there = || mount_table::at(target)?.ok_or_else(|| io::Error::other("it was unmounted again"));
    let bound = there()?;
    if !read_only || bound.is_read_only() {
        return Ok(bound);
    }
    // What is not said again is taken back.
    let kept = [
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
    ];
    let kept = kept.into_iter().filter(|(name, _)| is_option(&bound.options, name));
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | flag);
    rustix::mount::mount_remount(target, flags, c"")?;
    there()
}

fn is_option(options: &[String], wanted: &str) -> bool {
    options.iter().any(|option| option == wanted)
}

fn said(error: io::Error) -> String {
    error.to_string()
}

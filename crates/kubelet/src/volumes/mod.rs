//! Volumes: what a pod's containers find mounted, made before they start and kept current while they run.

mod atomic;
mod certificates;
mod claim_stats;
mod claims;
mod content;
mod csi;
mod directory;
mod disks;
mod huge_pages;
mod jobs;
mod mount_table;
mod mounts;
mod nfs;
mod programs;
mod subpath;
mod tokens;
mod trust;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_client::Clock;
use ferry_tasks::Tasks;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use kube::Client;

pub(crate) use mounts::{Mounts, container_devices, container_mounts, recursive_read_only};

use crate::plugins::Plugins;
use crate::pod;
use crate::sources::Sources;
use crate::spec::fields::Surroundings;
use crate::spec::room::Room;
use certificates::Certificates;
use claim_stats::ClaimStats;
#[cfg(test)]
pub(crate) use claims::note_local_volume;
pub(crate) use claims::uses_local_volume;
use claims::{Claimed, SingleUsers};
use csi::{Csi, Wanted};
use disks::Disks;
use jobs::Jobs;
use nfs::{Share, Shares};
use programs::Programs;
use tokens::Tokens;

/// A volume that could not be made, in the words of the FailedMount event.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
pub(crate) struct VolumeError {
    pub(crate) volume: String,
    pub(crate) why: Unmounted,
}

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unmounted {
    #[error("{0}")]
    Failed(String),
    /// Others are at work on it; nothing is wrong.
    #[error("{0}")]
    NotYet(String),
}

impl From<String> for Unmounted {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Where a volume is on this node.
#[derive(Clone, Debug)]
pub(crate) struct VolumePath {
    pub(crate) path: PathBuf,
    /// Claimed so, or made from objects: the kubelet alone writes to it.
    pub(crate) read_only: bool,
    /// A device, in place of a folder.
    pub(crate) device: bool,
}

/// A volume that is there now.
struct Made {
    path: PathBuf,
    /// When to look at it again.
    refresh_at: Option<Timestamp>,
    device: bool,
}

impl Made {
    fn folder(path: PathBuf) -> Self {
        Self { path, refresh_at: None, device: false }
    }
}

/// The volumes of one pod on this node.
#[derive(Debug, Default)]
pub(crate) struct Mounted {
    pub(crate) places: HashMap<String, VolumePath>,
    /// When a token has to be renewed.
    pub(crate) refresh_at: Option<Timestamp>,
}

pub(crate) struct Volumes {
    /// Holds a folder for each pod.
    root: PathBuf,
    client: Client,
    sources: Arc<Sources>,
    tokens: Tokens,
    certificates: Certificates,
    pub(crate) csi: Csi,
    shares: Shares,
    disks: Disks,
    single_users: SingleUsers,
    pub(crate) claim_stats: ClaimStats,
}

impl Volumes {
    pub(crate) fn new(
        root: &Path,
        client: Client,
        node: &str,
        sources: Arc<Sources>,
        plugins: Arc<Plugins>,
        clock: Clock,
        tasks: &Tasks,
    ) -> Self {
        let certificates = Certificates::new(client.clone(), node, clock.clone());
        let csi = Csi::new(root, node, client.clone(), plugins, clock.clone());
        let (programs, jobs) = (Arc::new(Programs::of_the_node()), Arc::new(Jobs::new(tasks)));
        let disks = Disks::new(root, programs.clone(), jobs.clone());
        let shares = Shares::new(programs, jobs);
        let root = root.join("pods");
        let (tokens, single_users) = (Tokens::new(client.clone(), clock), SingleUsers::read(&root));
        let claim_stats = ClaimStats::default();
        Self { root, tokens, certificates, client, sources, csi, shares, disks, single_users, claim_stats }
    }

    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join(uid)
    }

    pub(crate) fn folder(&self, pod: &Pod, plugin: &str, volume: &str) -> PathBuf {
        self.pod_folder(pod::uid(pod)).join("volumes").join(format!("kubernetes.io~{plugin}")).join(volume)
    }

    /// Makes all volumes of a pod, or brings them up to date. May be called again at any time.
    pub(crate) async fn mount(&self, pod: &Pod, around: &Surroundings) -> Result<Mounted, VolumeError> {
        let (mut mounted, mut room) = (Mounted::default(), Room::of_volumes());
        // Images are mounted by the runtime, when a container is made.
        for volume in pod::spec(pod).volumes.iter().flatten().filter(|volume| volume.image.is_none()) {
            let made = self.mount_one(pod, volume, around, &mut room).await;
            let Made { path, refresh_at, device } =
                made.map_err(|why| VolumeError { volume: volume.name.clone(), why })?;
            let read_only = volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.downward_api.is_some()
                || volume.nfs.as_ref().is_some_and(|share| share.read_only == Some(true))
                || volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
            mounted.places.insert(volume.name.clone(), VolumePath { path, read_only, device });
            mounted.refresh_at = [mounted.refresh_at, refresh_at].into_iter().flatten().min();
        }
        let claims = pod::spec(pod).volumes.iter().flatten().filter_map(|volume| {
            let place = mounted.places.get(&volume.name).filter(|place| !place.device)?;
            let claim = (pod::namespace(pod).to_owned(), Claimed::of(pod, volume)?.name().to_owned());
            Some((claim, place.path.clone()))
        });
        self.claim_stats.put(pod::uid(pod), claims.collect());
        Ok(mounted)
    }

    async fn mount_one(
        &self,
        pod: &Pod,
        volume: &Volume,
        around: &Surroundings,
        room: &mut Room,
    ) -> Result<Made, Unmounted> {
        let group = pod::spec(pod).security_context.as_ref().and_then(|c| c.fs_group);
        let group = group.and_then(|g| u32::try_from(g).ok());
        if let Some(source) = &volume.host_path {
            let (path, kind) = (source.path.clone(), source.type_.clone().unwrap_or_default());
            return Ok(Made::folder(blocking(move || directory::host_path(&path, &kind)).await?));
        }
        if let Some(source) = &volume.empty_dir {
            let folder = self.folder(pod, "empty-dir", &volume.name);
            let (made, source) = (folder.clone(), source.clone());
            let pages = huge_pages::wanted(pod, source.medium.as_deref().unwrap_or_default())?;
            blocking(move || match pages {
                Some(size) => huge_pages::mount(&made, size, group),
                None => directory::empty(&made, &source, group).map_err(|e| e.to_string()),
            })
            .await?;
            return Ok(Made::folder(folder));
        }
        if let Some(claimed) = Claimed::of(pod, volume) {
            return self.claimed(pod, volume, &claimed).await;
        }
        if let Some(source) = &volume.csi {
            return self.csi.mount(pod, &Wanted::inline(pod, &volume.name, source), &self.tokens).await;
        }
        if let Some(source) = &volume.nfs {
            let (pod, share) = (self.pod_folder(pod::uid(pod)), Share::new(source, &[], false)?);
            return Ok(Made::folder(self.shares.mount(&pod, &volume.name, share).await?));
        }
        let Some((plugin, content)) = self.content(pod, volume, around, room).await? else {
            return Err("no volume plugin matched".to_owned().into());
        };
        let folder = self.folder(pod, plugin, &volume.name);
        let made = folder.clone();
        blocking(move || {
            // Secrets never reach the disk: a small file system in memory holds them.
            if matches!(plugin, "secret" | "projected") {
                directory::memory(&made, None, atomic::FOLDER_MODE, None).map_err(|e| e.to_string())?;
            }
            atomic::write(&made, &content.files, group).map_err(|e| e.to_string())
        })
        .await?;
        Ok(Made { refresh_at: content.refresh_at, ..Made::folder(folder) })
    }

    /// Gives the files of a volume to the pod's group, once for each pod: its containers use them since, and may have changed
    /// what they are allowed to.
    async fn give_once(&self, pod: &Pod, volume: &str, root: &Path) -> Result<(), String> {
        let given = note(&self.pod_folder(pod::uid(pod)), GIVEN, volume);
        let known = given.clone();
        if blocking(move || Ok(known.exists())).await? {
            return Ok(());
        }
        give(pod, root).await?;
        blocking(move || write_note(&given)).await
    }

    /// Removes everything that was made for a pod.
    pub(crate) async fn remove(&self, uid: &str) -> Result<(), String> {
        self.claim_stats.forget(uid);
        self.tokens.forget(uid);
        self.certificates.forget(uid);
        self.csi.unmount(uid).await?;
        let folder = self.pod_folder(uid);
        self.shares.unmount(&folder).await?;
        self.disks.unmount(&folder).await?;
        blocking(move || directory::remove_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))).await?;
        self.single_users.forget(uid);
        Ok(())
    }

    /// The pods that have something on disk.
    pub(crate) async fn known(&self) -> Vec<String> {
        let root = self.root.clone();
        let listed = blocking(move || {
            let entries = std::fs::read_dir(&root).map_err(|e| e.to_string())?;
            Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        });
        listed.await.unwrap_or_default()
    }
}

/// Where a pod's folder notes the local volumes whose files were given to its group.
const GIVEN: &str = "given-local-volumes";

/// What is known of one volume of a pod across restarts; gone with the pod's folder.
fn note(pod: &Path, kind: &str, volume: &str) -> PathBuf {
    pod.join(kind).join(volume)
}

fn write_note(note: &Path) -> Result<(), String> {
    let written = note.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(note, ""));
    written.map_err(|error| format!("{}: {error}", note.display()))
}

/// Gives the files of a volume to the pod's group, if it has one.
async fn give(pod: &Pod, root: &Path) -> Result<(), String> {
    let context = pod::spec(pod).security_context.as_ref();
    let group = context.and_then(|context| context.fs_group).and_then(|group| u32::try_from(group).ok());
    let Some(group) = group else { return Ok(()) };
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    let (root, unless_given) = (root.to_owned(), policy == Some("OnRootMismatch"));
    blocking(move || {
        let given = ferry_podfs::give(&root, group, ferry_podfs::Access::ReadWrite, unless_given);
        given.map_err(|error| format!("applyFSGroup failed for vol {}: {error}", root.display()))
    })
    .await
}

/// Runs file work off the async workers.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    }
}

//! Volumes: what a pod's containers find mounted, made before they start and kept current while they run.

mod atomic;
mod certificates;
mod content;
mod csi;
mod directory;
mod mounts;
mod ownership;
mod subpath;
mod tokens;
mod trust;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_client::Api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::Client;

pub(crate) use mounts::{Mounts, container_mounts};

use crate::plugins::Plugins;
use crate::pod;
use crate::sources::Sources;
use crate::spec::fields::Surroundings;
use certificates::Certificates;
use csi::{Csi, Wanted};
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
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// Made from objects: the kubelet alone writes to it.
    pub(crate) read_only: bool,
}

/// The volumes of one pod on this node.
#[derive(Debug, Default)]
pub(crate) struct Mounted {
    pub(crate) places: HashMap<String, Place>,
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
}

impl Volumes {
    pub(crate) fn new(root: &Path, client: Client, node: &str, sources: Arc<Sources>, plugins: Arc<Plugins>) -> Self {
        let certificates = Certificates::new(client.clone(), node);
        let csi = Csi::new(root, node, client.clone(), plugins);
        Self { root: root.join("pods"), tokens: Tokens::new(client.clone()), certificates, client, sources, csi }
    }

    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join(uid)
    }

    pub(crate) fn folder(&self, pod: &Pod, plugin: &str, volume: &str) -> PathBuf {
        self.pod_folder(pod::uid(pod)).join("volumes").join(format!("kubernetes.io~{plugin}")).join(volume)
    }

    /// Makes all volumes of a pod, or brings them up to date. May be called again at any time.
    pub(crate) async fn mount(&self, pod: &Pod, around: &Surroundings) -> Result<Mounted, VolumeError> {
        let mut mounted = Mounted::default();
        // Images are mounted by the runtime, when a container is made.
        for volume in pod::spec(pod).volumes.iter().flatten().filter(|volume| volume.image.is_none()) {
            let made = self.mount_one(pod, volume, around).await;
            let (path, refresh_at) = made.map_err(|why| VolumeError { volume: volume.name.clone(), why })?;
            let read_only = volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.projected.is_some()
                || volume.downward_api.is_some();
            mounted.places.insert(volume.name.clone(), Place { path, read_only });
            mounted.refresh_at = [mounted.refresh_at, refresh_at].into_iter().flatten().min();
        }
        Ok(mounted)
    }

    async fn mount_one(
        &self,
        pod: &Pod,
        volume: &Volume,
        around: &Surroundings,
    ) -> Result<(PathBuf, Option<Timestamp>), Unmounted> {
        let group = pod::spec(pod).security_context.as_ref().and_then(|c| c.fs_group);
        let group = group.and_then(|g| u32::try_from(g).ok());
        if let Some(source) = &volume.host_path {
            let (path, kind) = (source.path.clone(), source.type_.clone().unwrap_or_default());
            return Ok((blocking(move || directory::host_path(&path, &kind)).await?, None));
        }
        if let Some(source) = &volume.empty_dir {
            let folder = self.folder(pod, "empty-dir", &volume.name);
            let (made, source) = (folder.clone(), source.clone());
            blocking(move || directory::empty(&made, &source, group).map_err(|e| e.to_string())).await?;
            return Ok((folder, None));
        }
        if let Some(source) = &volume.persistent_volume_claim {
            return self.claimed(pod, &source.claim_name, source.read_only == Some(true), false).await;
        }
        if volume.ephemeral.is_some() {
            return self.claimed(pod, &format!("{}-{}", pod::name(pod), volume.name), false, true).await;
        }
        if let Some(source) = &volume.csi {
            let folder = self.folder(pod, "csi", &volume.name);
            return self.csi.mount(pod, &folder, &Wanted::inline(pod, &volume.name, source), &self.tokens).await;
        }
        let Some((plugin, content)) = self.content(pod, volume, around).await? else {
            return Err("no volume plugin matched".to_owned().into());
        };
        let folder = self.folder(pod, plugin, &volume.name);
        let made = folder.clone();
        blocking(move || {
            // Secrets never reach the disk: a small file system in memory holds them.
            if matches!(plugin, "secret" | "projected") {
                directory::memory(&made, None).map_err(|e| e.to_string())?;
            }
            atomic::write(&made, &content.files, group).map_err(|e| e.to_string())
        })
        .await?;
        Ok((folder, content.refresh_at))
    }

    /// The volume of a claim: a folder of this node, or a driver's. `own` says that the claim was made for this pod.
    async fn claimed(
        &self,
        pod: &Pod,
        claim: &str,
        read_only: bool,
        own: bool,
    ) -> Result<(PathBuf, Option<Timestamp>), Unmounted> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), pod::namespace(pod));
        let found = claims.get(claim).await.map_err(|e| ferry_client::write::short(&e))?;
        let owners = found.metadata.owner_references.as_deref().unwrap_or_default();
        if own && !owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == pod::uid(pod)) {
            let (namespace, name) = (pod::namespace(pod), pod::name(pod));
            let why = format!("PVC {namespace}/{claim} was not created for pod {namespace}/{name} (pod is not owner)");
            return Err(why.into());
        }
        let name = found.spec.and_then(|s| s.volume_name).filter(|n| !n.is_empty());
        let name = name.ok_or_else(|| "PVC is not bound".to_owned())?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let volume = volumes.get(&name).await.map_err(|e| ferry_client::write::short(&e))?;
        let spec = volume.spec.unwrap_or_default();
        if let Some(wanted) = Wanted::persistent(&name, &spec, read_only) {
            if spec.volume_mode.as_deref() == Some("Block") {
                return Err("raw block volumes of storage drivers are not supported".to_owned().into());
            }
            return self.csi.mount(pod, &self.folder(pod, "csi", &name), &wanted, &self.tokens).await;
        }
        if let Some(local) = spec.local {
            return Ok((blocking(move || directory::host_path(&local.path, "Directory")).await?, None));
        }
        if let Some(host) = spec.host_path {
            let kind = host.type_.unwrap_or_else(|| "DirectoryOrCreate".to_owned());
            return Ok((blocking(move || directory::host_path(&host.path, &kind)).await?, None));
        }
        Err("no volume plugin matched".to_owned().into())
    }

    /// Removes everything that was made for a pod.
    pub(crate) async fn remove(&self, uid: &str) -> Result<(), String> {
        self.tokens.forget(uid);
        self.certificates.forget(uid);
        self.csi.unmount(&self.root, uid).await?;
        let folder = self.pod_folder(uid);
        blocking(move || directory::remove_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))).await
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

/// Runs file work off the async workers.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    }
}

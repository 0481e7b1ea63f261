//! Volumes of storage drivers (CSI): staged once for the node where the driver wants it, published to each pod, and
//! taken back in the opposite order. The calls may be repeated, so that a start after a crash simply makes them again.

mod record;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_client::{Api, write};
use ferry_plugins::Status;
use ferry_plugins::csi::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret, SecretReference, ServiceAccountTokenProjection};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment};
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::tokens::Tokens;
use super::{Unmounted, blocking, directory, ownership};
use crate::plugins::{Driver, Plugins};
use crate::pod;
use record::Record;
pub(super) use wanted::{Lifecycle, Wanted};

/// A driver that wants to publish again and again is called so often.
const REPUBLISH: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) fn hex(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |out, byte| out + &format!("{byte:02x}"))
}

type Lock = Arc<tokio::sync::Mutex<()>>;

pub(crate) struct Csi {
    /// The kubelet's own folder.
    root: PathBuf,
    node: String,
    client: Client,
    plugins: Arc<Plugins>,
    /// One call at a time for each volume.
    locks: Mutex<HashMap<String, Lock>>,
    /// The attached volumes that this node uses, by the names the attacher knows them by.
    in_use: watch::Sender<BTreeSet<String>>,
}

impl Csi {
    pub(super) fn new(root: &Path, node: &str, client: Client, plugins: Arc<Plugins>) -> Self {
        let in_use = watch::Sender::default();
        Self { root: root.to_owned(), node: node.to_owned(), client, plugins, locks: Mutex::default(), in_use }
    }

    pub(crate) fn in_use(&self) -> watch::Receiver<BTreeSet<String>> {
        self.in_use.subscribe()
    }

    fn lock(&self, driver: &str, handle: &str) -> Lock {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(unique(driver, handle)).or_default().clone()
    }

    fn driver(&self, name: &str) -> Result<Arc<Driver>, String> {
        let unknown = || format!("driver name {name} not found in the list of registered CSI drivers");
        self.plugins.storage(name).ok_or_else(unknown)
    }

    fn staging(&self, driver: &str, handle: &str) -> PathBuf {
        let place =
            ["plugins", "kubernetes.io", "csi", driver].iter().fold(self.root.clone(), |at, part| at.join(part));
        place.join(hex(handle))
    }

    /// Publishes a volume to a pod, in a folder of the pod. Gives where it is, and when to do so again.
    pub(super) async fn mount(
        &self,
        pod: &Pod,
        folder: &Path,
        wanted: &Wanted,
        tokens: &Tokens,
    ) -> Result<(PathBuf, Option<Timestamp>), Unmounted> {
        let target = folder.join("mount");
        let driver = self.driver(&wanted.driver)?;
        let about = self.about(wanted).await?;
        let lock = self.lock(&wanted.driver, &wanted.handle);
        let _one = lock.lock().await;
        let again =
            (about.requires_republish == Some(true)).then(|| Timestamp::now().checked_add(REPUBLISH).ok()).flatten();
        let attaches = wanted.lifecycle == Lifecycle::Persistent && about.attach_required != Some(false);
        let attachment = format!("csi-{}", hex(&format!("{}{}{}", wanted.handle, wanted.driver, self.node)));
        if attaches {
            self.in_use.send_if_modified(|all| all.insert(unique(&wanted.driver, &wanted.handle)));
        }
        if again.is_none() && is_published(folder, &target).await? {
            return Ok((target, None));
        }
        let publish_context = if attaches { self.attached(&attachment).await? } else { HashMap::new() };
        let group = pod::spec(pod).security_context.as_ref().and_then(|context| context.fs_group);
        let group = group.and_then(|group| u32::try_from(group).ok());
        let capability = wanted.capability(&driver, group);
        let record = Record {
            driver: wanted.driver.clone(),
            handle: wanted.handle.clone(),
            name: wanted.name.clone(),
            lifecycle: wanted.lifecycle.name().to_owned(),
            attachment: if attaches { attachment } else { String::new() },
            node: self.node.clone(),
        };
        let mut staging = String::new();
        if driver.stages && wanted.lifecycle == Lifecycle::Persistent {
            let place = self.staging(&wanted.driver, &wanted.handle);
            let global = place.join("globalmount");
            let (made, kept) = (global.clone(), record.clone());
            blocking(move || {
                let made = fs::create_dir_all(&made).and_then(|()| kept.write(&place));
                made.map_err(|error| error.to_string())
            })
            .await?;
            staging = global.to_string_lossy().into_owned();
            let request = NodeStageVolumeRequest {
                volume_id: wanted.handle.clone(),
                publish_context: publish_context.clone(),
                staging_target_path: staging.clone(),
                volume_capability: Some(capability.clone()),
                secrets: self.secret(wanted.stage_secret.as_ref()).await?,
                volume_context: wanted.context(None),
            };
            driver.storage.stage(request).await.map_err(|status| said(&status))?;
        }
        let place = folder.to_owned();
        blocking(move || record.write(&place).map_err(|error| error.to_string())).await?;
        let tells = about.pod_info_on_mount == Some(true);
        let mut volume_context = wanted.context(tells.then_some(pod));
        if let Some(text) = self.tokens(pod, &about, tokens).await? {
            volume_context.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), text);
        }
        let request = NodePublishVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context,
            staging_target_path: staging,
            target_path: target.to_string_lossy().into_owned(),
            volume_capability: Some(capability),
            readonly: wanted.read_only,
            secrets: self.secret(wanted.publish_secret.as_ref()).await?,
            volume_context,
        };
        driver.storage.publish(request).await.map_err(|status| said(&status))?;
        if let Some(group) = group.filter(|_| !driver.groups && !wanted.read_only)
            && wanted.is_given(about.fs_group_policy.as_deref().unwrap_or_default())
        {
            let policy = pod::spec(pod).security_context.as_ref().and_then(|c| c.fs_group_change_policy.as_deref());
            let (root, unless_given) = (target.clone(), policy == Some("OnRootMismatch"));
            blocking(move || {
                let given = ownership::give(&root, group, false, unless_given);
                given.map_err(|error| format!("applyFSGroup failed for vol {}: {error}", root.display()))
            })
            .await?;
        }
        Ok((target, again))
    }

    /// What the cluster says of the driver. One that it does not know is taken as it comes, but not within pods.
    async fn about(&self, wanted: &Wanted) -> Result<CSIDriverSpec, String> {
        let api: Api<CSIDriver> = Api::all(self.client.clone());
        let found = api.get_opt(&wanted.driver).await.map_err(|error| write::short(&error))?;
        let spec = found.map(|driver| driver.spec);
        if wanted.lifecycle == Lifecycle::Ephemeral {
            let modes = spec.as_ref().and_then(|spec| spec.volume_lifecycle_modes.as_ref());
            if !modes.is_some_and(|modes| modes.iter().any(|mode| mode == Lifecycle::Ephemeral.name())) {
                let (name, mode) = (&wanted.driver, Lifecycle::Ephemeral.name());
                return Err(format!("volume mode {mode:?} not supported by driver {name} (no CSIDriver object)"));
            }
        }
        Ok(spec.unwrap_or_default())
    }

    /// What the attacher left for the driver; a volume that is not attached yet is waited for.
    async fn attached(&self, name: &str) -> Result<HashMap<String, String>, Unmounted> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let found = api.get_opt(name).await.map_err(|error| write::short(&error))?;
        let Some(status) = found.and_then(|attachment| attachment.status) else {
            return Err(Unmounted::NotYet(format!("volume attachment {name} is not there yet")));
        };
        if !status.attached {
            let why = status.attach_error.and_then(|error| error.message).unwrap_or_default();
            return Err(Unmounted::NotYet(format!("volume attachment {name} is not attached yet: {why}")));
        }
        Ok(status.attachment_metadata.unwrap_or_default().into_iter().collect())
    }

    async fn secret(&self, reference: Option<&SecretReference>) -> Result<HashMap<String, String>, String> {
        let Some(reference) = reference else { return Ok(HashMap::new()) };
        let (namespace, name) = (reference.namespace.as_deref(), reference.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = api.get(name).await;
        let secret = secret.map_err(|error| {
            format!("fetching NodePublishSecretRef {namespace}/{name} failed: {}", write::short(&error))
        })?;
        let data = secret.data.unwrap_or_default();
        Ok(data.into_iter().map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
    }

    /// Tokens of the pod's account for the audiences the driver names.
    async fn tokens(&self, pod: &Pod, about: &CSIDriverSpec, tokens: &Tokens) -> Result<Option<String>, String> {
        let Some(requests) = about.token_requests.as_ref().filter(|requests| !requests.is_empty()) else {
            return Ok(None);
        };
        let mut given = BTreeMap::new();
        for request in requests {
            let wanted = ServiceAccountTokenProjection {
                audience: Some(request.audience.clone()),
                expiration_seconds: request.expiration_seconds,
                ..ServiceAccountTokenProjection::default()
            };
            let token = tokens.get(pod, &wanted).await?;
            let expires = ferry_meta::time::time(token.expires_at);
            given.insert(request.audience.clone(), json!({"token": token.text, "expirationTimestamp": expires}));
        }
        Ok(Some(json!(given).to_string()))
    }

    /// Takes back everything that drivers published to a pod.
    pub(super) async fn unmount(&self, pods: &Path, uid: &str) -> Result<(), String> {
        for folder in record::folders(&pods.join(uid)) {
            let kept = folder.clone();
            let record = blocking(move || Record::read(&kept).map_err(|error| format!("{}: {error}", kept.display())));
            let Some(record) = record.await? else { continue };
            let driver = self.driver(&record.driver)?;
            let lock = self.lock(&record.driver, &record.handle);
            let _one = lock.lock().await;
            let target = folder.join("mount");
            let request = NodeUnpublishVolumeRequest {
                volume_id: record.handle.clone(),
                target_path: target.to_string_lossy().into_owned(),
            };
            driver.storage.unpublish(request).await.map_err(|status| said(&status))?;
            let place = folder.clone();
            blocking(move || {
                // What a driver leaves mounted is not ours to remove.
                if !directory::mounts_below(&place).map_err(|error| error.to_string())?.is_empty() {
                    return Err(format!("{} is still mounted", place.display()));
                }
                let _ = fs::remove_dir(place.join("mount"));
                Record::remove(&place).map_err(|error| format!("{}: {error}", place.display()))
            })
            .await?;
            self.unstage(pods, &driver, &record).await?;
        }
        Ok(())
    }

    /// Takes a volume back from the node once no pod has it.
    async fn unstage(&self, pods: &Path, driver: &Driver, record: &Record) -> Result<(), String> {
        let (pods, wanted) = (pods.to_owned(), record.clone());
        let used = blocking(move || {
            let all = fs::read_dir(&pods).map_err(|error| error.to_string())?.flatten();
            let folders = all.flat_map(|pod| record::folders(&pod.path()));
            let mut records = folders.filter_map(|folder| Record::read(&folder).ok().flatten());
            Ok(records.any(|other| other.is_of(&wanted.driver, &wanted.handle)))
        });
        if used.await? {
            return Ok(());
        }
        let place = self.staging(&record.driver, &record.handle);
        if driver.stages && place.exists() {
            let global = place.join("globalmount");
            let request = NodeUnstageVolumeRequest {
                volume_id: record.handle.clone(),
                staging_target_path: global.to_string_lossy().into_owned(),
            };
            driver.storage.unstage(request).await.map_err(|status| said(&status))?;
            blocking(move || {
                let _ = fs::remove_dir(&global);
                Record::remove(&place).map_err(|error| format!("{}: {error}", place.display()))
            })
            .await?;
        }
        self.in_use.send_if_modified(|all| all.remove(&unique(&record.driver, &record.handle)));
        Ok(())
    }
}

/// By which name the attacher and the Node know a volume.
fn unique(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

fn said(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

async fn is_published(folder: &Path, target: &Path) -> Result<bool, String> {
    let (folder, target) = (folder.to_owned(), target.to_owned());
    blocking(move || {
        if !folder.exists() {
            return Ok(false);
        }
        let known = Record::read(&folder).map_err(|error| format!("{}: {error}", folder.display()))?.is_some();
        let mounts = directory::mounts_below(&folder).map_err(|error| error.to_string())?;
        let target = target.canonicalize().unwrap_or(target);
        Ok(known && mounts.contains(&target))
    })
    .await
}

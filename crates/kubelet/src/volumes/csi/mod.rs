//! Volumes of storage drivers (CSI): staged once for the node where the driver wants it, published to each pod, and
//! taken back in the opposite order. The calls may be repeated, so that a start after a crash simply makes them again.

mod asked;
mod places;
mod record;
mod wanted;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::Clock;
use ferry_plugins::Status;
use ferry_plugins::csi::{
    CapacityRange, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use kube::Client;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::tokens::Tokens;
use super::{Made, Unmounted, blocking, directory, note, write_note};
use crate::plugins::{Driver, Plugins};
use crate::pod;
use places::Places;
use record::Record;
pub(super) use wanted::{Lifecycle, Wanted};

/// A driver that wants to publish again and again is called so often.
const REPUBLISH: Duration = Duration::from_secs(60);
/// A volume that can grow is looked at so often.
const LOOK: Duration = Duration::from_secs(10);

/// Where a pod's folder notes the volumes that are published, and whose files were given to its group.
const GIVEN: &str = "given-csi-volumes";

fn hex(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |out, byte| out + &format!("{byte:02x}"))
}

fn group_of(pod: &Pod) -> Option<u32> {
    let group = pod::spec(pod).security_context.as_ref().and_then(|context| context.fs_group);
    group.and_then(|group| u32::try_from(group).ok())
}

type Lock = Arc<tokio::sync::Mutex<()>>;

pub(crate) struct Csi {
    /// The kubelet's own folder.
    root: PathBuf,
    node: String,
    client: Client,
    clock: Clock,
    plugins: Arc<Plugins>,
    /// One call at a time for each volume.
    locks: Mutex<HashMap<String, Lock>>,
    /// The attached volumes that this node uses, by the names the attacher knows them by.
    in_use: watch::Sender<BTreeSet<String>>,
}

impl Csi {
    pub(super) fn new(root: &Path, node: &str, client: Client, plugins: Arc<Plugins>, clock: Clock) -> Self {
        let in_use = watch::Sender::default();
        Self { root: root.to_owned(), node: node.to_owned(), client, clock, plugins, locks: Mutex::default(), in_use }
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

    fn places(&self, pod: &Pod, wanted: &Wanted) -> Places {
        Places::new(&self.root, pod::uid(pod), &wanted.name, &wanted.driver, &wanted.handle, wanted.block)
    }

    /// Publishes a volume to a pod. Gives where it is, and when to look at it again.
    pub(super) async fn mount(&self, pod: &Pod, wanted: &Wanted, tokens: &Tokens) -> Result<Made, Unmounted> {
        let places = self.places(pod, wanted);
        let driver = self.driver(&wanted.driver)?;
        let about = self.about(wanted).await?;
        let lock = self.lock(&wanted.driver, &wanted.handle);
        let _one = lock.lock().await;
        let republishes = about.requires_republish == Some(true);
        let attaches = wanted.lifecycle == Lifecycle::Persistent && about.attach_required != Some(false);
        if attaches {
            self.in_use.send_if_modified(|all| all.insert(unique(&wanted.driver, &wanted.handle)));
        }
        let again = if republishes {
            Some(REPUBLISH)
        } else {
            (driver.expands && wanted.lifecycle == Lifecycle::Persistent).then_some(LOOK)
        };
        let refresh_at = again.and_then(|wait| self.clock.now().checked_add(wait).ok());
        let made = Made { path: places.target.clone(), refresh_at, device: wanted.block };
        let given = note(&self.root.join("pods").join(pod::uid(pod)), GIVEN, &wanted.name);
        if !republishes && is_published(&places, wanted.block, &given).await? {
            return Ok(made);
        }
        let attachment = format!("csi-{}", hex(&format!("{}{}{}", wanted.handle, wanted.driver, self.node)));
        let publish_context = if attaches { self.attached(&attachment).await? } else { HashMap::new() };
        let record = Record {
            driver: wanted.driver.clone(),
            handle: wanted.handle.clone(),
            name: wanted.name.clone(),
            lifecycle: wanted.lifecycle.name().to_owned(),
            attachment: if attaches { attachment } else { String::new() },
            node: self.node.clone(),
        };
        let stages = driver.stages && wanted.lifecycle == Lifecycle::Persistent;
        if stages {
            self.stage(&driver, wanted, &places, &record, &publish_context, group_of(pod)).await?;
        }
        let (kept, target) = (places.record.clone(), places.target.clone());
        blocking(move || {
            let above = target.parent().map_or(Ok(()), fs::create_dir_all);
            above.and_then(|()| record.write(&kept)).map_err(|error| error.to_string())
        })
        .await?;
        let tells = about.pod_info_on_mount == Some(true);
        let mut volume_context = wanted.context(tells.then_some(pod));
        if let Some(text) = self.tokens(pod, &about, tokens).await? {
            volume_context.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), text);
        }
        let request = NodePublishVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context,
            staging_target_path: if stages { text(&places.staging) } else { String::new() },
            target_path: text(&places.target),
            volume_capability: Some(wanted.capability(&driver, group_of(pod))),
            readonly: wanted.read_only,
            secrets: self.secret(wanted.publish_secret.as_ref()).await?,
            volume_context,
        };
        driver.storage.publish(request).await.map_err(|status| said(&status))?;
        give(pod, wanted, &driver, &about, &places.target).await?;
        blocking(move || write_note(&given)).await?;
        Ok(made)
    }

    async fn stage(
        &self,
        driver: &Driver,
        wanted: &Wanted,
        places: &Places,
        record: &Record,
        publish_context: &HashMap<String, String>,
        group: Option<u32>,
    ) -> Result<(), String> {
        let (staged, staging, kept) = (places.staged.clone(), places.staging.clone(), record.clone());
        blocking(move || {
            let made = fs::create_dir_all(&staging).and_then(|()| kept.write(&staged));
            made.map_err(|error| error.to_string())
        })
        .await?;
        let request = NodeStageVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: text(&places.staging),
            volume_capability: Some(wanted.capability(driver, group)),
            secrets: self.secret(wanted.stage_secret.as_ref()).await?,
            volume_context: wanted.context(None),
        };
        driver.storage.stage(request).await.map(|_| ()).map_err(|status| said(&status))
    }

    /// Lets a published volume fill what its disk has grown to. False where the driver has nothing to do for that.
    pub(super) async fn expand(&self, pod: &Pod, wanted: &Wanted, bytes: i64) -> Result<bool, String> {
        let driver = self.driver(&wanted.driver)?;
        if !driver.expands {
            return Ok(false);
        }
        let places = self.places(pod, wanted);
        let lock = self.lock(&wanted.driver, &wanted.handle);
        let _one = lock.lock().await;
        let request = NodeExpandVolumeRequest {
            volume_id: wanted.handle.clone(),
            volume_path: text(&places.target),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            staging_target_path: if driver.stages { text(&places.staging) } else { String::new() },
            volume_capability: Some(wanted.capability(&driver, group_of(pod))),
            secrets: self.secret(wanted.expand_secret.as_ref()).await?,
        };
        driver.storage.expand(request).await.map(|_| true).map_err(|status| said(&status))
    }

    /// Takes back everything that drivers published to a pod.
    pub(super) async fn unmount(&self, uid: &str) -> Result<(), String> {
        let pod = self.root.join("pods").join(uid);
        for (kind, block) in places::KINDS {
            for folder in record::folders(&places::records(&pod, kind)) {
                let kept = folder.clone();
                let record =
                    blocking(move || Record::read(&kept).map_err(|error| format!("{}: {error}", kept.display())));
                let Some(record) = record.await? else { continue };
                self.unpublish(uid, &record, block).await?;
            }
        }
        Ok(())
    }

    async fn unpublish(&self, uid: &str, record: &Record, block: bool) -> Result<(), String> {
        let driver = self.driver(&record.driver)?;
        let lock = self.lock(&record.driver, &record.handle);
        let _one = lock.lock().await;
        let places = Places::new(&self.root, uid, &record.name, &record.driver, &record.handle, block);
        let request =
            NodeUnpublishVolumeRequest { volume_id: record.handle.clone(), target_path: text(&places.target) };
        driver.storage.unpublish(request).await.map_err(|status| said(&status))?;
        let (kept, target) = (places.record.clone(), places.target.clone());
        blocking(move || {
            // What a driver leaves mounted is not ours to remove.
            for place in [&kept, &target].into_iter().filter(|place| place.exists()) {
                if !directory::mounts_below(place).map_err(|error| error.to_string())?.is_empty() {
                    return Err(format!("{} is still mounted", place.display()));
                }
            }
            let _ = if target.is_dir() { fs::remove_dir(&target) } else { fs::remove_file(&target) };
            Record::remove(&kept).map_err(|error| format!("{}: {error}", kept.display()))
        })
        .await?;
        self.unstage(&driver, record, places).await
    }

    /// Takes a volume back from the node once no pod has it.
    async fn unstage(&self, driver: &Driver, record: &Record, places: Places) -> Result<(), String> {
        let (pods, wanted) = (self.root.join("pods"), record.clone());
        let used = blocking(move || {
            let all = fs::read_dir(&pods).map_err(|error| error.to_string())?.flatten();
            let folders = all.flat_map(|pod| places::KINDS.map(|(kind, _)| places::records(&pod.path(), kind)));
            let folders = folders.flat_map(|folder| record::folders(&folder));
            let mut records = folders.filter_map(|folder| Record::read(&folder).ok().flatten());
            Ok(records.any(|other| other.is_of(&wanted.driver, &wanted.handle)))
        });
        if used.await? {
            return Ok(());
        }
        if driver.stages && places.staged.exists() {
            let request = NodeUnstageVolumeRequest {
                volume_id: record.handle.clone(),
                staging_target_path: text(&places.staging),
            };
            driver.storage.unstage(request).await.map_err(|status| said(&status))?;
            blocking(move || {
                let _ = fs::remove_dir(&places.staging);
                Record::remove(&places.staged).map_err(|error| format!("{}: {error}", places.staged.display()))
            })
            .await?;
        }
        self.in_use.send_if_modified(|all| all.remove(&unique(&record.driver, &record.handle)));
        Ok(())
    }
}

/// Gives the files of a volume to the pod's group, where the driver does not.
async fn give(pod: &Pod, wanted: &Wanted, driver: &Driver, about: &CSIDriverSpec, target: &Path) -> Result<(), String> {
    let policy = about.fs_group_policy.as_deref().unwrap_or_default();
    if driver.groups || wanted.read_only || wanted.block || !wanted.is_given(policy) {
        return Ok(());
    }
    super::give(pod, target).await
}

/// By which name the attacher and the Node know a volume.
fn unique(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn said(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

/// Published, and its files given to the pod's group afterwards: whatever came between is done again.
async fn is_published(places: &Places, block: bool, given: &Path) -> Result<bool, String> {
    let (Places { record, target, .. }, given) = (places.clone(), given.to_owned());
    blocking(move || {
        if !record.exists() || !target.exists() || !given.exists() {
            return Ok(false);
        }
        let known = Record::read(&record).map_err(|error| format!("{}: {error}", record.display()))?.is_some();
        if block {
            return Ok(known && fs::metadata(&target).is_ok_and(|about| about.file_type().is_block_device()));
        }
        let mounts = directory::mounts_below(&target).map_err(|error| error.to_string())?;
        Ok(known && !mounts.is_empty())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Killed before its files were given to the pod's group, a kubelet begins with the volume again.
    #[tokio::test]
    async fn a_volume_is_published_once_its_files_are_given() {
        if !rustix::process::geteuid().is_root() {
            return ferry_testkit::skip("mounts need root");
        }
        let root = tempfile::tempdir().expect("a folder");
        let places = Places::new(root.path(), "uid", "pv", "driver", "handle", false);
        let given = note(&root.path().join("pods/uid"), GIVEN, "pv");
        let record = Record {
            driver: "driver".into(),
            handle: "handle".into(),
            name: "pv".into(),
            lifecycle: Lifecycle::Persistent.name().into(),
            attachment: String::new(),
            node: "node".into(),
        };
        record.write(&places.record).expect("a record");
        directory::memory(&places.target, None, 0o755, None).expect("what a driver mounts");
        let before = is_published(&places, false, &given).await;
        write_note(&given).expect("noted");
        let after = is_published(&places, false, &given).await;
        rustix::mount::unmount(&places.target, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
        let gone = is_published(&places, false, &given).await;
        assert_eq!((before, after, gone), (Ok(false), Ok(true), Ok(false)));
    }
}

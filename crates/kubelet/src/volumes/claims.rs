//! Volumes that a pod claims: a folder or a device of this node, or a driver's.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod, Volume};
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use super::csi::Wanted;
use super::disks::{self, Disk};
use super::nfs::Share;
use super::{Made, Unmounted, Volumes, blocking, directory, note, write_note};
use crate::{pod, quantity};

/// The claim that a volume of a pod stands for.
pub(super) struct Claimed {
    name: String,
    read_only: bool,
    /// It was made for this pod alone.
    own: bool,
}

impl Claimed {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn of(pod: &Pod, volume: &Volume) -> Option<Self> {
        if let Some(source) = &volume.persistent_volume_claim {
            let read_only = source.read_only == Some(true);
            return Some(Self { name: source.claim_name.clone(), read_only, own: false });
        }
        volume.ephemeral.as_ref()?;
        Some(Self { name: format!("{}-{}", pod::name(pod), volume.name), read_only: false, own: true })
    }
}

/// Where a pod's folder notes its volumes for one pod.
const SINGLE: &str = "single-user-volumes";

/// Where a pod's folder notes the folders of this node that it uses: they are not removed meanwhile.
const LOCAL: &str = "local-volumes";

pub(crate) fn note_local_volume(pod: &Path, volume: &str) -> Result<(), String> {
    write_note(&note(pod, LOCAL, volume))
}

/// The UID of a pod that uses a volume. An error where that is not known: it is not nobody then.
pub(crate) fn uses_local_volume(pods: &Path, volume: &str) -> io::Result<Option<String>> {
    let pods = match std::fs::read_dir(pods) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        pods => pods?,
    };
    for pod in pods {
        let pod = pod?;
        match std::fs::metadata(note(&pod.path(), LOCAL, volume)) {
            Ok(_) => return Ok(Some(pod.file_name().to_string_lossy().into_owned())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Which pod has each volume that one pod of the cluster may have at a time. The scheduler keeps others away; whoever names
/// the node itself gets past it.
#[derive(Default)]
pub(super) struct SingleUsers(Mutex<HashMap<String, String>>);

impl SingleUsers {
    fn take(&self, volume: &str, uid: &str) -> Result<(), String> {
        match self.0.lock().entry(volume.to_owned()).or_insert_with(|| uid.to_owned()) {
            user if user == uid => Ok(()),
            _ => Err("volume uses the ReadWriteOncePod access mode and is already in use by another pod".to_owned()),
        }
    }

    /// Who had which before this process began: their pods may start in any order.
    pub(super) fn read(pods: &Path) -> Self {
        let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut users = HashMap::new();
        for pod in entries(pods) {
            let uid = pod.file_name().to_string_lossy().into_owned();
            for volume in entries(&pod.path().join(SINGLE)) {
                users.insert(volume.file_name().to_string_lossy().into_owned(), uid.clone());
            }
        }
        Self(Mutex::new(users))
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|_, user| user != uid);
    }
}

impl Volumes {
    pub(super) async fn claimed(&self, pod: &Pod, volume: &Volume, claimed: &Claimed) -> Result<Made, Unmounted> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), pod::namespace(pod));
        let claim = claims.get(&claimed.name).await.map_err(|error| write::short(&error))?;
        let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
        if claimed.own && !owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == pod::uid(pod)) {
            let (namespace, name, claim) = (pod::namespace(pod), pod::name(pod), &claimed.name);
            let why = format!("PVC {namespace}/{claim} was not created for pod {namespace}/{name} (pod is not owner)");
            return Err(why.into());
        }
        let name = volume_name(&claim)?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let spec = volumes.get(&name).await.map_err(|error| write::short(&error))?.spec.unwrap_or_default();
        check_binding(&claim, &name, &spec)?;
        let device = spec.volume_mode.as_deref() == Some("Block");
        check_use(pod, &volume.name, device)?;
        if spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteOncePod") {
            self.single_users.take(&name, pod::uid(pod))?;
            let note = note(&self.pod_folder(pod::uid(pod)), SINGLE, &name);
            blocking(move || write_note(&note)).await?;
        }
        if let Some(wanted) = Wanted::persistent(&name, &spec, claimed.read_only) {
            let made = self.csi.mount(pod, &wanted, &self.tokens).await?;
            self.grow(pod, &claim, &spec, &wanted).await?;
            return Ok(made);
        }
        if let Some(source) = spec.nfs.as_ref().filter(|_| !device) {
            let options = spec.mount_options.as_deref().unwrap_or_default();
            let (pod, share) = (self.pod_folder(pod::uid(pod)), Share::new(source, options, claimed.read_only)?);
            return Ok(Made::folder(self.shares.mount(&pod, &name, share).await?));
        }
        if ferry_semantics::local_volumes::is_name(&name) && spec.local.is_some() {
            let (pod, volume) = (self.pod_folder(pod::uid(pod)), name.clone());
            blocking(move || note_local_volume(&pod, &volume)).await?;
        }
        if let Some(disk) = self.disk(pod, &name, &spec, claimed.read_only).await? {
            let bound = self.disks.mount(&self.pod_folder(pod::uid(pod)), disk).await?;
            if bound.is_writable {
                self.give_once(pod, &name, &bound.path).await?;
            }
            return Ok(Made::folder(bound.path));
        }
        let kind = |kind: &str| if device { "BlockDevice".to_owned() } else { kind.to_owned() };
        let is_local = spec.local.is_some();
        let (path, kind) = match (spec.local, spec.host_path) {
            (Some(local), _) => (local.path, kind("Directory")),
            (None, Some(host)) => (host.path, kind(host.type_.as_deref().unwrap_or("DirectoryOrCreate"))),
            (None, None) => return Err("no volume plugin matched".to_owned().into()),
        };
        let path = blocking(move || directory::host_path(&path, &kind)).await?;
        if is_local && !device && !claimed.read_only {
            self.give_once(pod, &name, &path).await?;
        }
        Ok(Made { device, ..Made::folder(path) })
    }

    /// A local volume that is a block device with a file system on it.
    async fn disk(
        &self,
        pod: &Pod,
        name: &str,
        spec: &PersistentVolumeSpec,
        read_only: bool,
    ) -> Result<Option<Disk>, String> {
        let is_raw = spec.volume_mode.as_deref() == Some("Block");
        let Some(local) = spec.local.as_ref().filter(|_| !is_raw) else { return Ok(None) };
        let (path, volume, pod) = (local.path.clone(), name.to_owned(), self.pod_folder(pod::uid(pod)));
        // One that is gone since stays what it was: it is mounted.
        let is_disk = blocking(move || {
            let is_device = std::fs::metadata(path).is_ok_and(|about| about.file_type().is_block_device());
            Ok(is_device || disks::uses(&pod, &volume))
        });
        if !is_disk.await? {
            return Ok(None);
        }
        Disk::new(name, local, spec.mount_options.clone().unwrap_or_default(), read_only).map(Some)
    }

    /// Grows the file system of a volume whose disk has grown, and tells the claim.
    async fn grow(
        &self,
        pod: &Pod,
        claim: &PersistentVolumeClaim,
        spec: &PersistentVolumeSpec,
        wanted: &Wanted,
    ) -> Result<(), String> {
        let Some(has) = spec.capacity.as_ref().and_then(|all| all.get("storage")) else { return Ok(()) };
        let status = claim.status.as_ref();
        let told = status.and_then(|status| status.capacity.as_ref()).and_then(|all| all.get("storage"));
        let (Some(bytes), Some(before)) = (quantity::value(has), told.and_then(quantity::value)) else {
            return Ok(());
        };
        if bytes <= before || wanted.is_read_only() || !self.csi.expand(pod, wanted, bytes).await? {
            return Ok(());
        }
        let ended = ["FileSystemResizePending", "Resizing"];
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let left: Vec<_> = conditions.filter(|condition| !ended.contains(&&*condition.type_)).collect();
        let patch = json!({
            "metadata": {"resourceVersion": claim.metadata.resource_version},
            "status": {"capacity": {"storage": has}, "conditions": left, "allocatedResourceStatuses": {"storage": null}},
        });
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), pod::namespace(pod));
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let patched = claims.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(|_| ()).map_err(|error| write::short(&error))
    }
}

/// The volume that a claim is bound to.
fn volume_name(claim: &PersistentVolumeClaim) -> Result<String, String> {
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound") {
        return Err("PVC is not bound".to_owned());
    }
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    name.ok_or_else(|| "PVC has empty pvc.Spec.VolumeName".to_owned())
}

/// Whoever makes a claim names the volume; whose it is, the volume says.
fn check_binding(claim: &PersistentVolumeClaim, name: &str, spec: &PersistentVolumeSpec) -> Result<(), String> {
    let Some(reference) = &spec.claim_ref else {
        return Err(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        ));
    };
    let (its, own) = (reference.uid.as_deref().unwrap_or_default(), claim.metadata.uid.as_deref().unwrap_or_default());
    if its.is_empty() || its != own {
        return Err(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {its} does not point to claim.UID {own}"
        ));
    }
    Ok(())
}

/// A device is not mounted, and a folder is no device.
fn check_use(pod: &Pod, volume: &str, device: bool) -> Result<(), String> {
    let spec = pod::spec(pod);
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    for container in containers {
        let mounts = container.volume_mounts.iter().flatten().any(|mount| mount.name == volume);
        let opens = container.volume_devices.iter().flatten().any(|opened| opened.name == volume);
        if device && mounts {
            return Err(format!("volume {volume} has volumeMode Block, but is specified in volumeMounts"));
        }
        if !device && opens {
            return Err(format!("volume {volume} has volumeMode Filesystem, but is specified in volumeDevices"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pod_has_a_volume_for_one_pod() {
        let users = SingleUsers::default();
        users.take("disk", "a").expect("free");
        users.take("disk", "a").expect("its own");
        users.take("other", "b").expect("free");
        let refused = users.take("disk", "b").expect_err("taken");
        assert!(refused.contains("already in use by another pod"), "{refused}");
        users.forget("a");
        users.take("disk", "b").expect("given back");
    }

    #[test]
    fn users_are_known_after_a_restart() {
        let pods = tempfile::tempdir().expect("a folder");
        write_note(&note(&pods.path().join("a"), SINGLE, "disk")).expect("noted");
        let users = SingleUsers::read(pods.path());
        users.take("disk", "b").expect_err("taken");
        users.take("disk", "a").expect("its own");
        users.take("other", "b").expect("free");
        SingleUsers::read(&pods.path().join("none")).take("disk", "b").expect("nobody was there");
    }

    /// A claim of one's own that names somebody else's volume is no way to it.
    #[test]
    fn a_claim_gets_the_volume_that_is_its_own() {
        let claim = |phase: &str, volume: &str| -> PersistentVolumeClaim {
            let value =
                json!({"metadata": {"uid": "mine"}, "spec": {"volumeName": volume}, "status": {"phase": phase}});
            serde_json::from_value(value).expect("a claim")
        };
        assert_eq!(volume_name(&claim("Pending", "pv")), Err("PVC is not bound".to_owned()));
        assert_eq!(volume_name(&claim("Lost", "pv")), Err("PVC is not bound".to_owned()));
        assert_eq!(volume_name(&claim("Bound", "")), Err("PVC has empty pvc.Spec.VolumeName".to_owned()));
        assert_eq!(volume_name(&claim("Bound", "pv")).as_deref(), Ok("pv"));
        for (reference, why) in [
            (json!(null), "nil pv.Spec.ClaimRef"),
            (json!({"name": "c", "namespace": "n"}), "does not point to claim.UID mine"),
            (json!({"name": "c", "namespace": "n", "uid": "another"}), "UID another does not point to claim.UID mine"),
            (json!({"name": "c", "namespace": "n", "uid": "mine"}), ""),
        ] {
            let spec = serde_json::from_value(json!({"claimRef": reference})).expect("a volume");
            match check_binding(&claim("Bound", "pv"), "pv", &spec) {
                Ok(()) => assert_eq!(why, ""),
                Err(error) => assert!(!why.is_empty() && error.contains(why), "{error}"),
            }
        }
    }
}

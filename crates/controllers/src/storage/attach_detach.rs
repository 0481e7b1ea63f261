//! Attach/detach bookkeeping: a VolumeAttachment for every CSI volume that a node's pods need, and what is attached in
//! the node's status. The driver's own attacher does the work and says when it is done.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::attaching::{Attaching, Held, Holder, in_use, is_out_of_service};
use super::protection::claims_of;
use crate::Context;
use crate::common::pod;
use crate::node::pods_by_node;

const NAME: &str = "attachdetach-controller";
/// When to ask again whose a volume is that was attached to another node a moment ago: a watch that was interrupted never
/// tells of an attachment that went meanwhile.
const UNSEEN: Duration = Duration::from_secs(5);

struct Reconciler {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    pods: Index<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    drivers: Informer<CSIDriver>,
    attachments: Informer<VolumeAttachment>,
    /// By attachment: since when nobody needs it.
    unneeded: Mutex<HashMap<String, Instant>>,
    /// Nodes that wait for a volume which another one has.
    waiting: Mutex<HashSet<String>>,
    attaching: Attaching,
    /// Nodes that were deleted and have something attached.
    gone: Mutex<HashMap<String, Holder>>,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let pods = context.informers.of::<Pod>();
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        nodes: context.informers.of(),
        pods: pods_by_node(&pods),
        claims: context.informers.of(),
        volumes: context.informers.of(),
        drivers: context.informers.of(),
        attachments: context.informers.of(),
        unneeded: Mutex::default(),
        waiting: Mutex::default(),
        attaching: Attaching::default(),
        gone: Mutex::default(),
        queue: context.queue("attachdetach"),
    });
    let handler = this.clone();
    pods.on_change(move |change| {
        let pod = change.object();
        if !pod::node(pod).is_empty() && !claims_of(pod).is_empty() {
            handler.queue.add(ObjectKey::new("", pod::node(pod)));
        }
    });
    let handler = this.clone();
    this.attachments.on_change(move |change| {
        if let Change::Modified { old, new } = change {
            handler.tell(old, new);
        }
        let attachment = change.object();
        handler.queue.add(ObjectKey::new("", attachment.spec.node_name.clone()));
        if matches!(change, Change::Deleted(_)) {
            handler.wake_waiting();
        } else if let Some(volume) = &attachment.spec.source.persistent_volume_name {
            handler.attaching.forget(volume, &attachment.name_any());
        }
    });
    // A volume that the kubelet has unmounted may be detached.
    let handler = this.clone();
    this.nodes.on_change(move |change| {
        let new = change.object();
        if matches!(change, Change::Deleted(_)) {
            handler.gone.lock().insert(new.name_any(), Holder::gone(new));
        } else {
            handler.gone.lock().remove(&new.name_any());
        }
        // One that comes may have pods that were seen before it, of one that goes less is known.
        let told = match change {
            Change::Modified { old, .. } => in_use(new) != in_use(old) || is_out_of_service(new),
            Change::Added(_) | Change::Deleted(_) => true,
        };
        if told {
            handler.queue.add(ObjectKey::of(&**new));
        }
    });
    // A claim may be seen as bound before its volume is seen at all.
    let (handler, waiting) = (this.clone(), pods.clone());
    this.volumes.on_change(move |change| {
        let Change::Added(volume) = change else { return };
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
        let (namespace, name) = (reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default());
        handler.wake_users(&waiting, &namespace, &name);
    });
    // Whether a driver attaches at all is known once it is there.
    let handler = this.clone();
    this.drivers.on_change(move |_| {
        for node in handler.nodes.list() {
            handler.queue.add(ObjectKey::of(&*node));
        }
    });
    // A claim that was bound late has pods that wait.
    let (handler, waiting) = (this.clone(), pods.clone());
    this.claims.on_change(move |change| {
        let claim = change.object();
        handler.wake_users(&waiting, &claim.namespace().unwrap_or_default(), &claim.name_any());
    });
    let synced = this.clone();
    let ready = async move {
        pods.synced().await;
        synced.nodes.synced().await;
        synced.claims.synced().await;
        synced.volumes.synced().await;
        synced.drivers.synced().await;
        synced.attachments.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 2, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key.name).await }
    });
}

/// The name upstream gives the attachment, so that both can take over from each other.
fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    digest.iter().fold(String::from("csi-"), |name, byte| name + &format!("{byte:02x}"))
}

pub(super) fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// Whether several nodes may have the volume at the same time.
fn is_shared(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

enum Reserved {
    Yes,
    /// Another node has the volume.
    Taken,
    /// Another node may have it.
    Unsure,
}

fn sooner(action: Action, delay: Duration) -> Action {
    match action {
        Action::After(known) => Action::After(known.min(delay)),
        Action::Done => Action::After(delay),
    }
}

impl Reconciler {
    /// Looks at the nodes on which pods use the claim.
    fn wake_users(&self, pods: &Informer<Pod>, namespace: &str, claim: &str) {
        for pod in pods.list_in(namespace) {
            if !pod::node(&pod).is_empty() && claims_of(&pod).iter().any(|name| name == claim) {
                self.queue.add(ObjectKey::new("", pod::node(&pod)));
            }
        }
    }

    /// Looks at the nodes that wait for a volume which another one has.
    fn wake_waiting(&self) {
        for node in self.waiting.lock().drain() {
            self.queue.add(ObjectKey::new("", node));
        }
    }

    /// By the attachment's name: the volume. Pods outlive their Node, and use their volumes until they are gone.
    fn wanted(&self, node: &str) -> BTreeMap<String, Arc<PersistentVolume>> {
        let mut wanted = BTreeMap::new();
        for pod in self.pods.get(node).iter().filter(|pod| !pod::is_terminal(pod)) {
            for name in claims_of(pod) {
                let claim = self.claims.get(&pod.namespace().unwrap_or_default(), &name);
                let bound = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
                let Some(volume) = bound.and_then(|name| self.volumes.get("", &name)) else { continue };
                let Some(source) = volume.spec.as_ref().and_then(|spec| spec.csi.clone()) else { continue };
                let driver = self.drivers.get("", &source.driver);
                if driver.is_some_and(|driver| driver.spec.attach_required == Some(false)) {
                    continue;
                }
                wanted.insert(attachment_name(&source.volume_handle, &source.driver, node), volume);
            }
        }
        wanted
    }

    async fn reconcile(&self, node: &str) -> Result<Action, Error> {
        let wanted = self.wanted(node);
        let is_known = self.nodes.get("", node).is_some();
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let mut again = Action::Done;
        let there: Vec<_> = self.attachments.list().into_iter().filter(|known| known.spec.node_name == node).collect();
        for (name, volume) in wanted.iter().filter(|_| is_known) {
            if there.iter().any(|known| known.name_any() == *name) {
                continue;
            }
            match self.reserve(&api, node, name, volume).await? {
                Reserved::Yes => {}
                Reserved::Taken => continue,
                Reserved::Unsure => {
                    again = Action::After(UNSEEN);
                    continue;
                }
            }
            let driver = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|csi| csi.driver.clone());
            let attachment = VolumeAttachment {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                spec: VolumeAttachmentSpec {
                    attacher: driver.unwrap_or_default(),
                    node_name: node.to_owned(),
                    source: VolumeAttachmentSource {
                        persistent_volume_name: volume.metadata.name.clone(),
                        ..VolumeAttachmentSource::default()
                    },
                },
                status: None,
            };
            let made = api.create(&PostParams::default(), &attachment).await;
            self.attaching.answered(&volume.name_any(), name);
            match made {
                Err(error) if !write::is_already_exists(&error) => {
                    // What the server did not refuse it may have done.
                    if write::status_of(&error).is_some_and(|status| status.code < 500) {
                        self.attaching.forget(&volume.name_any(), name);
                        self.wake_waiting();
                    }
                    return Err(error.into());
                }
                _ => {}
            }
        }
        let mut leaving = Vec::new();
        for unneeded in
            there.iter().filter(|known| known.name_any().starts_with("csi-") && !wanted.contains_key(&known.name_any()))
        {
            let left = self.time_to_unmount(node, unneeded);
            if left.is_zero() {
                leaving.push(unneeded.clone());
            } else {
                again = sooner(again, left);
            }
        }
        self.unneeded.lock().retain(|name, _| !wanted.contains_key(name));
        // What is about to be detached is no longer said to be attached, so that the kubelet does not begin to use it.
        let staying = there.iter().filter(|known| {
            known.metadata.deletion_timestamp.is_none()
                && !leaving.iter().any(|gone| gone.name_any() == known.name_any())
        });
        self.report(node, &staying.cloned().collect::<Vec<_>>()).await?;
        for gone in leaving {
            self.unneeded.lock().remove(&gone.name_any());
            write::delete(&api, &*gone, None).await?;
        }
        if there.is_empty() && !is_known {
            self.gone.lock().remove(node);
        }
        Ok(again)
    }

    /// The pods on a node that need the volume, as their claims say: what led to an attachment is known of them, while the
    /// volume itself may be seen later.
    fn users(&self, node: &str, volume: &str) -> Vec<Arc<Pod>> {
        let is_bound = |pod: &Pod, claim: &str| {
            let claim = self.claims.get(&pod.namespace().unwrap_or_default(), claim);
            claim.is_some_and(|claim| claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) == Some(volume))
        };
        let uses = |pod: &Arc<Pod>| !pod::is_terminal(pod) && claims_of(pod).iter().any(|claim| is_bound(pod, claim));
        self.pods.get(node).into_iter().filter(uses).collect()
    }

    /// Tells the pods that wait for it what became of an attachment.
    fn tell(&self, old: &VolumeAttachment, new: &VolumeAttachment) {
        let attached = |one: &VolumeAttachment| one.status.as_ref().is_some_and(|status| status.attached);
        let problem = |one: &VolumeAttachment| one.status.as_ref().and_then(|status| status.attach_error.clone());
        let name = new.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        let (kind, reason, message) = match problem(new) {
            _ if attached(new) && !attached(old) => {
                let message = format!("AttachVolume.Attach succeeded for volume {name:?} ");
                (EventType::Normal, "SuccessfulAttachVolume", message)
            }
            Some(why) if problem(old).as_ref() != Some(&why) => {
                let why = why.message.unwrap_or_default();
                let message = format!("AttachVolume.Attach failed for volume {name:?} : {why}");
                (EventType::Warning, "FailedAttachVolume", message)
            }
            _ => return,
        };
        for pod in self.users(&new.spec.node_name, name) {
            self.recorder.event(&*pod, kind, reason, message.clone());
        }
    }

    /// Makes sure that no other node gets a volume that only one may have while it is being attached to this one.
    async fn reserve(
        &self,
        api: &Api<VolumeAttachment>,
        node: &str,
        attachment: &str,
        volume: &PersistentVolume,
    ) -> Result<Reserved, Error> {
        if is_shared(volume) {
            return Ok(Reserved::Yes);
        }
        let name = volume.name_any();
        let seen = |attachment: &str| self.attachments.get("", attachment).is_some();
        let mut begun = self.attaching.begin(&name, node, attachment, seen);
        if let Err(Held::Unseen(other)) = &begun
            && api.get_opt(other).await?.is_none()
        {
            self.attaching.forget(&name, other);
            begun = self.attaching.begin(&name, node, attachment, seen);
        }
        if begun.is_err() {
            self.waiting.lock().insert(node.to_owned());
            return Ok(Reserved::Unsure);
        }
        if self.is_taken(node, volume) {
            self.attaching.forget(&name, attachment);
            return Ok(Reserved::Taken);
        }
        Ok(Reserved::Yes)
    }

    /// Whether another node has the volume, which then must let go of it first; the pods that wait are told.
    fn is_taken(&self, node: &str, volume: &PersistentVolume) -> bool {
        let name = volume.name_any();
        let other = || {
            self.attachments.list().into_iter().find(|known| {
                known.spec.source.persistent_volume_name.as_ref() == Some(&name) && known.spec.node_name != node
            })
        };
        if other().is_none() {
            return false;
        }
        // Looked at again: whoever let go of it before we were among those who wait has woken nobody.
        self.waiting.lock().insert(node.to_owned());
        let Some(other) = other() else { return false };
        let holders: Vec<String> = self.users(&other.spec.node_name, &name).iter().map(|pod| pod.name_any()).collect();
        let why = if holders.is_empty() {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        } else {
            format!("Volume is already used by pod(s) {}", holders.join(", "))
        };
        for pod in self.users(node, &name) {
            let message = format!("Multi-Attach error for volume {name:?} {why}");
            self.recorder.event(&*pod, EventType::Warning, "FailedAttachVolume", message);
        }
        true
    }

    /// How long the kubelet has to unmount what nobody needs any more, zero when it may be detached now.
    fn time_to_unmount(&self, node: &str, attachment: &VolumeAttachment) -> Duration {
        let holder = match self.nodes.get("", node) {
            Some(node) => Holder::of(&node),
            None => self.gone.lock().get(node).cloned().unwrap_or_default(),
        };
        let volume = attachment.spec.source.persistent_volume_name.as_deref();
        let volume = volume.and_then(|name| self.volumes.get("", name));
        let source = volume.as_ref().and_then(|volume| volume.spec.as_ref()?.csi.as_ref());
        let name = source.map(|source| unique_name(&source.driver, &source.volume_handle));
        if !holder.may_have_mounted(name.as_deref()) {
            return Duration::ZERO;
        }
        let since = *self.unneeded.lock().entry(attachment.name_any()).or_insert_with(Instant::now);
        holder.time_to_unmount(since.elapsed())
    }

    /// Writes into the node's status what is attached to it.
    async fn report(&self, name: &str, there: &[Arc<VolumeAttachment>]) -> Result<(), Error> {
        let Some(node) = self.nodes.get("", name) else { return Ok(()) };
        let attached = there.iter().filter(|known| known.status.as_ref().is_some_and(|status| status.attached));
        let names: BTreeSet<String> = attached
            .filter_map(|known| {
                let volume = self.volumes.get("", known.spec.source.persistent_volume_name.as_deref()?)?;
                let source = volume.spec.as_ref()?.csi.clone()?;
                Some(unique_name(&source.driver, &source.volume_handle))
            })
            .collect();
        let list: Vec<AttachedVolume> =
            names.into_iter().map(|name| AttachedVolume { name, device_path: String::new() }).collect();
        let known = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
        if known == list {
            return Ok(());
        }
        // On top of what was seen: the kubelet may have begun to use a volume meanwhile.
        let metadata = json!({ "resourceVersion": node.metadata.resource_version });
        let patch = json!({ "metadata": metadata, "status": { "volumesAttached": list } });
        let api: Api<Node> = Api::all(self.client.clone());
        match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_named_by_what_they_join() {
        let name = attachment_name("vol", "csi.example.com", "n1");
        assert_eq!(name.len(), 4 + 64);
        assert_ne!(name, attachment_name("vol", "csi.example.com", "n2"));
        assert_eq!(unique_name("d", "h"), "kubernetes.io/csi/d^h");
    }
}

//! Attach/detach bookkeeping: a VolumeAttachment for every CSI volume that a node's pods need, and what is attached in
//! the node's status. The driver's own attacher does the work and says when it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Error, Index, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::protection::claims_of;
use crate::Context;
use crate::common::pod;
use crate::node::pods_by_node;

const NAME: &str = "attachdetach-controller";

struct Loop {
    client: Client,
    nodes: Informer<Node>,
    pods: Index<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    drivers: Informer<CSIDriver>,
    attachments: Informer<VolumeAttachment>,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let pods = context.informers.of::<Pod>();
    let this = Arc::new(Loop {
        client: context.client(NAME),
        nodes: context.informers.of(),
        pods: pods_by_node(&pods),
        claims: context.informers.of(),
        volumes: context.informers.of(),
        drivers: context.informers.of(),
        attachments: context.informers.of(),
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
    this.attachments
        .on_change(move |change| handler.queue.add(ObjectKey::new("", change.object().spec.node_name.clone())));
    // A claim that was bound late has pods that wait.
    let (handler, waiting) = (this.clone(), pods.clone());
    this.claims.on_change(move |change| {
        let claim = change.object();
        for pod in waiting.list_in(&claim.namespace().unwrap_or_default()) {
            if !pod::node(&pod).is_empty() && claims_of(&pod).contains(&claim.name_any()) {
                handler.queue.add(ObjectKey::new("", pod::node(&pod)));
            }
        }
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

fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

impl Loop {
    /// By the attachment's name: the volume.
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
        let wanted = if self.nodes.get("", node).is_some() { self.wanted(node) } else { BTreeMap::new() };
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let there: Vec<_> = self.attachments.list().into_iter().filter(|known| known.spec.node_name == node).collect();
        for (name, volume) in &wanted {
            if there.iter().any(|known| known.name_any() == *name) {
                continue;
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
            match api.create(&PostParams::default(), &attachment).await {
                Err(error) if !write::is_already_exists(&error) => return Err(error.into()),
                _ => {}
            }
        }
        for unneeded in
            there.iter().filter(|known| known.name_any().starts_with("csi-") && !wanted.contains_key(&known.name_any()))
        {
            write::delete(&api, &**unneeded, None).await?;
        }
        self.report(node, &there).await?;
        Ok(Action::Done)
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
        let patch = json!({ "status": { "volumesAttached": list } });
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

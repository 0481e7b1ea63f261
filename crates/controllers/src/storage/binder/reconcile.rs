//! The loop of the binder. One worker: two claims must not reach for the same volume at once.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue};
use k8s_openapi::api::core::v1::{
    Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
    PersistentVolumeStatus, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PostParams;
use kube::{Client, Resource, ResourceExt};

use super::plan::{self, ClaimStep, Seen, Told, VolumeStep};
use crate::Context;
use crate::common::pod;
use crate::storage::protection::claims_of;

const NAME: &str = "persistent-volume-binder";
const COMPONENT: &str = "persistentvolume-controller";
/// A claim that waits for pods is looked at again after this time: nothing of its own changes when they come.
const WHILE_WAITING: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Claim(ObjectKey),
    Volume(String),
}

struct Reconciler {
    client: Client,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    queue: WorkQueue<Key>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        claims: context.informers.of(),
        volumes: context.informers.of(),
        classes: context.informers.of(),
        nodes: context.informers.of(),
        pods: context.informers.of(),
        queue: context.queue("volumes"),
    });
    let promised = this.volumes.index("claim", |volume| {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
        reference
            .name
            .map(|name| ObjectKey::new(reference.namespace.unwrap_or_default(), name).to_string())
            .into_iter()
            .collect()
    });
    let handler = this.clone();
    this.claims.on_change(move |change| {
        let claim = change.object();
        let key = ObjectKey::of(&**claim);
        if let Some(name) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) {
            handler.queue.add(Key::Volume(name));
        }
        // One that went while it was being bound never got to name its volume.
        if matches!(change, Change::Deleted(_)) {
            for volume in promised.get(&key.to_string()) {
                handler.queue.add(Key::Volume(volume.name_any()));
            }
        }
        handler.queue.add(Key::Claim(key));
    });
    let handler = this.clone();
    this.volumes.on_change(move |change| {
        handler.queue.add(Key::Volume(change.object().name_any()));
        // A volume that is free, new or changed may be what a claim waits for.
        handler.wake_waiting();
    });
    let handler = this.clone();
    this.classes.on_change(move |_| handler.wake_waiting());

    let synced = this.clone();
    let ready = async move {
        synced.claims.synced().await;
        synced.volumes.synced().await;
        synced.classes.synced().await;
        synced.nodes.synced().await;
        synced.pods.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, COMPONENT, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move {
            match key {
                Key::Claim(key) => this.claim(&key).await,
                Key::Volume(name) => this.volume(&name).await,
            }
        }
    });
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

impl Reconciler {
    fn wake_waiting(&self) {
        for claim in self.claims.list().iter().filter(|claim| phase(claim) != "Bound") {
            self.queue.add(Key::Claim(ObjectKey::of(&**claim)));
        }
    }

    fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, told: &Told) {
        let kind = if told.warning { EventType::Warning } else { EventType::Normal };
        self.recorder.event(object, kind, told.reason, told.message.clone());
    }

    fn claims_in(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn claim(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::Done) };
        let node = claim.annotations().get(plan::SELECTED_NODE).and_then(|name| self.nodes.get("", name));
        let (volumes, classes) = (self.volumes.list(), self.classes.list());
        let waiting = || {
            let pods = self.pods.list_in(&key.namespace).into_iter();
            let waits = pods.filter(|pod| {
                pod::node(pod).is_empty() && !pod::is_terminal(pod) && claims_of(pod).contains(&key.name)
            });
            waits.map(|pod| pod.name_any()).collect()
        };
        let step = plan::claim(&claim, &Seen { volumes: &volumes, classes: &classes, node, pods: &waiting });
        let api = self.claims_in(&key.namespace);
        match step {
            ClaimStep::Bind(volume) => self.bind(&claim, &volume).await?,
            ClaimStep::Lost { reason, message } => {
                if phase(&claim) != "Lost" && !self.is_there(&claim).await? {
                    let status = PersistentVolumeClaimStatus {
                        phase: Some("Lost".into()),
                        access_modes: None,
                        capacity: None,
                        current_volume_attributes_class_name: None,
                        ..claim.status.clone().unwrap_or_default()
                    };
                    let lost = PersistentVolumeClaim { status: Some(status), ..(*claim).clone() };
                    api.replace_status(&key.name, &PostParams::default(), &lost).await?;
                    self.recorder.event(&*claim, EventType::Warning, reason, message);
                }
            }
            ClaimStep::TakeClass(class) => {
                let mut changed = (*claim).clone();
                changed.spec.get_or_insert_default().storage_class_name = Some(class);
                api.replace(&key.name, &PostParams::default(), &changed).await?;
            }
            ClaimStep::Pending { event, provisioner } => {
                if let Some(told) = &event {
                    self.tell(&*claim, told);
                }
                if let Some(provisioner) = provisioner {
                    self.ask_provisioner(&api, &claim, &provisioner).await?;
                }
                if event.is_some_and(|told| [plan::FIRST_CONSUMER, plan::POD_SCHEDULED].contains(&told.reason)) {
                    return Ok(Action::After(WHILE_WAITING));
                }
            }
        }
        Ok(Action::Done)
    }

    /// The claim's volume may exist, and the cache not know of it yet: then nothing is lost, and its coming is told.
    async fn is_there(&self, claim: &PersistentVolumeClaim) -> Result<bool, Error> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        if name.is_empty() || self.volumes.get("", name).is_some() {
            return Ok(false);
        }
        Ok(Api::<PersistentVolume>::all(self.client.clone()).get_opt(name).await?.is_some())
    }

    /// The claim that a volume's reference names. One that the cache does not know may have been made a moment ago, by
    /// whoever made the volume for it: the server is asked before the volume counts as released, and is deleted.
    async fn claim_of(
        &self,
        volume: &PersistentVolume,
        reference: &ObjectReference,
        key: &ObjectKey,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
        let claim = self.claims.get_key(key);
        let known = claim.as_ref().is_some_and(|claim| claim.metadata.uid == reference.uid);
        let promised = reference.uid.as_deref().unwrap_or_default().is_empty();
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if known || promised || matches!(phase, Some("Released" | "Failed")) {
            return Ok(claim);
        }
        Ok(self.claims_in(&key.namespace).get_opt(&key.name).await?.map(Arc::new))
    }

    async fn ask_provisioner(
        &self,
        api: &Api<PersistentVolumeClaim>,
        claim: &PersistentVolumeClaim,
        provisioner: &str,
    ) -> Result<(), Error> {
        if claim.annotations().get(plan::PROVISIONER).is_some_and(|known| known == provisioner) {
            return Ok(());
        }
        let mut changed = claim.clone();
        for key in [plan::PROVISIONER, plan::PROVISIONER_BETA] {
            changed.annotations_mut().insert(key.into(), provisioner.into());
        }
        api.replace(&claim.name_any(), &PostParams::default(), &changed).await?;
        Ok(())
    }

    /// Four writes, each of which may have been done by an earlier attempt: the volume's promise, its phase, the claim's
    /// volume, its phase. A crash in between leaves something that the next attempt completes.
    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), Error> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let name = volume.name_any();
        let mut volume = volume.clone();
        let spec = volume.spec.get_or_insert_default();
        if spec.claim_ref.as_ref().is_none_or(|known| known.uid != claim.metadata.uid) {
            let by_us = spec.claim_ref.is_none();
            spec.claim_ref = Some(ObjectReference {
                kind: Some("PersistentVolumeClaim".into()),
                api_version: Some("v1".into()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                ..ObjectReference::default()
            });
            if by_us {
                volume.annotations_mut().insert(plan::BOUND_BY_CONTROLLER.into(), "yes".into());
            }
            volume = volumes.replace(&name, &PostParams::default(), &volume).await?;
        }
        let volume = self.set_phase(&volumes, volume, "Bound").await?;

        let claims = self.claims_in(&claim.namespace().unwrap_or_default());
        let mut claim = claim.clone();
        let taken = claim.spec.get_or_insert_default().volume_name.clone().unwrap_or_default();
        if taken.is_empty() || !claim.annotations().contains_key(plan::BIND_COMPLETED) {
            if taken.is_empty() {
                claim.spec.get_or_insert_default().volume_name = Some(name);
                claim.annotations_mut().insert(plan::BOUND_BY_CONTROLLER.into(), "yes".into());
            }
            claim.annotations_mut().insert(plan::BIND_COMPLETED.into(), "yes".into());
            claim = claims.replace(&claim.name_any(), &PostParams::default(), &claim).await?;
        }
        let before = claim.status.clone().unwrap_or_default();
        let has = volume.spec.unwrap_or_default();
        let first = before.phase.as_deref() != Some("Bound");
        let status = PersistentVolumeClaimStatus {
            phase: Some("Bound".into()),
            access_modes: has.access_modes,
            // Later changes of the size belong to whoever resizes.
            capacity: if first { has.capacity } else { before.capacity.clone() },
            current_volume_attributes_class_name: if first {
                has.volume_attributes_class_name
            } else {
                before.current_volume_attributes_class_name.clone()
            },
            ..before.clone()
        };
        if status != before {
            claim.status = Some(status);
            claims.replace_status(&claim.name_any(), &PostParams::default(), &claim).await?;
        }
        Ok(())
    }

    async fn set_phase(
        &self,
        volumes: &Api<PersistentVolume>,
        mut volume: PersistentVolume,
        phase: &str,
    ) -> Result<PersistentVolume, Error> {
        let status = volume.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some(phase) {
            return Ok(volume);
        }
        volume.status =
            Some(PersistentVolumeStatus { phase: Some(phase.into()), message: None, reason: None, ..status });
        Ok(volumes.replace_status(&volume.name_any(), &PostParams::default(), &volume).await?)
    }

    async fn volume(&self, name: &str) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get("", name) else { return Ok(Action::Done) };
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
        let key =
            ObjectKey::new(reference.namespace.clone().unwrap_or_default(), reference.name.clone().unwrap_or_default());
        let claim = self.claim_of(&volume, &reference, &key).await?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        match plan::volume(&volume, claim.as_deref()) {
            VolumeStep::WakeClaim => {
                self.queue.add(Key::Claim(key));
                // One that is promised is there for whoever it is promised to.
                if reference.uid.as_deref().unwrap_or_default().is_empty() {
                    self.set_phase(&volumes, (*volume).clone(), "Available").await?;
                }
            }
            VolumeStep::Unbind => {
                let mut free = (*volume).clone();
                let ours = free.annotations_mut().remove(plan::BOUND_BY_CONTROLLER).is_some();
                let spec = free.spec.get_or_insert_default();
                if ours {
                    spec.claim_ref = None;
                } else if let Some(reference) = &mut spec.claim_ref {
                    reference.uid = None;
                }
                volumes.replace(name, &PostParams::default(), &free).await?;
            }
            VolumeStep::Phase { phase, told } => {
                if let Some(told) = told {
                    self.tell(&*volume, &told);
                }
                self.set_phase(&volumes, (*volume).clone(), phase).await?;
            }
        }
        Ok(Action::Done)
    }
}

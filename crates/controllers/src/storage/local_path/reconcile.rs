//! The loop of the provisioner: claims get a folder and a volume, released volumes lose both, and folders that an interrupted
//! attempt left are removed.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use ferry_semantics::local_volumes::name_for;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use super::ACCOUNT as NAME;
use super::folders::{Emptied, Folders};
use super::plan::{self, ClaimStep, NodeState, VolumeStep};
use crate::Context;

const WORKERS: usize = 16;
/// What a node refused is tried again after this time: nothing tells that its disk has room, or that a pod has ended.
const AGAIN: Duration = Duration::from_secs(30);
/// A node that removes many files is asked again.
const WHILE_REMOVING: Duration = Duration::from_secs(5);
/// A node that has enough to do is asked after this time.
const FOR_A_TURN: Duration = Duration::from_secs(1);
/// An empty folder that was asked for a moment ago may get its volume until then.
const SETTLED: Duration = Duration::from_secs(150);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Claim(ObjectKey),
    Volume(String),
    /// What an interrupted attempt left on a node.
    Node(String),
}

struct Reconciler {
    client: kube::Client,
    folders: Folders,
    recorder: Recorder,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    queue: WorkQueue<Key>,
    serves: bool,
}

pub(crate) fn start(context: &Context) {
    let Some(serves) = context.config.local_path else { return };
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        folders: Folders::new(client.clone()),
        client,
        claims: context.informers.of(),
        volumes: context.informers.of(),
        classes: context.informers.of(),
        nodes: context.informers.of(),
        queue: context.queue("local_path"),
        serves,
    });
    let handler = this.clone();
    this.claims.on_change(move |change| match change {
        // The folder may be there, and the volume could not be written.
        Change::Deleted(claim) => {
            if let Some(node) = plan::attempted_on(claim) {
                handler.queue.add_after(Key::Node(node.to_owned()), AGAIN);
            }
        }
        _ if plan::asks(change.object()) => handler.queue.add(Key::Claim(ObjectKey::of(&**change.object()))),
        _ => {}
    });
    let handler = this.clone();
    this.volumes.on_change(move |change| handler.queue.add(Key::Volume(change.object().name_any())));
    let handler = this.clone();
    this.classes.on_change(move |change| {
        if let Change::Added(class) = change {
            handler.wake_claims_of(&class.name_any());
        }
    });
    let handler = this.clone();
    this.nodes.on_change(move |change| {
        let node = change.object();
        let ready = match change {
            Change::Added(node) => plan::is_ready(node),
            Change::Modified { old, new } => plan::is_ready(new) && !(plan::is_ready(old) && plan::serves(old)),
            Change::Deleted(_) => false,
        };
        if ready && plan::serves(node) {
            handler.queue.add(Key::Node(node.name_any()));
        }
        if ready || matches!(change, Change::Deleted(_)) {
            handler.wake_volumes_on(&node.name_any());
        }
    });

    let synced = this.clone();
    let ready = async move {
        synced.claims.synced().await;
        synced.volumes.synced().await;
        synced.classes.synced().await;
        synced.nodes.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move {
            match key {
                Key::Claim(key) => this.claim(&key).await,
                Key::Volume(name) => this.volume(&name).await,
                Key::Node(name) => this.node(&name).await,
            }
        }
    });
}

impl Reconciler {
    fn wake_claims_of(&self, class: &str) {
        for claim in self.claims.list().iter().filter(|claim| plan::asks(claim) && plan::class_of(claim) == class) {
            self.queue.add(Key::Claim(ObjectKey::of(&**claim)));
        }
    }

    fn wake_volumes_on(&self, node: &str) {
        for volume in self.volumes.list().iter().filter(|volume| plan::node_of(volume) == Some(node)) {
            self.queue.add(Key::Volume(volume.name_any()));
        }
    }

    async fn claim(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::Done) };
        let class = self.classes.get("", plan::class_of(&claim));
        let step = plan::claim(&claim, class.as_deref(), |name| self.nodes.get("", name), self.serves);
        let (node, name, bytes) = match step {
            ClaimStep::Ignore => return Ok(Action::Done),
            ClaimStep::Refuse(why) => {
                self.failed(&claim, &why);
                return Ok(Action::Done);
            }
            ClaimStep::Reschedule(why) => return self.reschedule(&claim, &why).await,
            ClaimStep::Provision { node, name, bytes } => (node, name, bytes),
        };
        let Some(class) = class.filter(|_| self.volumes.get("", &name).is_none()) else { return Ok(Action::Done) };
        let Some(_turn) = self.folders.turn(&node) else { return Ok(Action::After(FOR_A_TURN)) };
        let told = format!("External provisioner is provisioning volume for claim \"{key}\"");
        self.recorder.event(&*claim, EventType::Normal, "Provisioning", told);
        let path = match self.folders.make(&node, &name, bytes).await {
            Ok(path) if plan::is_path(&path, &name) => path,
            Ok(_) => return self.reschedule(&claim, &format!("node {node} names a path that is no volume's")).await,
            Err(refused) => {
                let why = format!("node {node}: {}", refused.why);
                if refused.is_unclear() {
                    self.queue.add_after(Key::Node(node.clone()), AGAIN);
                }
                if refused.is_full() || refused.is_unclear() {
                    return self.reschedule(&claim, &why).await;
                }
                self.failed(&claim, &why);
                return Ok(Action::After(AGAIN));
            }
        };
        let volume = plan::volume_for(&claim, &class, &node, &name, &path);
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        match volumes.create(&PostParams::default(), &volume).await {
            Ok(_) => {
                let told = format!("Successfully provisioned volume {name}");
                self.recorder.event(&*claim, EventType::Normal, "ProvisioningSucceeded", told);
                Ok(Action::Done)
            }
            // Of an attempt before this one. The binder does the rest.
            Err(error) if write::is_already_exists(&error) => Ok(Action::Done),
            Err(error) => {
                // Where the claim goes before the next attempt, its folder is looked for.
                self.queue.add_after(Key::Node(node), AGAIN);
                self.failed(&claim, &format!("the volume could not be written: {}", write::short(&error)));
                Err(error.into())
            }
        }
    }

    fn failed(&self, claim: &PersistentVolumeClaim, why: &str) {
        let class = plan::class_of(claim);
        let told = format!("failed to provision volume with StorageClass {class:?}: {why}");
        self.recorder.event(claim, EventType::Warning, "ProvisioningFailed", told);
    }

    /// Takes the chosen node back, so that the scheduler chooses again.
    async fn reschedule(&self, claim: &PersistentVolumeClaim, why: &str) -> Result<Action, Error> {
        self.failed(claim, why);
        let patch = json!({ "metadata": {
            "resourceVersion": claim.metadata.resource_version, "annotations": { plan::SELECTED_NODE: null },
        } });
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        match claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(Action::Done),
            // Its change or its end brings it back.
            Err(error) if write::is_not_found(&error) || write::is_conflict(&error) => Ok(Action::Done),
            Err(error) => Err(error.into()),
        }
    }

    fn state(&self, node: &str) -> NodeState {
        match self.nodes.get("", node) {
            None => NodeState::Gone,
            Some(node) if plan::is_ready(&node) => NodeState::Ready,
            Some(_) => NodeState::Away,
        }
    }

    async fn volume(&self, name: &str) -> Result<Action, Error> {
        let Some(known) = self.volumes.get("", name) else { return Ok(Action::Done) };
        if plan::volume(&known, |node| self.state(node)) == VolumeStep::Leave {
            return Ok(Action::Done);
        }
        // What is removed is gone for good: the server is asked whether that is still wanted.
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let Some(volume) = volumes.get_opt(name).await? else { return Ok(Action::Done) };
        match plan::volume(&volume, |node| self.state(node)) {
            VolumeStep::Leave => Ok(Action::Done),
            VolumeStep::LetGo => self.let_go(&volumes, volume).await,
            VolumeStep::Tell(why) => {
                self.recorder.event(&volume, EventType::Warning, "VolumeFailedDelete", why);
                Ok(Action::Done)
            }
            VolumeStep::Remove { node } => {
                let Some(turn) = self.folders.turn(&node) else { return Ok(Action::After(FOR_A_TURN)) };
                let removed = self.folders.remove(&node, name).await;
                drop(turn);
                match removed {
                    Ok(true) => self.delete(&volumes, volume).await,
                    Ok(false) => Ok(Action::After(WHILE_REMOVING)),
                    Err(refused) => {
                        let why = format!("node {node}: {}", refused.why);
                        self.recorder.event(&volume, EventType::Warning, "VolumeFailedDelete", why);
                        Ok(Action::After(AGAIN))
                    }
                }
            }
        }
    }

    async fn delete(&self, volumes: &Api<PersistentVolume>, volume: PersistentVolume) -> Result<Action, Error> {
        let name = volume.name_any();
        if volume.metadata.deletion_timestamp.is_none() {
            let preconditions = Some(Preconditions { uid: volume.uid(), resource_version: None });
            let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
            match volumes.delete(&name, &parameters).await {
                Ok(_) => {}
                Err(error) if write::is_not_found(&error) => return Ok(Action::Done),
                Err(error) => return Err(error.into()),
            }
        }
        match volumes.get_opt(&name).await? {
            Some(left) if left.uid() == volume.uid() => self.let_go(volumes, left).await,
            _ => Ok(Action::Done),
        }
    }

    /// Takes the finalizer away. One that is not being deleted goes on without: its next reconciliation is another's.
    async fn let_go(&self, volumes: &Api<PersistentVolume>, mut volume: PersistentVolume) -> Result<Action, Error> {
        volume.finalizers_mut().retain(|one| one != plan::FINALIZER);
        match volumes.replace(&volume.name_any(), &PostParams::default(), &volume).await {
            Ok(_) => Ok(Action::Done),
            Err(error) if write::is_not_found(&error) => Ok(Action::Done),
            Err(error) => Err(error.into()),
        }
    }

    /// Folders without a volume that nobody has written to. One with data in it is never touched here: its volume may have
    /// been deleted to keep the data.
    async fn node(&self, node: &str) -> Result<Action, Error> {
        if self.state(node) != NodeState::Ready {
            return Ok(Action::Done);
        }
        let Some(_turn) = self.folders.turn(node) else { return Ok(Action::After(FOR_A_TURN)) };
        let empty = match self.folders.empty(node).await {
            Ok(empty) => empty,
            Err(refused) => {
                tracing::debug!(node, "its volumes are not known: {}", refused.why);
                return Ok(if refused.is_unclear() { Action::After(AGAIN) } else { Action::Done });
            }
        };
        let is_left = |name: &String| plan::is_left(self.volumes.get("", name).as_deref(), node);
        let left: Vec<String> = empty.into_iter().filter(is_left).collect();
        if left.is_empty() {
            return Ok(Action::Done);
        }
        let on_node = |claim: &Arc<PersistentVolumeClaim>| {
            claim.annotations().get(plan::SELECTED_NODE).is_some_and(|selected| selected == node)
        };
        let claims = self.claims.list();
        let at_work: Vec<String> =
            claims.iter().filter(|claim| on_node(claim)).filter_map(|claim| name_for(&claim.uid()?)).collect();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut action = Action::Done;
        for name in left.iter().filter(|name| !at_work.contains(name)) {
            if !plan::is_left(volumes.get_opt(name).await?.as_ref(), node) {
                continue;
            }
            match self.folders.remove_empty(node, name).await {
                Ok(Emptied::Done) => {}
                Ok(Emptied::NotYet) => action = Action::After(SETTLED),
                Err(refused) => {
                    tracing::debug!(node, name, "the folder that nobody has is not removed: {}", refused.why);
                }
            }
        }
        Ok(action)
    }
}

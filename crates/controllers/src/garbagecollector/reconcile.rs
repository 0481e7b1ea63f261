//! The loop of the garbage collector: one key is one object's uid.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::discovery::ServerResource;
use ferry_client::{Api, Change, Error, EventType, Object, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::graph::{FOREGROUND, Graph, Node, ORPHAN};
use super::monitor;
use super::plan::{self, Dependent, Owner, Plan};
use super::sweep::Sweeps;
use crate::Context;

const NAME: &str = "generic-garbage-collector";
const COMPONENT: &str = "garbage-collector-controller";
const WORKERS: usize = 20;

type Metadata = PartialObjectMeta<DynamicObject>;

pub(super) struct Collector {
    client: Client,
    recorder: Recorder,
    graph: Mutex<Graph>,
    resources: RwLock<Vec<ServerResource>>,
    queue: WorkQueue<String>,
    sweeps: Sweeps,
    /// Set once every watch has told what exists: before that, an absent owner may only be unseen.
    complete: watch::Sender<bool>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let collector = Arc::new(Collector {
        client: client.clone(),
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        graph: Mutex::default(),
        resources: RwLock::default(),
        queue: context.queue("garbage_collector_attempt_to_delete"),
        sweeps: Sweeps::default(),
        complete: watch::Sender::new(false),
    });
    monitor::start_in(context, client, collector.clone());
    let mut complete = collector.complete.subscribe();
    let ready = async move {
        let _ = complete.wait_for(|complete| *complete).await;
    };
    let queue = collector.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |uid: String| {
        let collector = collector.clone();
        async move { collector.reconcile(&uid).await }
    });
}

impl Collector {
    pub(super) fn changed(&self, resource: &Arc<ServerResource>, change: &Change<dyn Object>) {
        let meta = change.object().object_meta();
        let Some(uid) = &meta.uid else { return };
        // Most changes, such as renewals of leases, change nothing that the graph knows.
        if let Change::Modified { old, .. } = change {
            let old = old.object_meta();
            if old.owner_references == meta.owner_references
                && old.finalizers == meta.finalizers
                && old.deletion_timestamp == meta.deletion_timestamp
            {
                return;
            }
        }
        let affected = match change {
            Change::Deleted(_) => self.graph.lock().remove(uid),
            _ => self.graph.lock().apply(uid, Node::new(resource, meta)),
        };
        for uid in affected {
            self.queue.add(uid);
        }
    }

    pub(super) fn set_resources(&self, resources: impl Iterator<Item = ServerResource>) {
        *self.resources.write() = resources.collect();
    }

    pub(super) fn complete(&self) {
        if !self.complete.send_replace(true) {
            for uid in self.graph.lock().delete_candidates() {
                self.queue.add(uid);
            }
        }
    }

    async fn reconcile(&self, uid: &str) -> Result<Action, Error> {
        let Some(node) = self.graph.lock().get(uid).cloned() else { return Ok(Action::Done) };
        if node.deleting && !node.foreground && !node.orphan {
            return Ok(Action::Done);
        }
        let api = self.api(&node.resource, &node.namespace);
        // What is deleted is decided on the newest state, never on what a watch may have told late.
        let Some(latest) = api.get_opt(&node.name).await?.map(|object| object.metadata) else {
            return Ok(Action::Done);
        };
        if latest.uid.as_deref() != Some(uid) {
            return Ok(Action::Done);
        }
        let mut owners = Vec::new();
        for reference in latest.owner_references.iter().flatten() {
            owners.push(self.look_at_owner(uid, &node, reference).await?);
        }
        let dependents = self.graph.lock().dependents(uid);
        let plan = plan::plan(&latest, &owners, &self.as_seen_by(uid, &dependents));
        tracing::trace!(uid, name = node.name, kind = node.resource.resource.kind, ?plan, "garbage collection");
        match plan {
            Plan::Nothing => {}
            Plan::Delete(policy) => self.delete(&api, &latest, policy).await?,
            Plan::BreakCircle => {
                let freed = latest.owner_references.iter().flatten().cloned().map(|mut reference| {
                    reference.block_owner_deletion = Some(false);
                    reference
                });
                let patched = patch_owners(&api, &latest, freed.collect()).await?;
                self.delete(&api, patched.as_ref().unwrap_or(&latest), PropagationPolicy::Foreground).await?;
            }
            Plan::Keep(references) => {
                patch_owners(&api, &latest, references).await?;
            }
            Plan::Wait => dependents.into_iter().for_each(|dependent| self.queue.add(dependent)),
            Plan::Unblock => remove_finalizer(&api, &latest, FOREGROUND).await?,
            Plan::Orphan => {
                for dependent in &dependents {
                    self.orphan(dependent, uid).await?;
                }
                self.orphan_unseen(&node, uid).await?;
                remove_finalizer(&api, &latest, ORPHAN).await?;
            }
        }
        Ok(Action::Done)
    }

    pub(super) fn resources(&self) -> Vec<ServerResource> {
        self.resources.read().clone()
    }

    /// Of the whole cluster where the namespace is empty.
    pub(super) fn api(&self, resource: &ServerResource, namespace: &str) -> Api<Metadata> {
        if resource.namespaced && !namespace.is_empty() {
            Api::namespaced_with(self.client.clone(), namespace, &resource.resource)
        } else {
            Api::all_with(self.client.clone(), &resource.resource)
        }
    }

    /// How a group and version are served, where an APIService says so.
    pub(super) async fn api_service(&self, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        match self.client.request(http::Request::get(path).body(Vec::new())?).await {
            Ok(service) => Ok(Some(service)),
            Err(error) if write::is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn as_seen_by(&self, owner: &str, dependents: &[String]) -> Vec<Dependent> {
        let graph = self.graph.lock();
        let seen = dependents.iter().filter_map(|uid| graph.get(uid)).map(|node| Dependent {
            blocks: node
                .owners
                .iter()
                .any(|reference| reference.uid == owner && reference.block_owner_deletion == Some(true)),
            foreground: node.foreground,
        });
        seen.collect()
    }

    /// Whether the owner exists where the reference says. Known objects are believed: when they go, the graph tells.
    async fn look_at_owner(&self, uid: &str, node: &Node, reference: &OwnerReference) -> Result<Owner, Error> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        let resource = self
            .resources
            .read()
            .iter()
            .find(|known| known.resource.kind == reference.kind && known.resource.group == group)
            .cloned();
        self.tell_of_elsewhere(uid, node, reference);
        let Some(resource) = resource else {
            return Err(format!("owner {} {} is of an unknown kind", reference.api_version, reference.kind).into());
        };
        // An object of the cluster cannot have an owner in a namespace: nobody knows which, so that it stays.
        if resource.namespaced && node.namespace.is_empty() {
            return Ok(Owner::Solid);
        }
        let namespace = if resource.namespaced { node.namespace.as_str() } else { "" };
        let known = self.graph.lock().get(&reference.uid).filter(|owner| owner.is(reference, &node.namespace)).cloned();
        let known = known.filter(|owner| owner.resource.resource == resource.resource).map(|owner| owner.foreground);
        match known {
            Some(true) => return Ok(Owner::Waiting),
            Some(false) => return Ok(Owner::Solid),
            None => {}
        }
        let there = self.api(&resource, namespace).get_opt(&reference.name).await?;
        Ok(match there {
            Some(owner) if owner.metadata.uid.as_deref() == Some(&reference.uid) => {
                let waits = owner.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND);
                if waits && owner.metadata.deletion_timestamp.is_some() { Owner::Waiting } else { Owner::Solid }
            }
            _ => Owner::Absent,
        })
    }

    /// An object whose owner is in another namespace will go: owners are looked for in its own. Whoever wrote that should
    /// hear of it.
    fn tell_of_elsewhere(&self, uid: &str, node: &Node, reference: &OwnerReference) {
        let elsewhere = self
            .graph
            .lock()
            .get(&reference.uid)
            .is_some_and(|owner| !owner.namespace.is_empty() && owner.namespace != node.namespace);
        if !elsewhere {
            return;
        }
        let OwnerReference { api_version, kind, name, uid: owner, .. } = reference;
        let namespace = &node.namespace;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {owner}] does not exist in namespace {namespace:?}"
        );
        let regarding = ObjectReference {
            api_version: Some(node.resource.resource.api_version.clone()),
            kind: Some(node.resource.resource.kind.clone()),
            namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(node.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.recorder.event_for(regarding, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }

    async fn delete(&self, api: &Api<Metadata>, meta: &ObjectMeta, policy: PropagationPolicy) -> Result<(), Error> {
        let parameters = DeleteParams {
            propagation_policy: Some(policy),
            // The decision holds for exactly this state.
            preconditions: Some(Preconditions {
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        match api.delete(meta.name.as_deref().unwrap_or_default(), &parameters).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Dependents that no watch has told of yet would lose their owner and be collected: all there is is asked for them.
    async fn orphan_unseen(&self, owner: &Node, uid: &str) -> Result<(), Error> {
        let dependents = self.sweeps.dependents(self, owner, uid).await?;
        for dependent in dependents {
            let node = Node::new(&dependent.resource, &dependent.meta);
            self.orphan_at(&node, dependent.meta.uid.as_deref().unwrap_or_default(), uid).await?;
        }
        Ok(())
    }

    /// Takes the owner out of a dependent's references.
    async fn orphan(&self, dependent: &str, owner: &str) -> Result<(), Error> {
        let Some(node) = self.graph.lock().get(dependent).cloned() else { return Ok(()) };
        self.orphan_at(&node, dependent, owner).await
    }

    async fn orphan_at(&self, node: &Node, dependent: &str, owner: &str) -> Result<(), Error> {
        let api = self.api(&node.resource, &node.namespace);
        let Some(latest) = api.get_opt(&node.name).await?.map(|object| object.metadata) else { return Ok(()) };
        if latest.uid.as_deref() != Some(dependent) {
            return Ok(());
        }
        let references = latest.owner_references.clone().unwrap_or_default();
        if references.iter().any(|reference| reference.uid == owner) {
            let rest = references.into_iter().filter(|reference| reference.uid != owner).collect();
            patch_owners(&api, &latest, rest).await?;
        }
        Ok(())
    }
}

/// None when the object is gone.
async fn patch_owners(
    api: &Api<Metadata>,
    meta: &ObjectMeta,
    references: Vec<OwnerReference>,
) -> Result<Option<ObjectMeta>, Error> {
    let references = if references.is_empty() { Value::Null } else { json!(references) };
    let patch = json!({ "metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": references,
    } });
    patch_meta(api, meta, patch).await
}

async fn remove_finalizer(api: &Api<Metadata>, meta: &ObjectMeta, finalizer: &str) -> Result<(), Error> {
    let rest: Vec<&String> = meta.finalizers.iter().flatten().filter(|known| *known != finalizer).collect();
    let patch = json!({ "metadata": { "resourceVersion": meta.resource_version, "finalizers": rest } });
    patch_meta(api, meta, patch).await.map(|_| ())
}

async fn patch_meta(api: &Api<Metadata>, meta: &ObjectMeta, patch: Value) -> Result<Option<ObjectMeta>, Error> {
    let name = meta.name.as_deref().unwrap_or_default();
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(patched) => Ok(Some(patched.metadata)),
        Err(error) if write::is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

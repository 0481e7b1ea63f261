//! The loop of Namespace.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Clock, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::PostParams;

use super::{contents, plan};
use crate::Context;

const NAME: &str = "namespace-controller";
const WORKERS: usize = 10;
const FINALIZER: &str = "kubernetes";
/// Until what waits for other finalizers is looked at again; each look costs a list per resource.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

struct Reconciler {
    client: Client,
    namespaces: Informer<Namespace>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let (namespaces, pods) = (context.informers.of::<Namespace>(), context.informers.of::<Pod>());
    let this = Arc::new(Reconciler {
        client: context.client(NAME),
        namespaces: namespaces.clone(),
        clock: context.config.clock.clone(),
        queue: context.queue("namespace"),
    });

    let handler = this.clone();
    namespaces.on_change(move |change| {
        let namespace = change.object();
        if !matches!(change, Change::Deleted(_)) && namespace.metadata.deletion_timestamp.is_some() {
            handler.queue.add(ObjectKey::of(&**namespace));
        }
    });
    // Deletion waits for pods first: the last one to go is worth a look at once.
    let handler = this.clone();
    pods.on_change(move |change| {
        let Change::Deleted(pod) = change else { return };
        let name = pod.metadata.namespace.clone().unwrap_or_default();
        let going = handler.namespaces.get("", &name).is_some_and(|known| known.metadata.deletion_timestamp.is_some());
        if going {
            handler.queue.add(ObjectKey::new("", name));
        }
    });

    let ready = async move { namespaces.synced().await };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// Whether somebody else's finalizer keeps it when ours is gone.
fn is_held_otherwise(namespace: &Namespace) -> bool {
    let own = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
    own.iter().any(|finalizer| finalizer != FINALIZER)
        || namespace.metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty())
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        if self.namespaces.get_key(key).is_none() {
            return Ok(Action::Done);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        // Deletion is final: decide on what the server says, not on the cache.
        let Some(mut namespace) = api.get_opt(&key.name).await? else { return Ok(Action::Done) };
        let held =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_some_and(|list| !list.is_empty());
        if namespace.metadata.deletion_timestamp.is_none() || !held {
            return Ok(Action::Done);
        }
        let status = namespace.status.clone().unwrap_or_default();
        if status.phase.as_deref() != Some("Terminating") {
            namespace.status.get_or_insert_default().phase = Some("Terminating".into());
            namespace = api.replace_status(&key.name, &PostParams::default(), &namespace).await?;
        }
        let started = namespace.metadata.deletion_timestamp.as_ref().map(|time| time.0).unwrap_or_default();
        let age = Duration::try_from(self.clock.seconds().duration_since(started)).unwrap_or_default();
        let (outcome, grace) = contents::delete(&self.client, &key.name, age).await?;
        let old = namespace.status.clone().unwrap_or_default();
        let new = plan::status(&old, &outcome, &self.clock.time());
        // One that goes in this very moment need not say that it is empty.
        let goes = outcome.is_clean() && old.conditions.is_none() && !is_held_otherwise(&namespace);
        if new != old && !goes {
            namespace.status = Some(new);
            namespace = api.replace_status(&key.name, &PostParams::default(), &namespace).await?;
        }
        if outcome.is_clean() {
            return self.finalize(&api, namespace).await;
        }
        let wait = if grace.is_zero() { age / 4 } else { grace / 2 };
        Ok(Action::After(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)))
    }

    async fn finalize(&self, api: &Api<Namespace>, mut namespace: Namespace) -> Result<Action, Error> {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        match api.replace_subresource("finalize", &name, &PostParams::default(), &namespace).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

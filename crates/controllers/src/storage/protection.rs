//! Protection of claims in use by pods and of volumes in use by claims: a finalizer holds them until nobody needs them.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Client, ResourceExt};

use super::ephemeral;
use crate::Context;
use crate::common::pod;

const CLAIMS: &str = "pvc-protection-controller";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUMES: &str = "pv-protection-controller";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The names of the claims that a pod's volumes come from.
pub(super) fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| {
        let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        named.or_else(|| volume.ephemeral.as_ref().map(|_| ephemeral::claim_name(pod, &volume.name)))
    });
    names.collect()
}

/// A pod holds its claims from when it has a node until it has ended there.
fn holds(pod: &Pod) -> bool {
    !pod::node(pod).is_empty() && !pod::is_terminal(pod)
}

struct Claims {
    client: Client,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
}

pub(crate) fn start_claims(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("pvcprotection");
    let this = Arc::new(Claims {
        client: context.client(CLAIMS),
        claims: context.informers.of(),
        pods: context.informers.of(),
    });
    let keys = queue.clone();
    this.claims.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let keys = queue.clone();
    this.pods.on_change(move |change| {
        let pod = change.object();
        for name in claims_of(pod) {
            keys.add(ObjectKey::new(pod.namespace().unwrap_or_default(), name));
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.claims.synced().await;
        synced.pods.synced().await;
    };
    controller::run(&context.tasks, CLAIMS, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// What to do with a finalizer.
#[derive(Debug, PartialEq)]
pub(super) enum Guard {
    Leave,
    Add,
    /// Once nobody uses the object.
    Remove,
}

pub(super) fn guard(finalizers: &[String], finalizer: &str, going: bool) -> Guard {
    match (going, finalizers.iter().any(|known| known == finalizer)) {
        (true, true) => Guard::Remove,
        (false, false) => Guard::Add,
        _ => Guard::Leave,
    }
}

impl Claims {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::Done) };
        let mut changed = (*claim).clone();
        let going = claim.metadata.deletion_timestamp.is_some();
        match guard(claim.finalizers(), CLAIM_FINALIZER, going) {
            Guard::Leave => return Ok(Action::Done),
            Guard::Add => changed.finalizers_mut().push(CLAIM_FINALIZER.into()),
            Guard::Remove if self.is_used(key).await? => return Ok(Action::Done),
            Guard::Remove => changed.finalizers_mut().retain(|known| known != CLAIM_FINALIZER),
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        done(api.replace(&key.name, &PostParams::default(), &changed).await)
    }

    /// The cache may lag behind a pod that was just made, so that the server is asked before a claim goes.
    async fn is_used(&self, key: &ObjectKey) -> Result<bool, Error> {
        let uses = |pod: &Pod| holds(pod) && claims_of(pod).contains(&key.name);
        if self.pods.list_in(&key.namespace).iter().any(|pod| uses(pod)) {
            return Ok(true);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        Ok(api.list(&ListParams::default()).await?.items.iter().any(uses))
    }
}

pub(crate) fn start_volumes(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("pvprotection");
    let (client, volumes) = (context.client(VOLUMES), context.informers.of::<PersistentVolume>());
    let keys = queue.clone();
    volumes.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let synced = volumes.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, VOLUMES, &queue, 1, ready, move |key: ObjectKey| {
        let (client, volume) = (client.clone(), volumes.get_key(&key));
        async move {
            let Some(volume) = volume else { return Ok(Action::Done) };
            let mut changed = (*volume).clone();
            let bound = volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
            match guard(volume.finalizers(), VOLUME_FINALIZER, volume.metadata.deletion_timestamp.is_some()) {
                Guard::Add => changed.finalizers_mut().push(VOLUME_FINALIZER.into()),
                Guard::Remove if !bound => changed.finalizers_mut().retain(|known| known != VOLUME_FINALIZER),
                _ => return Ok(Action::Done),
            }
            done(Api::<PersistentVolume>::all(client).replace(&key.name, &PostParams::default(), &changed).await)
        }
    });
}

pub(super) fn done<K>(written: Result<K, kube::Error>) -> Result<Action, Error> {
    match written {
        Err(error) if !write::is_not_found(&error) => Err(error.into()),
        _ => Ok(Action::Done),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_hold_their_claims_while_they_run() {
        let pod = |node: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "name": "p" },
                "spec": { "nodeName": node, "containers": [], "volumes": [
                    { "name": "a", "persistentVolumeClaim": { "claimName": "named" } },
                    { "name": "b", "ephemeral": {} },
                    { "name": "c", "emptyDir": {} },
                ] },
                "status": { "phase": phase },
            }))
            .expect("a pod")
        };
        assert_eq!(claims_of(&pod("n", "Running")), ["named", "p-b"]);
        let held =
            [("n", "Running"), ("n", "Pending"), ("", "Pending"), ("n", "Succeeded")].map(|(n, p)| holds(&pod(n, p)));
        assert_eq!(held, [true, true, false, false]);
        let list = ["x".to_owned()];
        assert_eq!(guard(&list, "x", true), Guard::Remove);
        assert_eq!(guard(&list, "y", false), Guard::Add);
        assert_eq!(guard(&list, "y", true), Guard::Leave);
        assert_eq!(guard(&list, "x", false), Guard::Leave);
    }
}

//! Protection of claims in use by pods and of volumes in use by claims: a finalizer holds them until nobody needs them.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Clock, Error, Informer, ObjectKey, WorkQueue, owner, write};
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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

/// Whether the volume is this claim: one that the pod names, or one that was made for the pod.
fn is_of(volume: &Volume, pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str());
    let brought = || volume.ephemeral.is_some() && ephemeral::claim_name(pod, &volume.name) == claim.name_any();
    named == claim.metadata.name.as_deref() || (brought() && owner::is_controlled_by(claim, pod))
}

fn volumes_of(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

/// A pod keeps a claim from going from when it has a node until it is gone. One that it brought along goes when the
/// kubelet is done with the pod, for the pod may wait for its claim.
fn holds(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let shut_down = pod::is_terminating(pod) && pod.metadata.deletion_grace_period_seconds == Some(0);
    !pod::node(pod).is_empty()
        && volumes_of(pod).any(|volume| is_of(volume, pod, claim) && !(volume.ephemeral.is_some() && shut_down))
}

/// Whether the pod needs the claim, now or as soon as it has a node.
fn refers_to(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    !pod::is_terminal(pod) && volumes_of(pod).any(|volume| is_of(volume, pod, claim))
}

const UNUSED: &str = "Unused";

/// The condition that says since when no pod needs the claim, where it has to change.
fn unused(claim: &PersistentVolumeClaim, used: bool, now: &Time) -> Option<PersistentVolumeClaimCondition> {
    let known = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let known = known.into_iter().find(|condition| condition.type_ == UNUSED).map(|known| known.status.as_str());
    let (status, reason, message) = match used {
        true if known.is_none_or(|known| known == "True") => {
            ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
        }
        false if known != Some("True") => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
        _ => return None,
    };
    Some(PersistentVolumeClaimCondition {
        type_: UNUSED.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(now.clone()),
        last_probe_time: None,
    })
}

struct Claims {
    client: Client,
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
    clock: Clock,
}

pub(crate) fn start_claims(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("pvcprotection");
    let this = Arc::new(Claims {
        client: context.client(CLAIMS),
        claims: context.informers.of(),
        pods: context.informers.of(),
        clock: context.config.clock.clone(),
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
        let bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        // Not before it is bound, so as not to get into the binder's way.
        if bound && !going && self.tell_use(&api, &claim).await? {
            return Ok(Action::Done);
        }
        match guard(claim.finalizers(), CLAIM_FINALIZER, going) {
            Guard::Leave => return Ok(Action::Done),
            Guard::Add => changed.finalizers_mut().push(CLAIM_FINALIZER.into()),
            Guard::Remove if self.is_any(&claim, holds).await? => return Ok(Action::Done),
            Guard::Remove => changed.finalizers_mut().retain(|known| known != CLAIM_FINALIZER),
        }
        done(api.replace(&key.name, &PostParams::default(), &changed).await)
    }

    /// Says whether pods need the claim; true when that was something new. The change brings the claim here again.
    async fn tell_use(
        &self,
        api: &Api<PersistentVolumeClaim>,
        claim: &Arc<PersistentVolumeClaim>,
    ) -> Result<bool, Error> {
        let (seen, now) = (self.seen(claim, refers_to), self.clock.time());
        if unused(claim, seen, &now).is_none() {
            return Ok(false);
        }
        let used = seen || self.is_any(claim, refers_to).await?;
        let Some(condition) = unused(claim, used, &now) else { return Ok(false) };
        let mut changed = (**claim).clone();
        let list = changed.status.get_or_insert_default().conditions.get_or_insert_default();
        match list.iter_mut().find(|known| known.type_ == UNUSED) {
            Some(known) => *known = condition,
            None => list.push(condition),
        }
        done(api.replace_status(&claim.name_any(), &PostParams::default(), &changed).await)?;
        Ok(true)
    }

    fn seen(&self, claim: &PersistentVolumeClaim, uses: fn(&Pod, &PersistentVolumeClaim) -> bool) -> bool {
        self.pods.list_in(&claim.namespace().unwrap_or_default()).iter().any(|pod| uses(pod, claim))
    }

    /// The cache may lag behind a pod that was just made, so that the server is asked before a claim goes.
    async fn is_any(
        &self,
        claim: &PersistentVolumeClaim,
        uses: fn(&Pod, &PersistentVolumeClaim) -> bool,
    ) -> Result<bool, Error> {
        if self.seen(claim, uses) {
            return Ok(true);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        Ok(api.list(&ListParams::default()).await?.items.iter().any(|pod| uses(pod, claim)))
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
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_hold_their_claims() {
        let pod = |node: &str, phase: &str, grace: Option<i64>| -> Pod {
            let gone = grace.map(|_| "2026-01-01T00:00:00Z");
            serde_json::from_value(json!({
                "metadata": { "name": "p", "uid": "u", "deletionTimestamp": gone, "deletionGracePeriodSeconds": grace },
                "spec": { "nodeName": node, "containers": [], "volumes": [
                    { "name": "a", "persistentVolumeClaim": { "claimName": "named" } },
                    { "name": "b", "ephemeral": {} },
                    { "name": "c", "emptyDir": {} },
                ] },
                "status": { "phase": phase },
            }))
            .expect("a pod")
        };
        let claim = |name: &str, owner: &str| -> PersistentVolumeClaim {
            let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true });
            serde_json::from_value(json!({ "metadata": { "name": name, "ownerReferences": [owner] } }))
                .expect("a claim")
        };
        assert_eq!(claims_of(&pod("n", "Running", None)), ["named", "p-b"]);
        let (named, brought, foreign) = (claim("named", "x"), claim("p-b", "u"), claim("p-b", "x"));
        // Held against deletion, and needed: by the claim that is named, by the one that was brought.
        for (pod, expected) in [
            (pod("n", "Running", None), [true, true, true, true]),
            (pod("n", "Pending", None), [true, true, true, true]),
            (pod("", "Pending", None), [false, false, true, true]),
            // A pod that has ended is there, and with it what it left on the volume.
            (pod("n", "Succeeded", None), [true, true, false, false]),
            (pod("n", "Running", Some(30)), [true, true, true, true]),
            (pod("n", "Running", Some(0)), [true, false, true, true]),
        ] {
            let told = [holds(&pod, &named), holds(&pod, &brought), refers_to(&pod, &named), refers_to(&pod, &brought)];
            assert_eq!(told, expected, "{pod:?}");
            assert!(!holds(&pod, &foreign) && !refers_to(&pod, &foreign), "somebody else's claim of that name");
        }
        let list = ["x".to_owned()];
        assert_eq!(guard(&list, "x", true), Guard::Remove);
        assert_eq!(guard(&list, "y", false), Guard::Add);
        assert_eq!(guard(&list, "y", true), Guard::Leave);
    }

    #[test]
    fn a_claim_says_whether_it_is_used() {
        let check = |known: Option<&str>, used: bool, expected: Option<&str>| {
            let conditions: Vec<_> = known.iter().map(|status| json!({ "type": UNUSED, "status": status })).collect();
            let claim = serde_json::from_value(json!({ "status": { "conditions": conditions } })).expect("a claim");
            let condition = unused(&claim, used, &Time(Timestamp::UNIX_EPOCH));
            assert_eq!(condition.map(|condition| condition.status).as_deref(), expected, "{known:?} {used}");
        };
        check(None, true, Some("False"));
        check(None, false, Some("True"));
        check(Some("True"), true, Some("False"));
        check(Some("True"), false, None);
        check(Some("False"), true, None);
        check(Some("False"), false, Some("True"));
    }
}

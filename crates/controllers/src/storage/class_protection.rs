//! Protection of VolumeAttributesClasses: a finalizer holds one until neither claims nor volumes name it.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Error, Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{ListParams, PostParams};
use kube::{Client, ResourceExt};

use super::protection::{Guard, done, guard};
use crate::Context;

const NAME: &str = "volumeattributesclass-protection-controller";
const FINALIZER: &str = "kubernetes.io/vac-protection";

/// The classes a claim needs: the one it wants, the one it has, and the one it is on the way to.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let target = status
        .and_then(|status| status.modify_volume_status.as_ref())
        .and_then(|modify| modify.target_volume_attributes_class_name.as_deref());
    [wanted, current, target].into_iter().flatten().collect()
}

fn class_of_volume(volume: &PersistentVolume) -> Vec<&str> {
    volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).into_iter().collect()
}

struct Classes {
    client: Client,
    classes: Informer<VolumeAttributesClass>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
}

pub(crate) fn start(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("vacprotection");
    let this = Arc::new(Classes {
        client: context.client(NAME),
        classes: context.informers.of(),
        claims: context.informers.of(),
        volumes: context.informers.of(),
    });
    let keys = queue.clone();
    this.classes.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    // Only who lets go of a class can set it free: what an object was before a change, and what it was at its end.
    let keys = queue.clone();
    this.claims.on_change(move |change| {
        let before = change.old().unwrap_or(change.object());
        classes_of_claim(before).into_iter().for_each(|name| keys.add(ObjectKey::new("", name)));
    });
    let keys = queue.clone();
    this.volumes.on_change(move |change| {
        let before = change.old().unwrap_or(change.object());
        class_of_volume(before).into_iter().for_each(|name| keys.add(ObjectKey::new("", name)));
    });
    let synced = this.clone();
    let ready = async move {
        synced.classes.synced().await;
        synced.claims.synced().await;
        synced.volumes.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Classes {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(class) = self.classes.get_key(key) else { return Ok(Action::Done) };
        let mut changed = (*class).clone();
        match guard(class.finalizers(), FINALIZER, class.metadata.deletion_timestamp.is_some()) {
            Guard::Leave => return Ok(Action::Done),
            Guard::Add => changed.finalizers_mut().push(FINALIZER.into()),
            Guard::Remove if self.is_used(&key.name).await? => return Ok(Action::Done),
            Guard::Remove => changed.finalizers_mut().retain(|known| known != FINALIZER),
        }
        let api: Api<VolumeAttributesClass> = Api::all(self.client.clone());
        done(api.replace(&key.name, &PostParams::default(), &changed).await)
    }

    /// The caches may be behind: what they do not know is asked for before a class goes.
    async fn is_used(&self, name: &str) -> Result<bool, Error> {
        let volume_has = |volume: &PersistentVolume| class_of_volume(volume).contains(&name);
        let claim_has = |claim: &PersistentVolumeClaim| classes_of_claim(claim).contains(&name);
        if self.volumes.list().iter().any(|volume| volume_has(volume))
            || self.claims.list().iter().any(|claim| claim_has(claim))
        {
            return Ok(true);
        }
        let (all, client) = (ListParams::default(), &self.client);
        let volumes = Api::<PersistentVolume>::all(client.clone()).list(&all).await?;
        let claims = Api::<PersistentVolumeClaim>::all(client.clone()).list(&all).await?;
        Ok(volumes.items.iter().any(volume_has) || claims.items.iter().any(claim_has))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_need_the_class_they_want_have_and_go_to() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "c" }, "spec": { "volumeAttributesClassName": "gold" },
            "status": { "currentVolumeAttributesClassName": "silver",
                "modifyVolumeStatus": { "status": "InProgress", "targetVolumeAttributesClassName": "bronze" } },
        }))
        .expect("a claim");
        assert_eq!(classes_of_claim(&claim), ["gold", "silver", "bronze"]);
        assert!(classes_of_claim(&PersistentVolumeClaim::default()).is_empty());
        assert!(class_of_volume(&PersistentVolume::default()).is_empty());
    }
}

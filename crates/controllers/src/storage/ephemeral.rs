//! Ephemeral volumes: a claim for every volume that a pod brings with it, owned by the pod.

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, ObjectKey, Recorder, WorkQueue, owner, write};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PostParams;

use crate::Context;
use crate::common::pod;

const NAME: &str = "ephemeral-volume-controller";
const COMPONENT: &str = "ephemeral_volume";

pub(super) fn claim_name(pod: &Pod, volume: &str) -> String {
    format!("{}-{volume}", pod.name_any())
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter(|volume| volume.ephemeral.is_some())
}

/// The claim of the volume; none when the volume says nothing of one.
fn claim(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let meta = template.metadata.clone().unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(pod, &volume.name)),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![owner::controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let recorder = Recorder::new(client.clone(), COMPONENT, &context.tasks);
    let (pods, claims) = (context.informers.of::<Pod>(), context.informers.of::<PersistentVolumeClaim>());
    let queue: WorkQueue<ObjectKey> = context.queue("ephemeral_volume");
    let keys = queue.clone();
    pods.on_change(move |change| {
        let pod = change.object();
        if matches!(change, Change::Added(_)) && volumes(pod).next().is_some() {
            keys.add(ObjectKey::of(&**pod));
        }
    });
    // A claim that went while its pod is there is made again, and so is one that was in the way.
    let users = pods.index("ephemeral claim", |pod| {
        let name = |volume: &Volume| ObjectKey::new(pod.namespace().unwrap_or_default(), claim_name(pod, &volume.name));
        volumes(pod).map(|volume| name(volume).to_string()).collect()
    });
    let keys = queue.clone();
    claims.on_change(move |change| {
        if let Change::Deleted(claim) = change {
            for pod in users.get(&ObjectKey::of(&**claim).to_string()) {
                keys.add(ObjectKey::of(&*pod));
            }
        }
    });
    let synced = (pods.clone(), claims.clone());
    let ready = async move {
        synced.0.synced().await;
        synced.1.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 4, ready, move |key: ObjectKey| {
        let (client, recorder) = (client.clone(), recorder.clone());
        let (pod, claims) = (pods.get_key(&key), claims.clone());
        async move {
            let Some(pod) = pod.filter(|pod| !pod::is_terminating(pod) && !pod::is_terminal(pod)) else {
                return Ok(Action::Done);
            };
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client, &key.namespace);
            for volume in volumes(&pod) {
                let name = claim_name(&pod, &volume.name);
                if let Some(there) = claims.get(&key.namespace, &name) {
                    if !owner::is_controlled_by(&*there, &*pod) {
                        let message = format!(
                            "ephemeral volume {}: PVC {}/{name} was not created for pod {key} (pod is not owner)",
                            volume.name, key.namespace
                        );
                        recorder.event(&*pod, EventType::Warning, "FailedBinding", message.clone());
                        return Err(Error::from(message));
                    }
                    continue;
                }
                let Some(claim) = claim(&pod, volume) else { continue };
                match api.create(&PostParams::default(), &claim).await {
                    Err(error) if write::is_namespace_terminating(&error) => return Ok(Action::Done),
                    Err(error) => {
                        let why = write::short(&error);
                        let message = format!("ephemeral volume {}: create PVC {name}: {why}", volume.name);
                        recorder.event(&*pod, EventType::Warning, "FailedBinding", message);
                        return Err(error.into());
                    }
                    Ok(_) => {}
                }
            }
            Ok(Action::Done)
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_belongs_to_its_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "uid": "u" },
            "spec": { "containers": [], "volumes": [{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": {
                "metadata": { "labels": { "a": "b" } }, "spec": { "storageClassName": "fast" },
            } } }] },
        }))
        .expect("a pod");
        let made = claim(&pod, volumes(&pod).next().expect("a volume")).expect("a claim");
        assert_eq!(made.name_any(), "p-scratch");
        assert_eq!(made.labels()["a"], "b");
        assert_eq!(made.spec.and_then(|spec| spec.storage_class_name).as_deref(), Some("fast"));
        assert_eq!(made.metadata.owner_references.expect("an owner")[0].uid, "u");
    }
}

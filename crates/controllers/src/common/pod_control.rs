//! Creates pods from templates and deletes them, with the events upstream's controllers record.

use ferry_client::{EventType, Recorder, owner, write};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client, Resource};

pub(crate) struct PodControl {
    client: Client,
    recorder: Recorder,
}

impl PodControl {
    pub(crate) fn new(client: Client, recorder: Recorder) -> Self {
        Self { client, recorder }
    }

    pub(crate) fn api(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) async fn create<Owner>(&self, owner: &Owner, pod: &Pod) -> Result<Pod, kube::Error>
    where
        Owner: Resource<DynamicType = ()>,
    {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        match self.api(namespace).create(&PostParams::default(), pod).await {
            Ok(created) => {
                let name = created.metadata.name.as_deref().unwrap_or_default();
                self.recorder.event(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(created)
            }
            Err(error) => {
                if !write::is_namespace_terminating(&error) {
                    let message = format!("Error creating: {}", write::short(&error));
                    self.recorder.event(owner, EventType::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    /// False when the pod was gone already.
    pub(crate) async fn delete<Owner>(&self, owner: &Owner, pod: &Pod) -> Result<bool, kube::Error>
    where
        Owner: Resource<DynamicType = ()>,
    {
        let api = self.api(pod.metadata.namespace.as_deref().unwrap_or_default());
        match write::delete(&api, pod, None).await {
            Ok(deleted) => {
                if deleted {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    self.recorder.event(owner, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                }
                Ok(deleted)
            }
            Err(error) => {
                let message = format!("Error deleting: {}", write::short(&error));
                self.recorder.event(owner, EventType::Warning, "FailedDelete", message);
                Err(error)
            }
        }
    }
}

/// A pod of the template, controlled by `owner`; the server makes up the rest of its name.
pub(crate) fn pod_from<Owner>(template: &PodTemplateSpec, owner: &Owner) -> Pod
where
    Owner: Resource<DynamicType = ()>,
{
    pod_with_reference(template, owner.meta().name.as_deref().unwrap_or_default(), owner::controller_reference(owner))
}

fn pod_with_reference(template: &PodTemplateSpec, owner: &str, reference: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(owner)),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![reference]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The dash is left out when the name would be too long for it.
fn name_prefix(owner: &str) -> String {
    if owner.len() < 253 { format!("{owner}-") } else { owner.to_owned() }
}

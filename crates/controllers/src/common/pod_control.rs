//! Creates pods from templates and deletes them, with the events upstream's controllers record.

use std::sync::Arc;

use ferry_client::{Api, EventType, Expectations, ObjectKey, Recorder, owner, write};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Client, Resource};

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

/// The sizes of the batches in which `total` pods are created: 1, 2, 4 …, so that what fails for all fails once.
fn batches(total: usize) -> impl Iterator<Item = usize> {
    let (mut left, mut size) = (total, 1);
    std::iter::from_fn(move || {
        let batch = size.min(left);
        left -= batch;
        size *= 2;
        (batch > 0).then_some(batch)
    })
}

impl PodControl {
    /// Creates the pods in growing batches until one fails. What was created is expected to be seen.
    pub(crate) async fn create_all<Owner>(
        &self,
        expectations: &Expectations,
        key: &ObjectKey,
        owner: &Owner,
        pods: &[Pod],
    ) -> Result<(), kube::Error>
    where
        Owner: Resource<DynamicType = ()>,
    {
        expectations.expect_creations(key, pods.len());
        let mut rest = pods;
        let mut failure = None;
        for batch in batches(pods.len()) {
            let (now, later) = rest.split_at(batch);
            rest = later;
            for error in
                join_all(now.iter().map(|pod| self.create(owner, pod))).await.into_iter().filter_map(Result::err)
            {
                expectations.creation_failed(key);
                // Nothing can be created in a namespace that is going, and nobody needs to know.
                if !write::is_namespace_terminating(&error) {
                    failure.get_or_insert(error);
                }
            }
            if failure.is_some() {
                break;
            }
        }
        for _ in rest {
            expectations.creation_failed(key);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Deletes the pods at once; those that were deleted are expected to be seen going.
    pub(crate) async fn delete_all<Owner>(
        &self,
        expectations: &Expectations,
        key: &ObjectKey,
        owner: &Owner,
        pods: &[Arc<Pod>],
    ) -> Result<(), kube::Error>
    where
        Owner: Resource<DynamicType = ()>,
    {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        expectations.expect_deletions(key, pods.iter().map(|pod| uid(pod)));
        let results = join_all(pods.iter().map(|pod| self.delete(owner, pod))).await;
        let mut failure = None;
        for (pod, result) in pods.iter().zip(results) {
            if !matches!(result, Ok(true)) {
                expectations.deleted(key, &uid(pod));
            }
            if let Err(error) = result {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_double() {
        assert_eq!(batches(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
        assert_eq!(batches(0).count(), 0);
    }
}

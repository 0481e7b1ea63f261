//! DefaultBinder: tells the API server where the pod goes.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::framework::{BindError, Plugin, Point};
use crate::model::PodInfo;

pub(super) struct DefaultBinder {
    client: Client,
}

impl DefaultBinder {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Bind]
    }

    async fn bind(&self, pod: &PodInfo, node: &str) -> Option<Result<(), BindError>> {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                // A pod of the same name that came meanwhile is not meant.
                uid: Some(pod.uid.to_string()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let sent = async {
            api.create_subresource::<_, serde_json::Value>("binding", &pod.name, &PostParams::default(), &binding)
                .await
                .map(|_| ())
                .map_err(|error| match error {
                    kube::Error::Api(status) => BindError(status.message.clone()),
                    other => BindError(other.to_string()),
                })
        };
        Some(sent.await)
    }
}

//! DefaultBinder: tells the API server where the pod goes.

use async_trait::async_trait;
use ferry_client::write;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Resource};

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
        let sent = async {
            let body = serde_json::to_vec(&binding).map_err(|error| BindError(error.to_string()))?;
            let requests = Request::new(Pod::url_path(&(), Some(&pod.namespace)));
            let request = requests
                .create_subresource("binding", &pod.name, &PostParams::default(), body)
                .map_err(|error| BindError(error.to_string()))?;
            write::send(&self.client, request).await.map_err(|error| BindError(write::short(&error)))
        };
        Some(sent.await)
    }
}

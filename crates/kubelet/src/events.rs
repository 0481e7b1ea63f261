//! Events about pods and their containers, in upstream's words.

use ferry_client::{EventType, Recorder};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::pod::{self, Role};

/// The pod itself, or one container of it.
pub(crate) fn reference(pod: &Pod, container: Option<(&str, Role)>) -> ObjectReference {
    let field = container.map(|(name, role)| match role {
        Role::Regular => format!("spec.containers{{{name}}}"),
        Role::Init | Role::Sidecar => format!("spec.initContainers{{{name}}}"),
        Role::Ephemeral => format!("spec.ephemeralContainers{{{name}}}"),
    });
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: field,
    }
}

/// Records events of one pod.
pub(crate) struct PodEvents<'a> {
    pub(crate) recorder: &'a Recorder,
    pub(crate) pod: &'a Pod,
}

impl PodEvents<'_> {
    pub(crate) fn pod(&self, kind: EventType, reason: &str, message: impl Into<String>) {
        self.recorder.event_for(reference(self.pod, None), kind, reason, message);
    }

    pub(crate) fn container(&self, name: &str, kind: EventType, reason: &str, message: impl Into<String>) {
        let role = pod::container(self.pod, name).map_or(Role::Regular, |(role, _)| role);
        self.recorder.event_for(reference(self.pod, Some((name, role))), kind, reason, message);
    }
}

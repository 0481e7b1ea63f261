//! Storage objects are kept while they are in use, and claims grow only where their class allows it.

use std::sync::Arc;

use ferry_meta::object::{metadata_mut, text};
use ferry_meta::{ApiError, ObjectReader};
use serde_json::{Value, json};

use crate::pod::list_mut;
use crate::resources::STORAGE_CLASSES;
use crate::{Operation, Plugin, Request};
use ferry_semantics::quota::amounts::amounts;

/// Adds the finalizers that the protection controllers take away again.
pub(crate) struct StorageObjectInUseProtection;

#[async_trait::async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.subresource.is_empty() {
            return Ok(());
        }
        let finalizer = match (request.resource.group.as_str(), request.resource.resource.as_str()) {
            ("", "persistentvolumes") => "kubernetes.io/pv-protection",
            ("", "persistentvolumeclaims") => "kubernetes.io/pvc-protection",
            ("storage.k8s.io", "volumeattributesclasses") => "kubernetes.io/vac-protection",
            _ => return Ok(()),
        };
        if let Some(object) = request.object.as_deref_mut() {
            let finalizers = list_mut(metadata_mut(object), "finalizers");
            if !finalizers.contains(&json!(finalizer)) {
                finalizers.push(json!(finalizer));
            }
        }
        Ok(())
    }
}

pub(crate) struct PersistentVolumeClaimResize {
    reader: Arc<dyn ObjectReader>,
}

impl PersistentVolumeClaimResize {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }

    fn class_allows(&self, claim: &Value) -> bool {
        let class = text(claim, "/spec/storageClassName");
        !class.is_empty()
            && self
                .reader
                .get(&STORAGE_CLASSES, "", class)
                .is_some_and(|class| class.get("allowVolumeExpansion") == Some(&json!(true)))
    }
}

#[async_trait::async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let (Some(claim), Some(old)) = (request.object.as_deref(), request.old) else { return Ok(()) };
        let size = |claim: &Value| amounts(claim, "/spec/resources/requests").remove("storage").unwrap_or_default();
        if size(claim) <= size(old) {
            return Ok(());
        }
        if text(old, "/status/phase") != "Bound" {
            return Err(request.forbidden("Only bound persistent volume claims can be expanded"));
        }
        if !self.class_allows(claim) {
            return Err(request.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    #[tokio::test]
    async fn finalizers_are_added_once() {
        let mut claim = json!({"metadata": {"name": "c"}});
        for _ in 0..2 {
            let case = Case::create("", "persistentvolumeclaims", "a", claim);
            claim = case.mutate(&StorageObjectInUseProtection).await.expect("admitted");
            assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
        }
    }

    #[tokio::test]
    async fn claims_grow_only_when_bound_and_allowed() {
        let objects = Objects::default();
        objects.put(
            "storage.k8s.io",
            "storageclasses",
            json!({"metadata": {"name": "yes"}, "allowVolumeExpansion": true}),
        );
        objects.put("storage.k8s.io", "storageclasses", json!({"metadata": {"name": "no"}}));
        let plugin = PersistentVolumeClaimResize::new(Arc::new(objects));
        let claim = |size: &str, class: &str, phase: &str| {
            json!({"metadata": {"name": "c"}, "status": {"phase": phase},
                "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}}})
        };
        for (size, class, phase, want) in [
            ("2Gi", "yes", "Bound", None),
            ("1Gi", "no", "Pending", None),
            ("2Gi", "yes", "Pending", Some("Only bound persistent volume claims can be expanded")),
            (
                "2Gi",
                "no",
                "Bound",
                Some(
                    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
                ),
            ),
        ] {
            let case =
                Case::update("", "persistentvolumeclaims", "a", claim(size, class, phase), claim("1Gi", class, phase));
            let got = case.validate(&plugin).await.err().map(|error| error.0.message);
            assert_eq!(got, want.map(|why| format!("persistentvolumeclaims \"c\" is forbidden: {why}")));
        }
    }
}

//! Claims and ingresses that name no class get the default one.

use std::sync::Arc;

use ferry_meta::object::{annotations, child_mut, name, text};
use ferry_meta::{ApiError, GroupResource, ObjectReader};
use serde_json::{Value, json};

use crate::pod::is_set;
use crate::resources::{INGRESS_CLASSES, STORAGE_CLASSES};
use crate::{Operation, Plugin, Request};

/// Of several default classes the youngest counts, then the first by name.
fn default_class(reader: &dyn ObjectReader, resource: &GroupResource, marks: &[&str]) -> Option<String> {
    let mut classes = reader.list(resource, "");
    classes.retain(|class| marks.iter().any(|mark| annotations(class).get(*mark) == Some(&json!("true"))));
    classes.sort_by(|a, b| {
        let age = |class: &Arc<Value>| text(class, "/metadata/creationTimestamp").to_owned();
        age(b).cmp(&age(a)).then_with(|| name(a).cmp(name(b)))
    });
    classes.first().map(|class| name(class).to_owned())
}

fn set(request: &mut Request<'_>, field: &str, class: Option<String>) {
    if let (Some(object), Some(class)) = (request.object.as_deref_mut(), class) {
        child_mut(object, "spec").insert(field.into(), json!(class));
    }
}

pub(crate) struct DefaultStorageClass {
    reader: Arc<dyn ObjectReader>,
}

impl DefaultStorageClass {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }
}

#[async_trait::async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let named = |claim: &Value| {
            is_set(claim, "/spec/storageClassName")
                || annotations(claim).contains_key("volume.beta.kubernetes.io/storage-class")
        };
        if !request.is("", "persistentvolumeclaims") || request.object.as_deref().is_none_or(named) {
            return Ok(());
        }
        let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        set(request, "storageClassName", default_class(&*self.reader, &STORAGE_CLASSES, &marks));
        Ok(())
    }
}

pub(crate) struct DefaultIngressClass {
    reader: Arc<dyn ObjectReader>,
}

impl DefaultIngressClass {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }
}

#[async_trait::async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        let named = |ingress: &Value| {
            is_set(ingress, "/spec/ingressClassName")
                || annotations(ingress).contains_key("kubernetes.io/ingress.class")
        };
        if !request.is("networking.k8s.io", "ingresses") || request.object.as_deref().is_none_or(named) {
            return Ok(());
        }
        let marks = ["ingressclass.kubernetes.io/is-default-class"];
        set(request, "ingressClassName", default_class(&*self.reader, &INGRESS_CLASSES, &marks));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    #[tokio::test]
    async fn the_youngest_default_class_is_taken_by_those_that_name_none() {
        let objects = Arc::new(Objects::default());
        for (class, born) in
            [("old", "2025-01-01T00:00:00Z"), ("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")]
        {
            for (group, resource, mark) in [
                ("storage.k8s.io", "storageclasses", "storageclass.kubernetes.io/is-default-class"),
                ("networking.k8s.io", "ingressclasses", "ingressclass.kubernetes.io/is-default-class"),
            ] {
                let metadata = json!({"name": class, "creationTimestamp": born, "annotations": {mark: "true"}});
                objects.put(group, resource, json!({"metadata": metadata}));
            }
        }
        let claims = DefaultStorageClass::new(objects.clone());
        let claim = async |object: Value| {
            let case = Case::create("", "persistentvolumeclaims", "a", object);
            case.mutate(&claims).await.expect("admitted").pointer("/spec/storageClassName").cloned()
        };
        assert_eq!(claim(json!({"spec": {}})).await, Some(json!("a")));
        assert_eq!(claim(json!({"spec": {"storageClassName": ""}})).await, Some(json!("")));
        let beta = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}, "spec": {}});
        assert_eq!(claim(beta).await, None);
        let ingress = Case::create("networking.k8s.io", "ingresses", "a", json!({"spec": {}}));
        let ingress = ingress.mutate(&DefaultIngressClass::new(objects)).await.expect("admitted");
        assert_eq!(ingress["spec"]["ingressClassName"], "a");
    }
}

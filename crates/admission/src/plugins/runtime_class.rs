//! A pod's runtime class adds its overhead and says on which nodes the pod can run.

use std::sync::Arc;

use ferry_meta::object::{child_mut, items, map, text};
use ferry_meta::{ApiError, ObjectReader};
use serde_json::{Value, json};

use crate::pod::{is_set, list_mut};
use crate::resources::RUNTIME_CLASSES;
use crate::{Operation, Plugin, Request};
use ferry_semantics::quota::amounts::amounts;

pub(crate) struct RuntimeClass {
    reader: Arc<dyn ObjectReader>,
}

impl RuntimeClass {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }

    fn class(&self, request: &Request<'_>) -> Result<Option<Arc<Value>>, ApiError> {
        let wanted = request.object.as_deref().map_or("", |pod| text(pod, "/spec/runtimeClassName"));
        if wanted.is_empty() {
            return Ok(None);
        }
        let class = self.reader.get(&RUNTIME_CLASSES, "", wanted);
        let missing = || request.forbidden(format_args!("pod rejected: RuntimeClass {wanted:?} not found"));
        class.ok_or_else(missing).map(Some)
    }
}

#[async_trait::async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "pods") {
            return Ok(());
        }
        let Some(class) = self.class(request)? else { return Ok(()) };
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        let overhead = class.pointer("/overhead/podFixed").filter(|overhead| !overhead.is_null());
        if overhead.is_some()
            && is_set(pod, "/spec/overhead")
            && amounts(pod, "/spec/overhead") != amounts(&class, "/overhead/podFixed")
        {
            return Err(request.forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"));
        }
        let own = map(pod, "/spec/nodeSelector");
        for (key, value) in map(&class, "/scheduling/nodeSelector") {
            if let Some(other) = own.get(key).filter(|other| *other != value) {
                let (value, other) = (value.as_str().unwrap_or_default(), other.as_str().unwrap_or_default());
                return Err(request.forbidden(format_args!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {other}"
                )));
            }
        }
        let Some(pod) = request.object.as_deref_mut() else { return Ok(()) };
        let spec = child_mut(pod, "spec");
        if let Some(overhead) = overhead {
            spec.insert("overhead".into(), overhead.clone());
        }
        let selector = map(&class, "/scheduling/nodeSelector");
        if !selector.is_empty() {
            let own = spec.entry("nodeSelector").or_insert_with(|| json!({}));
            for (key, value) in selector {
                own[key] = value.clone();
            }
        }
        for toleration in items(&class, "/scheduling/tolerations") {
            let tolerations = list_mut(spec, "tolerations");
            if !tolerations.contains(toleration) {
                tolerations.push(toleration.clone());
            }
        }
        Ok(())
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "pods") {
            return Ok(());
        }
        let class = self.class(request)?;
        let Some(pod) = request.object.as_deref() else { return Ok(()) };
        let defined = class.as_deref().filter(|class| is_set(class, "/overhead"));
        match defined {
            Some(class) if amounts(pod, "/spec/overhead") != amounts(class, "/overhead/podFixed") => {
                Err(request.forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
            }
            // An overhead of nothing is one, too.
            None if pod.pointer("/spec/overhead").is_some_and(|overhead| !overhead.is_null()) => {
                Err(request
                    .forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    #[tokio::test]
    async fn a_class_brings_overhead_selector_and_tolerations() {
        let objects = Objects::default();
        objects.put(
            "node.k8s.io",
            "runtimeclasses",
            json!({"metadata": {"name": "rc"}, "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}}),
        );
        let plugin = RuntimeClass::new(Arc::new(objects));
        let admit = async |spec: Value| {
            let case = |spec: Value| Case::create("", "pods", "a", json!({"metadata": {"name": "p"}, "spec": spec}));
            let pod = case(spec).mutate(&plugin).await.map_err(|e| e.0.message)?;
            case(pod["spec"].clone()).validate(&plugin).await.map_err(|e| e.0.message)?;
            Ok::<Value, String>(pod["spec"].clone())
        };
        let spec = admit(json!({"runtimeClassName": "rc", "nodeSelector": {"disk": "ssd"}})).await.expect("admitted");
        assert_eq!(spec["overhead"], json!({"cpu": "250m"}));
        assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "kata": "yes"}));
        assert_eq!(spec["tolerations"], json!([{"key": "kata", "operator": "Exists"}]));
        for (spec, want) in [
            (json!({"runtimeClassName": "none"}), "pod rejected: RuntimeClass \"none\" not found"),
            (
                json!({"runtimeClassName": "rc", "nodeSelector": {"kata": "no"}}),
                "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes; pod.spec.nodeSelector[kata] = no",
            ),
            (
                json!({"runtimeClassName": "rc", "overhead": {"cpu": "1"}}),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({"overhead": {}}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                json!({"overhead": {"cpu": "1"}}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
        ] {
            assert_eq!(admit(spec).await, Err(format!("pods \"p\" is forbidden: {want}")));
        }
    }
}

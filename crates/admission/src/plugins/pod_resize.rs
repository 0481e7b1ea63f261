//! A running pod grows only where its node could hold it at all.

use std::sync::Arc;

use ferry_meta::error::StatusCause;
use ferry_meta::object::{labels, text};
use ferry_meta::{ApiError, ObjectReader, Quantity};
use ferry_semantics::quota::amounts::{amounts, total_with_overhead};
use serde_json::Value;

use crate::resources::NODES;
use crate::{Operation, Plugin, Request};

pub(crate) struct PodResizeValidator {
    reader: Arc<dyn ObjectReader>,
}

impl PodResizeValidator {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }
}

#[async_trait::async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.concerns("", "pods") || request.subresource != "resize" {
            return Ok(());
        }
        let (Some(pod), Some(old)) = (request.object.as_deref(), request.old) else { return Ok(()) };
        let node_name = text(pod, "/spec/nodeName");
        // Only a change of the spec raises the generation.
        let generation = |pod: &Value| pod.pointer("/metadata/generation").and_then(Value::as_i64);
        if node_name.is_empty() || generation(pod) == generation(old) {
            return Ok(());
        }
        let Some(node) = self.reader.get(&NODES, "", node_name) else {
            return Err(request.forbidden(format_args!("node {node_name:?} not found")));
        };
        let refused = |reason: &str, why: String| {
            let mut error = request.forbidden(why);
            let cause = StatusCause { reason: reason.to_owned(), ..StatusCause::default() };
            error.0.details.get_or_insert_default().causes.push(cause);
            error
        };
        if let Some(system) = labels(&node).get("kubernetes.io/os").and_then(Value::as_str).filter(|os| *os != "linux")
        {
            let why = format!("pod resize is only supported on linux nodes, node {node_name:?} is {system:?}");
            return Err(refused("UnsupportedPlatform", why));
        }
        let lacking = lacking(pod, &node);
        if !lacking.is_empty() {
            let why = format!("node didn't have enough allocatable resources: {}", lacking.join("; "));
            return Err(refused("NodeCapacity", why));
        }
        Ok(())
    }
}

/// What the pod requests beyond all that the node has for pods. What other pods take of it is the kubelet's matter.
fn lacking(pod: &Value, node: &Value) -> Vec<String> {
    let requests = total_with_overhead(pod.get("spec").unwrap_or(&Value::Null), "requests");
    let allocatable = amounts(node, "/status/allocatable");
    let mut lacking = Vec::new();
    for (name, value) in [("cpu", Quantity::milli_value as fn(&Quantity) -> i64), ("memory", Quantity::value)] {
        let of = |list: &std::collections::BTreeMap<String, Quantity>| list.get(name).cloned().unwrap_or_default();
        let (requested, there) = (of(&requests), of(&allocatable));
        if requested > there {
            lacking.push(format!("{name}, requested: {}, allocatable: {}", value(&requested), value(&there)));
        }
    }
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};
    use serde_json::json;

    fn pod(node: &str, generation: i64, requests: Value) -> Value {
        json!({"metadata": {"name": "p", "generation": generation},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}})
    }

    async fn refusal(case: Case) -> Option<ApiError> {
        let objects = Objects::default();
        let node = |name: &str, labels: Value, allocatable: Value| json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}});
        objects.put("", "nodes", node("n", json!({"kubernetes.io/os": "linux"}), json!({"cpu": "2", "memory": "1Gi"})));
        objects.put("", "nodes", node("plain", json!({}), json!({"cpu": "1500m", "memory": "1Gi"})));
        objects.put("", "nodes", node("w", json!({"kubernetes.io/os": "windows"}), json!({"cpu": "2"})));
        objects.put("", "nodes", node("new", json!({}), json!({})));
        case.validate(&PodResizeValidator::new(Arc::new(objects))).await.err()
    }

    #[tokio::test]
    async fn a_pod_grows_no_larger_than_its_node() {
        let check = async |node: &str, requests: Value, want: Option<(&str, &str)>| {
            let old = pod(node, 1, json!({"cpu": "1", "memory": "100Mi"}));
            let case = Case::update("", "pods", "a", pod(node, 2, requests), old).at("resize");
            let got = refusal(case).await.map(|error| {
                let reasons = error.0.details.unwrap_or_default().causes.into_iter().map(|cause| cause.reason);
                (error.0.message, reasons.collect::<Vec<_>>().join(","))
            });
            let want = want.map(|(why, cause)| (format!("pods \"p\" is forbidden: {why}"), cause.to_owned()));
            assert_eq!(got, want, "{node}");
        };
        let capacity = |why: &str| format!("node didn't have enough allocatable resources: {why}");
        check("n", json!({"cpu": "2", "memory": "1Gi"}), None).await;
        check("", json!({"cpu": "200"}), None).await;
        let cpu = capacity("cpu, requested: 2001, allocatable: 2000");
        check("n", json!({"cpu": "2001m"}), Some((&cpu, "NodeCapacity"))).await;
        let both =
            capacity("cpu, requested: 1600, allocatable: 1500; memory, requested: 1073741825, allocatable: 1073741824");
        check("plain", json!({"cpu": "1.6", "memory": "1073741825"}), Some((&both, "NodeCapacity"))).await;
        let nothing = capacity("cpu, requested: 1, allocatable: 0");
        check("new", json!({"cpu": "1m"}), Some((&nothing, "NodeCapacity"))).await;
        let windows = "pod resize is only supported on linux nodes, node \"w\" is \"windows\"";
        check("w", json!({"cpu": "1m"}), Some((windows, "UnsupportedPlatform"))).await;
        check("gone", json!({"cpu": "1m"}), Some(("node \"gone\" not found", ""))).await;
    }

    #[tokio::test]
    async fn only_resizes_that_change_something_are_judged() {
        let huge = json!({"cpu": "200"});
        let unchanged = Case::update("", "pods", "a", pod("n", 1, huge.clone()), pod("n", 1, huge.clone()));
        assert_eq!(refusal(unchanged.at("resize")).await, None);
        for subresource in ["", "status", "ephemeralcontainers"] {
            let other = Case::update("", "pods", "a", pod("n", 2, huge.clone()), pod("n", 1, huge.clone()));
            assert_eq!(refusal(other.at(subresource)).await, None, "{subresource}");
        }
    }

    #[tokio::test]
    async fn amounts_of_the_whole_pod_and_its_overhead_count() {
        let mut grown = pod("n", 2, json!({"cpu": "1"}));
        grown["spec"]["resources"] = json!({"requests": {"cpu": "1900m"}});
        grown["spec"]["overhead"] = json!({"cpu": "200m"});
        let case = Case::update("", "pods", "a", grown, pod("n", 1, json!({"cpu": "1"}))).at("resize");
        let message = refusal(case).await.map(|error| error.0.message).unwrap_or_default();
        assert!(message.ends_with("cpu, requested: 2100, allocatable: 2000"), "{message}");
    }
}

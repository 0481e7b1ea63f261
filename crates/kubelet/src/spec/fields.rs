//! The downward API: fields of the pod and amounts of its containers, as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{pod, quantity};

/// What a field may say beyond the pod itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) host_addresses: Vec<String>,
    pub(crate) pod_addresses: Vec<String>,
    /// What a container without a limit may use at most.
    pub(crate) allocatable: BTreeMap<String, Quantity>,
}

pub(crate) fn field(pod: &Pod, path: &str, around: &Surroundings) -> Result<String, String> {
    let empty = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    let annotations = pod.metadata.annotations.as_ref().unwrap_or(&empty);
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        return match map {
            "metadata.labels" => Ok(labels.get(key).cloned().unwrap_or_default()),
            "metadata.annotations" => Ok(annotations.get(key).cloned().unwrap_or_default()),
            _ => Err(format!("fieldPath {path:?} does not support subscript")),
        };
    }
    let spec = pod::spec(pod);
    Ok(match path {
        "metadata.name" => pod::name(pod).to_owned(),
        "metadata.namespace" => pod::namespace(pod).to_owned(),
        "metadata.uid" => pod::uid(pod).to_owned(),
        "metadata.labels" => map_text(labels),
        "metadata.annotations" => map_text(annotations),
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => around.host_addresses.first().cloned().unwrap_or_default(),
        "status.hostIPs" => around.host_addresses.join(","),
        "status.podIP" => around.pod_addresses.first().cloned().unwrap_or_default(),
        "status.podIPs" => around.pod_addresses.join(","),
        other => return Err(format!("unsupported fieldPath: {other}")),
    })
}

/// One `key="value"` per line, in the order of the keys.
fn map_text(map: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (key, value) in map {
        let _ = writeln!(text, "{key}={}", ferry_meta::field::quote(value));
    }
    text.pop();
    text
}

/// An amount of a container, in units of the selector's divisor, rounded up.
pub(crate) fn resource(
    pod: &Pod,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
    around: &Surroundings,
) -> Result<String, String> {
    let named = selector.container_name.as_deref().filter(|n| !n.is_empty());
    let found = named.and_then(|name| pod::container(pod, name));
    let container = match (&found, named) {
        (Some((_, container)), _) => container.as_ref(),
        (None, Some(name)) => return Err(format!("container {name} not found")),
        (None, None) => own.ok_or_else(|| "no container is named".to_owned())?,
    };
    let resources = container.resources.as_ref();
    let (kind, key) = selector.resource.split_once('.').unwrap_or_default();
    let limit = resources.and_then(|r| r.limits.as_ref()).and_then(|l| l.get(key));
    let amount = match kind {
        "limits" => limit.or_else(|| around.allocatable.get(key)),
        "requests" => resources.and_then(|r| r.requests.as_ref()).and_then(|r| r.get(key)),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let supported = matches!(key, "cpu" | "memory" | "ephemeral-storage") || key.starts_with("hugepages-");
    if !supported {
        return Err(format!("unsupported container resource : {}", selector.resource));
    }
    let divisor = selector.divisor.as_ref().filter(|d| quantity::milli(d) != Some(0));
    let in_millis = |q: &Quantity| quantity::milli(q).unwrap_or(0);
    let units = if key == "cpu" {
        let divisor = divisor.map_or(1000, in_millis).max(1);
        amount.map_or(0, in_millis).div_euclid(divisor) + i64::from(amount.map_or(0, in_millis) % divisor != 0)
    } else {
        let divisor = divisor.and_then(quantity::value).unwrap_or(1).max(1);
        let amount = amount.and_then(quantity::value).unwrap_or(0);
        amount.div_euclid(divisor) + i64::from(amount % divisor != 0)
    };
    Ok(units.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_and_amounts_are_read() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": "1\"x"}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}]}
        }))
        .expect("a pod");
        let around = Surroundings {
            host_addresses: vec!["192.0.2.1".into()],
            pod_addresses: vec!["10.0.0.1".into(), "fd00::1".into()],
            allocatable: BTreeMap::from([("ephemeral-storage".into(), Quantity("1Gi".into()))]),
        };
        let check = |path: &str, text: &str| assert_eq!(field(&pod, path, &around).as_deref(), Ok(text), "{path}");
        check("metadata.labels", "a=\"1\\\"x\"\nb=\"2\"");
        check("metadata.labels['b']", "2");
        check("metadata.annotations['none']", "");
        check("spec.nodeName", "node");
        check("status.podIPs", "10.0.0.1,fd00::1");
        assert!(field(&pod, "spec.containers", &around).is_err());
        let amount = |selector: serde_json::Value, text: &str| {
            let selector = serde_json::from_value(selector).expect("a selector");
            assert_eq!(resource(&pod, pod::containers(&pod).first(), &selector, &around).as_deref(), Ok(text));
        };
        amount(json!({"resource": "limits.cpu"}), "2");
        amount(json!({"resource": "limits.cpu", "divisor": "1m"}), "1500");
        amount(json!({"resource": "limits.memory", "divisor": "1Mi"}), "64");
        amount(json!({"resource": "requests.memory"}), "0");
        amount(json!({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}), "1");
    }
}

//! Amounts of the pod as a whole that follow from those of its containers.

use ferry_meta::Quantity;
use serde_json::{Map, Value};

use super::resources::{is_huge_pages, total};
use crate::cursor::{Cursor, object_at};

/// Completes what a pod says of itself: requests and limits that its containers tell. A pod that says nothing has none.
pub(super) fn default_amounts(pod: &mut Value) {
    let at = Cursor::root(pod).get("spec");
    let mut requests = at.get("resources").map("requests").clone();
    let mut limits = at.get("resources").map("limits").clone();
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let supported = |name: &str| matches!(name, "cpu" | "memory") || is_huge_pages(name);
    let container_limits = total(&at, "limits");
    // Huge pages are never promised twice: their requests are their limits.
    for (name, total) in container_limits.iter().filter(|(name, _)| is_huge_pages(name)) {
        if !requests.contains_key(name) {
            limits.entry(name.clone()).or_insert_with(|| total.to_string().into());
        }
    }
    for (name, total) in total(&at, "requests").iter().filter(|(name, _)| supported(name) && !is_huge_pages(name)) {
        requests.entry(name.clone()).or_insert_with(|| total.to_string().into());
    }
    for (name, limit) in limits.iter().filter(|(name, _)| supported(name)) {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
    // Where every container is limited, the pod is.
    let containers: Vec<Cursor<'_>> =
        ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|list| at.items(list)).collect();
    for (name, request) in requests.iter().filter(|(name, _)| supported(name)) {
        let everywhere = containers.iter().all(|one| one.get("resources").map("limits").contains_key(name));
        let (false, true, Some(together)) = (limits.contains_key(name), everywhere, container_limits.get(name)) else {
            continue;
        };
        let request = request.as_str().and_then(|text| Quantity::parse(text).ok());
        let limit = request.filter(|request| request > together).unwrap_or_else(|| together.clone());
        limits.insert(name.clone(), limit.to_string().into());
    }
    let resources = object_at(pod, &["spec", "resources"]);
    set(resources, "requests", requests);
    set(resources, "limits", limits);
}

fn set(resources: &mut Map<String, Value>, key: &str, amounts: Map<String, Value>) {
    if !amounts.is_empty() {
        resources.insert(key.to_owned(), Value::Object(amounts));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_of_the_pod_follow_from_its_containers() {
        let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let (one, two) = (
            container(json!({"cpu": "1", "example.com/x": "1"}), json!({"cpu": "1"})),
            container(json!({"cpu": "500m", "hugepages-2Mi": "4Mi"}), json!({"cpu": "2", "hugepages-2Mi": "4Mi"})),
        );
        for (own, containers, wanted) in [
            (json!({}), vec![&one], json!({})),
            (
                json!({"requests": {"cpu": "1"}}),
                vec![&one, &two],
                json!({"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "limits": {"cpu": "3", "hugepages-2Mi": "4Mi"}}),
            ),
            // A limit is never below what is requested.
            (json!({"requests": {"cpu": "5"}}), vec![&one], json!({"requests": {"cpu": "5"}, "limits": {"cpu": "5"}})),
            // One container without a limit may take anything.
            (json!({"requests": {"cpu": "5"}}), vec![&one, &json!({})], json!({"requests": {"cpu": "5"}})),
            (
                json!({"limits": {"memory": "1Gi", "k8s.io/x": "1"}}),
                vec![&json!({})],
                json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi", "k8s.io/x": "1"}}),
            ),
        ] {
            let mut pod = json!({"spec": {"resources": own, "containers": containers}});
            default_amounts(&mut pod);
            assert_eq!(pod["spec"]["resources"], wanted, "{own}");
        }
    }
}

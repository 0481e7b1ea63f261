//! What a pod asks for in all: the sums that limits and quotas are measured against.

use std::collections::BTreeMap;

use ferry_meta::object::{items, map, text};
use ferry_meta::quantity::Quantity;
use serde_json::Value;

use crate::pod_resources::{Amount, peak};

pub type Amounts = BTreeMap<String, Quantity>;

/// The quantities of a map such as `resources.requests`; those that cannot be read are left out, validation tells them.
pub fn amounts(object: &Value, pointer: &str) -> Amounts {
    map(object, pointer)
        .iter()
        .filter_map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((key.clone(), Quantity::parse(&text).ok()?))
        })
        .collect()
}

/// Amounts given for the whole pod stand in place of the containers' sums.
pub fn total(spec: &Value, kind: &str) -> Amounts {
    let pointer = format!("/resources/{kind}");
    let of = |container: &Value| amounts(container, &pointer);
    let init = items(spec, "/initContainers").iter().map(|one| (text(one, "/restartPolicy") == "Always", of(one)));
    let mut sum = peak(init, items(spec, "/containers").iter().map(of));
    sum.extend(of(spec));
    sum
}

/// `total` and the overhead of the pod's runtime class; limits grow only where one is set.
pub fn total_with_overhead(spec: &Value, kind: &str) -> Amounts {
    let mut sum = total(spec, kind);
    let overhead = amounts(spec, "/overhead");
    if kind == "requests" {
        sum.add(&overhead);
    } else {
        for (key, amount) in overhead {
            if let Some(limit) = sum.get_mut(&key) {
                *limit = limit.add(&amount);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_containers_count_at_their_highest() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        let check =
            |spec: Value, want: &str| assert_eq!(total_with_overhead(&spec, "requests")["cpu"].to_string(), want);
        check(json!({"containers": [container("200m"), container("300m")]}), "500m");
        check(json!({"containers": [container("200m")], "initContainers": [container("1")]}), "1");
        check(json!({"containers": [container("200m")], "initContainers": [sidecar, container("1")]}), "1100m");
        check(json!({"containers": [container("200m")], "initContainers": [sidecar]}), "300m");
        check(json!({"containers": [container("200m")], "overhead": {"cpu": "50m"}}), "250m");
        check(json!({"containers": [container("200m")], "resources": {"requests": {"cpu": "2"}}}), "2");
    }
}

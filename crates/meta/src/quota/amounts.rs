//! What a pod asks for in all: the sums that limits and quotas are measured against.

use std::collections::BTreeMap;

use crate::object::{items, map, text};
use crate::quantity::Quantity;
use serde_json::Value;

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

pub fn add(left: &mut Amounts, right: &Amounts) {
    for (key, amount) in right {
        let sum = left.get(key).map_or_else(|| amount.clone(), |known| known.add(amount));
        left.insert(key.clone(), sum);
    }
}

fn raise(left: &mut Amounts, right: &Amounts) {
    for (key, amount) in right {
        let larger = left.get(key).is_none_or(|known| amount > known);
        if larger {
            left.insert(key.clone(), amount.clone());
        }
    }
}

/// Containers run together, init containers one after the other; an init container that restarts stays beside the rest.
/// Amounts given for the whole pod stand in place of the containers' sums.
pub fn total(spec: &Value, kind: &str) -> Amounts {
    let pointer = format!("/resources/{kind}");
    let mut sum = Amounts::new();
    for container in items(spec, "/containers") {
        add(&mut sum, &amounts(container, &pointer));
    }
    let mut beside = Amounts::new();
    let mut highest = Amounts::new();
    for container in items(spec, "/initContainers") {
        let own = amounts(container, &pointer);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut beside, &own);
            raise(&mut highest, &beside);
        } else {
            let mut together = beside.clone();
            add(&mut together, &own);
            raise(&mut highest, &together);
        }
    }
    raise(&mut sum, &highest);
    for (key, amount) in amounts(spec, &pointer) {
        sum.insert(key, amount);
    }
    sum
}

/// `total` and the overhead of the pod's runtime class; limits grow only where one is set.
pub fn total_with_overhead(spec: &Value, kind: &str) -> Amounts {
    let mut sum = total(spec, kind);
    let overhead = amounts(spec, "/overhead");
    if kind == "requests" {
        add(&mut sum, &overhead);
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

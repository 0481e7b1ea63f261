//! What an object counts for: how much of each quota resource it takes.

use std::collections::BTreeMap;

use ferry_meta::object::{is_being_deleted, items, text};
use ferry_meta::quantity::{Format, Quantity};
use jiff::Timestamp;
use serde_json::Value;

use super::amounts::{Amounts, amounts, total_with_overhead};

/// What containers ask for, by itself, as requests and as limits.
pub const COMPUTE: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The most devices that a claim can be given.
const MOST_DEVICES: i64 = 32;

/// What a kind of object is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Pod,
    Service,
    Claim,
    /// A claim of devices.
    DeviceClaim,
    /// By number alone.
    Count,
}

impl Measure {
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("", "pods") => Self::Pod,
            ("", "services") => Self::Service,
            ("", "persistentvolumeclaims") => Self::Claim,
            ("resource.k8s.io", "resourceclaims") => Self::DeviceClaim,
            _ => Self::Count,
        }
    }

    /// Whether a quota resource is one that this measure can take.
    pub fn takes(self, group: &str, resource: &str, quota: &str) -> bool {
        if quota == count_name(group, resource) {
            return true;
        }
        match self {
            Self::Pod => {
                quota == "pods"
                    || COMPUTE.contains(&quota)
                    || quota.starts_with("hugepages-")
                    || quota.starts_with("requests.hugepages-")
                    || quota.strip_prefix("requests.").is_some_and(|name| is_extended(name) || is_of_device_class(name))
            }
            Self::Service => matches!(quota, "services" | "services.nodeports" | "services.loadbalancers"),
            Self::Claim => {
                matches!(quota, "persistentvolumeclaims" | "requests.storage")
                    || quota.contains(".storageclass.storage.k8s.io/")
                    || quota.contains(".volumeattributesclass.storage.k8s.io/")
            }
            Self::DeviceClaim => quota.ends_with(DEVICES),
            Self::Count => group.is_empty() && quota == resource && is_counted_plainly(resource),
        }
    }

    /// `now` decides on pods that should have ended.
    pub fn usage(self, group: &str, resource: &str, object: &Value, now: Timestamp) -> Amounts {
        let mut usage = Amounts::new();
        if self == Self::Pod && is_over(object, now) {
            return usage;
        }
        usage.insert(count_name(group, resource), one());
        match self {
            Self::Pod => pod(object, &mut usage),
            Self::Service => service(object, &mut usage),
            Self::Claim => claim(object, &mut usage),
            Self::DeviceClaim => device_claim(object, &mut usage),
            Self::Count if group.is_empty() && is_counted_plainly(resource) => {
                usage.insert(resource.to_owned(), one());
            }
            Self::Count => {}
        }
        usage
    }
}

fn one() -> Quantity {
    Quantity::from_units(1, Format::DecimalSi)
}

fn count_name(group: &str, resource: &str) -> String {
    if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") }
}

/// Resources whose plain name is a quota resource too.
fn is_counted_plainly(resource: &str) -> bool {
    matches!(resource, "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas")
}

/// Names with a domain that is not Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

/// Devices of a class, asked for like an extended resource.
fn is_of_device_class(name: &str) -> bool {
    name.starts_with("deviceclass.resource.kubernetes.io/")
}

/// A pod that has ended, or should have by now, takes nothing.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
        return true;
    }
    let deadline = ferry_meta::time::parse(text(pod, "/metadata/deletionTimestamp"));
    is_being_deleted(pod) && deadline.is_some_and(|deadline| now > deadline)
}

fn pod(pod: &Value, usage: &mut Amounts) {
    usage.insert("pods".into(), one());
    let Some(spec) = pod.get("spec") else { return };
    for (name, amount) in total_with_overhead(spec, "requests") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            usage.insert(format!("requests.{name}"), amount.clone());
            usage.insert(name, amount);
        } else if is_extended(&name) || is_of_device_class(&name) {
            usage.insert(format!("requests.{name}"), amount);
        }
    }
    for (name, amount) in total_with_overhead(spec, "limits") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount);
        }
    }
}

fn service(service: &Value, usage: &mut Amounts) {
    let ports = items(service, "/spec/ports");
    let all = ports.len();
    let given = ports.iter().filter(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0).count();
    let allocated = service.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    let (node_ports, balancers) = match text(service, "/spec/type") {
        "NodePort" => (all, 0),
        "LoadBalancer" => (if allocated { all } else { given }, 1),
        _ => (0, 0),
    };
    let number = |count: usize| Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
    usage.insert("services".into(), one());
    usage.insert("services.nodeports".into(), number(node_ports));
    usage.insert("services.loadbalancers".into(), number(balancers));
}

/// By class, as many devices as a claim may get in the worst case.
fn device_claim(claim: &Value, usage: &mut Amounts) {
    let devices = |request: &Value| match text(request, "/allocationMode") {
        "ExactCount" => request.get("count").and_then(Value::as_i64).unwrap_or(0),
        "All" => MOST_DEVICES,
        _ => 0,
    };
    for request in items(claim, "/spec/devices/requests") {
        let exactly = request.get("exactly").into_iter();
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        for choice in items(request, "/firstAvailable").iter().chain(exactly) {
            let known = most.entry(text(choice, "/deviceClassName")).or_default();
            *known = devices(choice).max(*known);
        }
        for (class, count) in most {
            let sum = usage.entry(format!("{class}{DEVICES}")).or_default();
            *sum = sum.add(&Quantity::from_units(count, Format::DecimalSi));
        }
    }
}

fn claim(claim: &Value, usage: &mut Amounts) {
    usage.insert("persistentvolumeclaims".into(), one());
    let class = text(claim, "/spec/storageClassName");
    let suffix = ".storageclass.storage.k8s.io/";
    if !class.is_empty() {
        usage.insert(format!("{class}{suffix}persistentvolumeclaims"), one());
    }
    if let Some(storage) = amounts(claim, "/spec/resources/requests").remove("storage") {
        if !class.is_empty() {
            usage.insert(format!("{class}{suffix}requests.storage"), storage.clone());
        }
        usage.insert("requests.storage".into(), storage);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_of_devices_count_by_class_at_their_worst() {
        let (group, resource) = ("resource.k8s.io", "resourceclaims");
        let measure = Measure::of(group, resource);
        let one = |class: &str, mode: &str, count: i64| json!({ "deviceClassName": class, "allocationMode": mode, "count": count });
        let claim = json!({ "spec": { "devices": { "requests": [
            { "name": "a", "exactly": one("gpu", "ExactCount", 2) },
            { "name": "b", "firstAvailable": [one("gpu", "ExactCount", 1), one("gpu", "ExactCount", 3), one("nic", "All", 0)] },
            { "name": "c", "exactly": one("odd", "Future", 7) },
        ] } } });
        let made: Vec<(String, String)> = measure
            .usage(group, resource, &claim, Timestamp::UNIX_EPOCH)
            .into_iter()
            .map(|(key, amount)| (key, amount.to_string()))
            .collect();
        let expected = [
            ("count/resourceclaims.resource.k8s.io", "1"),
            ("gpu.deviceclass.resource.k8s.io/devices", "5"),
            ("nic.deviceclass.resource.k8s.io/devices", "32"),
            ("odd.deviceclass.resource.k8s.io/devices", "0"),
        ];
        assert_eq!(made, expected.map(|(key, amount)| (key.to_owned(), amount.to_owned())));
        for (name, taken) in [
            ("gpu.deviceclass.resource.k8s.io/devices", true),
            ("count/resourceclaims.resource.k8s.io", true),
            ("pods", false),
        ] {
            assert_eq!(measure.takes(group, resource, name), taken, "{name}");
        }
    }

    #[test]
    fn pods_take_devices_of_a_class_by_its_name() {
        let name = "deviceclass.resource.kubernetes.io/gpu";
        let pod = json!({ "spec": { "containers": [{ "resources": { "requests": { name: "2", "kubernetes.io/other": "1" } } }] } });
        let usage = Measure::Pod.usage("", "pods", &pod, Timestamp::UNIX_EPOCH);
        assert_eq!(usage[&format!("requests.{name}")].to_string(), "2");
        assert!(!usage.contains_key("requests.kubernetes.io/other"));
        assert!(Measure::Pod.takes("", "pods", &format!("requests.{name}")));
    }
}

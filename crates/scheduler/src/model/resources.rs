//! Amounts of resources as whole numbers: what pods request and what nodes offer.

use std::collections::BTreeMap;

use ferry_meta::quantity::Quantity;
use ferry_semantics::pod_resources::{Amount, peak};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

/// What a container without a request is counted as when nodes are compared, so that many such pods still spread.
const ASSUMED_MILLI_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 * 1024 * 1024;

type List = BTreeMap<String, WireQuantity>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and the like; few, hence a list. Ordered by name.
    pub scalars: Vec<(String, i64)>,
}

/// One resource, found without a comparison of names where a node has many to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    Cpu,
    Memory,
    EphemeralStorage,
    Scalar(String),
}

impl Resource {
    pub fn named(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            other => Self::Scalar(other.to_owned()),
        }
    }

    pub fn is_scalar(&self) -> bool {
        matches!(self, Self::Scalar(_))
    }
}

impl Resources {
    pub fn from_list(list: &List) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in list {
            // The API server admits no malformed amount; one that got in all the same asks for nothing.
            let Ok(quantity) = Quantity::parse(&quantity.0) else { continue };
            match name.as_str() {
                "cpu" => resources.milli_cpu = quantity.milli_value(),
                "memory" => resources.memory = quantity.value(),
                "ephemeral-storage" => resources.ephemeral_storage = quantity.value(),
                "pods" => {}
                other if is_scalar(other) => resources.scalars.push((other.to_owned(), quantity.value())),
                _ => {}
            }
        }
        resources
    }

    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.iter().find(|(known, _)| known == name).map_or(0, |(_, amount)| *amount)
    }

    pub fn get(&self, resource: &Resource) -> i64 {
        match resource {
            Resource::Cpu => self.milli_cpu,
            Resource::Memory => self.memory,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Scalar(name) => self.scalar(name),
        }
    }

    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }

    pub fn add(&mut self, other: &Self) {
        Amount::add(self, other);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
        self.scalars.retain(|(_, amount)| *amount != 0);
    }

    fn combine(&mut self, other: &Self, operation: fn(i64, i64) -> i64) {
        self.milli_cpu = operation(self.milli_cpu, other.milli_cpu);
        self.memory = operation(self.memory, other.memory);
        self.ephemeral_storage = operation(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            match self.scalars.binary_search_by(|(known, _)| known.cmp(name)) {
                Ok(at) => self.scalars[at].1 = operation(self.scalars[at].1, *amount),
                Err(at) => self.scalars.insert(at, (name.clone(), operation(0, *amount))),
            }
        }
    }
}

impl Amount for Resources {
    fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }
}

fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}

/// What a pod needs at its peak: the sum of its containers, or an init container with the sidecars before it.
pub fn requests_of(spec: &PodSpec) -> Resources {
    total(spec, false)
}

/// The same, with containers that ask for no CPU or memory counted as small instead of as nothing.
pub fn assumed_requests_of(spec: &PodSpec) -> Resources {
    total(spec, true)
}

fn total(spec: &PodSpec, assume: bool) -> Resources {
    let init = spec.init_containers.iter().flatten();
    let init =
        init.map(|container| (container.restart_policy.as_deref() == Some("Always"), requests(container, assume)));
    let mut sum = peak(init, spec.containers.iter().map(|container| requests(container, assume)));
    if let Some(list) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        let pod_level = Resources::from_list(list);
        if list.contains_key("cpu") {
            sum.milli_cpu = pod_level.milli_cpu;
        }
        if list.contains_key("memory") {
            sum.memory = pod_level.memory;
        }
        for (name, amount) in pod_level.scalars.into_iter().filter(|(name, _)| name.starts_with("hugepages-")) {
            match sum.scalars.binary_search_by(|(known, _)| known.cmp(&name)) {
                Ok(at) => sum.scalars[at].1 = amount,
                Err(at) => sum.scalars.insert(at, (name, amount)),
            }
        }
    }
    if let Some(overhead) = &spec.overhead {
        sum.add(&Resources::from_list(overhead));
    }
    sum
}

fn requests(container: &Container, assume: bool) -> Resources {
    let list = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut resources = list.map(Resources::from_list).unwrap_or_default();
    if assume {
        if !list.is_some_and(|list| list.contains_key("cpu")) {
            resources.milli_cpu = ASSUMED_MILLI_CPU;
        }
        if !list.is_some_and(|list| list.contains_key("memory")) {
            resources.memory = ASSUMED_MEMORY;
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: serde_json::Value, cpu: i64, memory: i64) {
        let parsed: PodSpec = serde_json::from_value(spec.clone()).expect("a spec");
        let requests = requests_of(&parsed);
        assert_eq!((requests.milli_cpu, requests.memory), (cpu, memory), "{spec}");
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn a_pod_needs_its_peak() {
        let sidecar =
            json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1", "memory": "10"}}});
        check(json!({"containers": [{"name": "c"}]}), 0, 0);
        check(json!({"containers": [container("1", "10"), container("500m", "5")]}), 1500, 15);
        check(json!({"containers": [container("1", "10")], "initContainers": [container("2", "5")]}), 2000, 10);
        check(
            json!({"containers": [container("1", "10")], "initContainers": [sidecar, container("3", "1")]}),
            4000,
            20,
        );
        check(
            json!({"containers": [container("1", "10")], "initContainers": [container("3", "1"), sidecar]}),
            3000,
            20,
        );
        check(json!({"containers": [container("1", "10")], "overhead": {"cpu": "250m"}}), 1250, 10);
        check(json!({"containers": [container("1", "10")], "resources": {"requests": {"cpu": "5"}}}), 5000, 10);
    }

    #[test]
    fn missing_requests_are_assumed_for_comparisons_only() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "0", "example.com/gpu": "2"}}}],
        }))
        .expect("a spec");
        assert_eq!(requests_of(&spec).scalar("example.com/gpu"), 2);
        let assumed = assumed_requests_of(&spec);
        assert_eq!((assumed.milli_cpu, assumed.memory), (100, 2 * ASSUMED_MEMORY));
    }
}

//! The quality-of-service class of a pod, which follows from its requests and limits of processor and memory alone.

use ferry_meta::Quantity;
use ferry_meta::object::{items, map};
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class as a pod's status has it.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort].into_iter().find(|class| class.as_str() == name)
    }

    pub fn of(spec: &PodSpec) -> Self {
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let each = containers.map(|container| container.resources.as_ref().map(Compute::of).unwrap_or_default());
        class(spec.resources.as_ref().map(Compute::of), each)
    }

    /// The same for a spec as JSON.
    pub fn of_json(spec: &Value) -> Self {
        let containers = ["/containers", "/initContainers"].into_iter().flat_map(|list| items(spec, list));
        class(Some(Compute::of_json(spec)), containers.map(Compute::of_json))
    }
}

/// What a container, or a pod as a whole, says of processor and memory; an amount that cannot be read counts as none.
#[derive(Default)]
struct Compute {
    /// Whether it says anything of what a pod as a whole may have.
    given: bool,
    requests: [Option<Quantity>; 2],
    limits: [Option<Quantity>; 2],
}

impl Compute {
    fn of(resources: &ResourceRequirements) -> Self {
        let list = |list: &Option<std::collections::BTreeMap<String, _>>| -> Vec<(String, String)> {
            let each = list.iter().flatten();
            each.map(|(name, amount): (_, &k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
                (name.clone(), amount.0.clone())
            })
            .collect()
        };
        Self::read(&list(&resources.requests), &list(&resources.limits))
    }

    fn of_json(holder: &Value) -> Self {
        let list = |pointer: &str| -> Vec<(String, String)> {
            let each = map(holder, pointer).iter();
            each.map(|(name, amount)| (name.clone(), amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)))
                .collect()
        };
        Self::read(&list("/resources/requests"), &list("/resources/limits"))
    }

    fn read(requests: &[(String, String)], limits: &[(String, String)]) -> Self {
        let counts = |name: &str| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
        let both = |list: &[(String, String)]| {
            ["cpu", "memory"].map(|wanted| {
                let (_, amount) = list.iter().find(|(name, _)| name == wanted)?;
                Quantity::parse(amount).ok()
            })
        };
        let given = requests.iter().chain(limits).any(|(name, _)| counts(name));
        Self { given, requests: both(requests), limits: both(limits) }
    }

    fn asks_for_nothing(&self) -> bool {
        !self.requests.iter().chain(&self.limits).flatten().any(is_positive)
    }

    /// Limited in both, and guaranteed as much. Where no request is given it is the limit, as defaulting makes it.
    fn is_guaranteed(&self) -> bool {
        self.requests.iter().zip(&self.limits).all(|(request, limit)| match (request, limit) {
            (_, None) => false,
            (None, Some(limit)) => is_positive(limit),
            (Some(request), Some(limit)) => is_positive(limit) && request == limit,
        })
    }
}

fn is_positive(amount: &Quantity) -> bool {
    !amount.is_zero() && !amount.is_negative()
}

fn class(pod: Option<Compute>, containers: impl Iterator<Item = Compute>) -> QosClass {
    let each: Vec<Compute> = match pod.filter(|pod| pod.given) {
        Some(pod) => vec![pod],
        None => containers.collect(),
    };
    if each.iter().all(Compute::asks_for_nothing) {
        QosClass::BestEffort
    } else if each.iter().all(Compute::is_guaranteed) {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Both readings of a spec agree.
    fn check(spec: &Value, expected: QosClass) {
        assert_eq!(QosClass::of_json(spec), expected, "{spec}");
        let typed: PodSpec = serde_json::from_value(spec.clone()).expect("a spec");
        assert_eq!(QosClass::of(&typed), expected, "{spec}");
    }

    fn one(resources: &Value) -> Value {
        json!({"containers": [{"name": "a", "resources": resources}]})
    }

    #[test]
    fn classes_follow_requests_and_limits_of_a_container() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, expected) in [
            (json!({}), BestEffort),
            (json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}), BestEffort),
            (json!({"requests": {"cpu": "0"}}), BestEffort),
            (json!({"requests": {"cpu": "1"}}), Burstable),
            (json!({"limits": {"memory": "1Gi"}}), Burstable),
            (json!({"limits": full}), Guaranteed),
            (json!({"limits": full, "requests": {"cpu": "1000m", "memory": "1024Mi"}}), Guaranteed),
            (json!({"limits": full, "requests": {"cpu": "500m"}}), Burstable),
            // A request of nothing is a request, and less than the limit.
            (json!({"limits": full, "requests": {"cpu": "0", "memory": "1Gi"}}), Burstable),
            (json!({"limits": {"cpu": "0", "memory": "1Gi"}}), Burstable),
        ] {
            check(&one(&resources), expected);
        }
    }

    #[test]
    fn every_container_counts_and_the_pod_before_them() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let container = |resources: &Value| json!({"name": "c", "resources": resources});
        let both = |first: &Value, second: &Value| json!({"containers": [container(first)], "initContainers": [container(second)]});
        check(&both(&full, &full), QosClass::Guaranteed);
        check(&both(&full, &json!({})), QosClass::Burstable);
        check(&both(&json!({}), &json!({})), QosClass::BestEffort);
        let with = |pod: Value, of: &Value| json!({"resources": pod, "containers": [container(of)]});
        check(&with(full.clone(), &json!({})), QosClass::Guaranteed);
        check(&with(json!({"requests": {"cpu": "1"}}), &full), QosClass::Burstable);
        // Amounts that a pod cannot have as a whole leave it to the containers.
        check(&with(json!({"requests": {"ephemeral-storage": "1Gi"}}), &full), QosClass::Guaranteed);
        check(&json!({"containers": []}), QosClass::BestEffort);
    }

    #[test]
    fn names_are_read_back() {
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            assert_eq!(QosClass::named(class.as_str()), Some(class));
        }
        assert_eq!(QosClass::named("Best"), None);
    }
}

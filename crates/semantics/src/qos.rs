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
mod tests;

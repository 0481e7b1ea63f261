//! A policy with its chains, where they are the same for all pods that it selects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::cluster_policy::ClusterPolicy;
use crate::compile::{Compiled, Family, compile, depends_on_pod};
use crate::pods;
use crate::policy::{Direction, Policy, Rule};

/// What has rules.
pub(crate) trait Ruling {
    /// None: it says nothing of this direction.
    fn rules(&self, direction: Direction) -> Option<&[Rule]>;

    /// Who is named beside each rule.
    fn by(&self) -> Option<Arc<str>>;
}

impl Ruling for Policy {
    fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        self.rules(direction)
    }

    /// The jump to its chain has one.
    fn by(&self) -> Option<Arc<str>> {
        None
    }
}

impl Ruling for ClusterPolicy {
    fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        Some(self.rules(direction)).filter(|rules| !rules.is_empty())
    }

    fn by(&self) -> Option<Arc<str>> {
        Some(format!("{} {}", self.tier.name(), self.name).into())
    }
}

pub(crate) struct Held<P> {
    pub(crate) policy: P,
    ingress: Option<Arc<Compiled>>,
    egress: Option<Arc<Compiled>>,
}

impl<P: Ruling> Held<P> {
    pub(crate) fn new(policy: P, families: &[Family]) -> Self {
        let shared = |direction| {
            let rules = policy.rules(direction).filter(|rules| !depends_on_pod(rules, direction))?;
            Some(Arc::new(compile(rules, direction, families, policy.by().as_ref(), |_, _| Vec::new())))
        };
        let (ingress, egress) = (shared(Direction::Ingress), shared(Direction::Egress));
        Self { policy, ingress, egress }
    }

    /// For other families.
    pub(crate) fn anew(self, families: &[Family]) -> Self {
        Self::new(self.policy, families)
    }

    /// For a pod; None where it says nothing of this direction.
    pub(crate) fn chain(&self, direction: Direction, families: &[Family], pod: &Pod) -> Option<Arc<Compiled>> {
        let shared = match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        };
        if shared.is_some() {
            return shared.clone();
        }
        let ports = |protocol, name: &str| pods::ports_named(pod, protocol, name);
        let rules = self.policy.rules(direction)?;
        Some(Arc::new(compile(rules, direction, families, self.policy.by().as_ref(), ports)))
    }
}

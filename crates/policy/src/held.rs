//! A policy with its chains, where they are the same for all pods that it selects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::cluster_policy::ClusterPolicy;
use crate::compile::{Compiled, Family, compile, depends_on_pod, refused, weight};
use crate::pods;
use crate::policy::{Direction, Policy, Protocol, Rule};

/// What has rules.
pub(crate) trait Ruling {
    /// None: it says nothing of this direction.
    fn rules(&self, direction: Direction) -> Option<&[Rule]>;

    /// Who is named beside each rule.
    fn by(&self) -> Option<Arc<str>>;

    /// For those who read what became of it.
    fn name(&self) -> String;
}

impl Ruling for Policy {
    fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        self.rules(direction)
    }

    /// The jump to its chain has one.
    fn by(&self) -> Option<Arc<str>> {
        None
    }

    fn name(&self) -> String {
        format!("NetworkPolicy {}/{}", self.namespace, self.name)
    }
}

impl Ruling for ClusterPolicy {
    fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        Some(self.rules(direction)).filter(|rules| !rules.is_empty())
    }

    fn by(&self) -> Option<Arc<str>> {
        Some(format!("{} {}", self.tier.name(), self.name).into())
    }

    fn name(&self) -> String {
        format!("ClusterNetworkPolicy {}", self.name)
    }
}

fn made<P: Ruling>(
    policy: &P,
    rules: &[Rule],
    direction: Direction,
    families: &[Family],
    ports_of: impl Fn(Protocol, &str) -> Vec<u16>,
) -> Arc<Compiled> {
    let compiled = compile(rules, direction, families, policy.by().as_ref(), ports_of);
    if let Some(why) = refusal(policy, &compiled) {
        tracing::warn!("{why}");
    }
    Arc::new(compiled)
}

fn refusal<P: Ruling>(policy: &P, compiled: &Compiled) -> Option<String> {
    let name = policy.name();
    let why = format!("{name} allows nothing here: its peers at all ports are more than a node keeps rules for");
    compiled.is_refused.then_some(why)
}

/// About how many rules a policy stands for on a node.
pub(crate) fn extent<P: Ruling>(policy: &P) -> usize {
    [Direction::Ingress, Direction::Egress]
        .into_iter()
        .map(|direction| policy.rules(direction).map_or(0, |rules| weight(rules, direction)))
        .sum()
}

pub(crate) struct Held<P> {
    pub(crate) policy: P,
    /// There is no room for its rules on this node.
    is_refused: bool,
    ingress: Option<Arc<Compiled>>,
    egress: Option<Arc<Compiled>>,
}

impl<P: Ruling> Held<P> {
    pub(crate) fn new(policy: P, families: &[Family]) -> Self {
        let shared = |direction| {
            let rules = policy.rules(direction).filter(|rules| !depends_on_pod(rules, direction))?;
            Some(made(&policy, rules, direction, families, |_, _| Vec::new()))
        };
        let (ingress, egress) = (shared(Direction::Ingress), shared(Direction::Egress));
        Self { policy, is_refused: false, ingress, egress }
    }

    /// One that there is no room for: it allows nothing.
    pub(crate) fn refused(policy: P) -> Self {
        tracing::warn!(
            "{} allows nothing here: those of its namespace are more than a node keeps rules for",
            policy.name()
        );
        let nothing = |direction| policy.rules(direction).map(|_| Arc::new(refused(direction)));
        let (ingress, egress) = (nothing(Direction::Ingress), nothing(Direction::Egress));
        Self { policy, is_refused: true, ingress, egress }
    }

    /// For other families.
    pub(crate) fn anew(self, families: &[Family]) -> Self {
        if self.is_refused { self } else { Self::new(self.policy, families) }
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
        Some(made(&self.policy, rules, direction, families, ports))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_allows_nothing_is_named() {
        let blocks: Vec<_> =
            (0..1000).map(|at| json!({"ipBlock": {"cidr": format!("10.0.{}.{}/32", at / 256, at % 256)}})).collect();
        for (ports, refused) in [(100, false), (1000, true)] {
            let ports: Vec<_> = (0..ports).map(|at| json!({"port": 2 * at + 1})).collect();
            let policy = json!({"metadata": {"name": "p", "namespace": "n"},
                "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": blocks, "ports": ports}]}});
            let policy = Policy::read(&serde_json::from_value(policy).expect("a policy"));
            let held = Held::new(policy, Family::FIRST);
            let compiled = held.egress.as_ref().expect("a chain");
            let why = refusal(&held.policy, compiled).unwrap_or_default();
            assert_eq!(why.starts_with("NetworkPolicy n/p allows nothing"), refused, "{why}");
        }
    }
}

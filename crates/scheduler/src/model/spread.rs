//! Constraints on how pods of one sort spread over domains, parsed once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};

use super::labels::{Labels, Selector};
use super::node::NodeInfo;
use super::pod::PodInfo;
use super::taints::is_repelled;
use super::tally::{PodSelector, Rule};

#[derive(Clone, Debug)]
pub struct Constraint {
    pub max_skew: i64,
    /// The pods that count, and the domains they are counted in.
    pub rule: Arc<Rule>,
    pub selector: Selector,
    pub min_domains: usize,
    pub honor_affinity: bool,
    pub honor_taints: bool,
}

impl Constraint {
    pub fn new(constraint: &TopologySpreadConstraint, namespace: &str, pod_labels: &Labels) -> Self {
        let mut selector = Selector::new(constraint.label_selector.as_ref());
        let keys = constraint.match_label_keys.iter().flatten();
        let same: Labels = keys.filter_map(|key| Some((key.clone(), pod_labels.get(key)?.clone()))).collect();
        selector.and(&same);
        Self {
            max_skew: constraint.max_skew.into(),
            min_domains: usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            ..Self::soft(constraint.topology_key.clone(), 1, namespace, selector)
        }
    }

    /// One without policies of its own.
    pub fn soft(topology_key: String, max_skew: i64, namespace: &str, selector: Selector) -> Self {
        // A selector that says nothing counts no pod, and yet matches the pod itself.
        let counted = if selector.is_empty() { Selector::nothing() } else { selector.clone() };
        let pods = PodSelector {
            namespaces: [namespace.to_owned()].into(),
            namespace_selector: Selector::nothing(),
            selector: counted,
        };
        Self {
            max_skew,
            rule: Arc::new(Rule { pods: vec![pods], ending: false, topology_key }),
            selector,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        }
    }

    pub fn topology_key(&self) -> &str {
        &self.rule.topology_key
    }

    /// Whether pods on some nodes do not count.
    pub fn is_choosy(&self, pod: &PodInfo) -> bool {
        self.honor_taints || (self.honor_affinity && !pod.node_requirement.is_any())
    }

    /// Whether the node's pods count: those of nodes the pod could never go to would only disturb the balance.
    pub fn counts_on(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (!self.honor_affinity || pod.node_requirement.matches(&node.name, &node.labels))
            && (!self.honor_taints || !is_repelled(&node.taints, pod.tolerations()))
    }
}

/// The pod's constraints of one sort.
pub fn constraints(spec: &PodSpec, action: &str, namespace: &str, labels: &Labels) -> Vec<Constraint> {
    let all = spec.topology_spread_constraints.iter().flatten();
    all.filter(|constraint| constraint.when_unsatisfiable == action)
        .map(|constraint| Constraint::new(constraint, namespace, labels))
        .collect()
}

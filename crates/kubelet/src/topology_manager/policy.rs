//! The policies of the topology manager, their options and their scope.

use std::collections::BTreeMap;

use super::hints::{self, Hint, Hints};
use super::numa::Numa;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopologyPolicy {
    /// Nobody is asked.
    #[default]
    None,
    /// A pod is taken wherever its resources are.
    BestEffort,
    /// A pod is refused whose resources need more NUMA nodes than they have to.
    Restricted,
    /// A pod is refused whose resources need several NUMA nodes.
    SingleNumaNode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopologyScope {
    #[default]
    Container,
    Pod,
}

/// What was said of the topology manager, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopologySettings {
    pub(crate) policy: TopologyPolicy,
    pub(crate) scope: TopologyScope,
    closest: bool,
    most_nodes: usize,
    /// The options as they were written.
    pub(crate) given: BTreeMap<String, String>,
}

const CLOSEST: &str = "prefer-closest-numa-nodes";
const MOST_NODES: &str = "max-allowable-numa-nodes";
/// The number of combinations doubles with every node.
const USUAL_MOST_NODES: usize = 8;

impl TopologyPolicy {
    const ALL: [Self; 4] = [Self::None, Self::BestEffort, Self::Restricted, Self::SingleNumaNode];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

impl TopologyScope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

impl Default for TopologySettings {
    fn default() -> Self {
        Self {
            policy: TopologyPolicy::None,
            scope: TopologyScope::Container,
            closest: false,
            most_nodes: USUAL_MOST_NODES,
            given: BTreeMap::new(),
        }
    }
}

impl TopologySettings {
    pub(crate) fn parse(policy: &str, scope: &str, given: &BTreeMap<String, String>) -> Result<Self, String> {
        let found = TopologyPolicy::ALL.into_iter().find(|known| known.name() == policy);
        let policy = found.ok_or_else(|| {
            format!(
                "invalid configuration: topologyManagerPolicy (--topology-manager-policy) {policy:?} must be one of: \
                 [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]"
            )
        })?;
        let found = [TopologyScope::Container, TopologyScope::Pod].into_iter().find(|known| known.name() == scope);
        let scope = found.ok_or_else(|| {
            format!(
                "invalid configuration: topologyManagerScope (--topology-manager-scope) {scope:?} must be one of: \
                 \"container\", or \"pod\""
            )
        })?;
        let mut settings = Self { policy, scope, given: given.clone(), ..Self::default() };
        if policy != TopologyPolicy::None {
            settings.take_options()?;
        }
        Ok(settings)
    }

    fn take_options(&mut self) -> Result<(), String> {
        for (name, value) in &self.given {
            match name.as_str() {
                CLOSEST => {
                    self.closest = match value.as_str() {
                        "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                        "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                        _ => {
                            return Err(format!("bad value for option {name:?}: {value:?} is neither true nor false"));
                        }
                    };
                }
                MOST_NODES => {
                    let most = value.parse::<i64>().map_err(|why| {
                        format!("unable to convert policy option to integer {name:?}: {value:?}: {why}")
                    })?;
                    self.most_nodes =
                        usize::try_from(most).ok().filter(|most| *most >= USUAL_MOST_NODES).ok_or_else(|| {
                            format!("the minimum value of {name:?} should not be less than {USUAL_MOST_NODES}")
                        })?;
                }
                _ => return Err(format!("unknown Topology Manager Policy option: {name:?}")),
            }
        }
        Ok(())
    }

    /// Whether the policy can be followed on a machine.
    pub(crate) fn fits(&self, numa: &Numa) -> Result<(), String> {
        if self.policy == TopologyPolicy::None {
            return Ok(());
        }
        if self.closest && numa.nodes().iter().any(|node| node.distances.is_empty()) {
            return Err("cannot discover NUMA topology: error getting NUMA distances from cadvisor".to_owned());
        }
        self.has_room_for(numa)
    }

    /// Whether there are few enough NUMA nodes to look at all combinations, and all of them fit into a set.
    pub(crate) fn has_room_for(&self, numa: &Numa) -> Result<(), String> {
        if numa.nodes().len() > self.most_nodes || numa.all().count() < numa.nodes().len() {
            return Err(format!("unsupported on machines with more than {} NUMA Nodes", self.most_nodes));
        }
        Ok(())
    }

    /// Where the resources are to be, and whether the pod may have them there.
    pub(super) fn merge(&self, numa: &Numa, providers: &[Hints]) -> (Hint, bool) {
        let lists = hints::lists(providers);
        match self.policy {
            TopologyPolicy::None => (Hint::default(), true),
            TopologyPolicy::BestEffort => (hints::best(&lists, numa, self.closest), true),
            TopologyPolicy::Restricted => {
                let best = hints::best(&lists, numa, self.closest);
                (best, best.preferred)
            }
            TopologyPolicy::SingleNumaNode => {
                let mut best = hints::best(&hints::single_node(lists), numa, false);
                if best.nodes == Some(numa.all()) {
                    best.nodes = None;
                }
                (best, best.preferred)
            }
        }
    }
}

#[cfg(test)]
mod tests;

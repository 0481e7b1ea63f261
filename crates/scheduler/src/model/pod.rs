//! A pod with everything that scheduling asks of it worked out once.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferry_semantics::host_ports::{self, HostPort};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec, Toleration, Volume};

use super::labels::{Labels, NodeRequirement, NodeTerm, Selector};
use super::resources::{Resources, assumed_requests_of, requests_of};
use super::spread::{Constraint, constraints};
use super::tally::{Attitude, Namespaces, PodSelector, Rule};

pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityTerm {
    pub rule: Arc<Rule>,
}

impl AffinityTerm {
    fn new(term: &PodAffinityTerm, own_namespace: &str) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(own_namespace.to_owned());
        }
        let pods = PodSelector {
            namespaces,
            namespace_selector: Selector::new(term.namespace_selector.as_ref()),
            selector: Selector::new(term.label_selector.as_ref()),
        };
        Self { rule: Arc::new(Rule { pods: vec![pods], ending: true, topology_key: term.topology_key.clone() }) }
    }

    pub fn topology_key(&self) -> &str {
        &self.rule.topology_key
    }

    pub fn matches(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        self.rule.matches(pod, namespaces)
    }
}

#[derive(Clone, Debug)]
pub struct Weighted<T> {
    pub weight: i64,
    pub term: T,
}

/// How a pod wants to stand towards other pods.
#[derive(Clone, Debug, Default)]
pub struct Affinities {
    pub required: Vec<AffinityTerm>,
    pub required_anti: Vec<AffinityTerm>,
    pub preferred: Vec<Weighted<AffinityTerm>>,
    pub preferred_anti: Vec<Weighted<AffinityTerm>>,
    /// One rule per required term: pods that fit all of the terms, over that term's domains.
    pub together: Vec<Arc<Rule>>,
}

impl Affinities {
    /// The terms as they concern others once the pod is placed.
    pub fn held(&self) -> impl Iterator<Item = (Attitude, Arc<Rule>)> {
        let of = |attitude| move |term: &AffinityTerm| (attitude, term.rule.clone());
        let likes =
            |sign: i64| move |w: &Weighted<AffinityTerm>| (Attitude::Likes(sign * w.weight), w.term.rule.clone());
        (self.required_anti.iter().map(of(Attitude::Repels)))
            .chain(self.required.iter().map(of(Attitude::Needs)))
            .chain(self.preferred.iter().map(likes(1)))
            .chain(self.preferred_anti.iter().map(likes(-1)))
    }

    pub fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.required_anti.is_empty()
            && self.preferred.is_empty()
            && self.preferred_anti.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct PodInfo {
    pub pod: Arc<Pod>,
    pub namespace: String,
    pub name: String,
    pub uid: Arc<str>,
    pub labels: Labels,
    pub priority: i32,
    pub scheduler: String,
    pub requests: Resources,
    pub assumed_requests: Resources,
    pub host_ports: Vec<HostPort>,
    pub node_requirement: Arc<NodeRequirement>,
    pub preferred_nodes: Vec<Weighted<NodeTerm>>,
    pub affinities: Affinities,
    /// Constraints on spreading that must hold, and those that should.
    pub hard_spread: Vec<Constraint>,
    pub soft_spread: Vec<Constraint>,
    pub gates: Vec<String>,
    /// Names of the claims its volumes use, within its namespace.
    pub claims: Vec<String>,
    /// Images of containers and image volumes, with a tag.
    pub images: Vec<String>,
    pub is_terminating: bool,
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let meta = &pod.metadata;
        let namespace = meta.namespace.clone().unwrap_or_default();
        let node_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            node_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = node_affinity
            .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|preferred| {
                let term = NodeTerm::new(&preferred.preference)?;
                Some(Weighted { weight: preferred.weight.into(), term })
            });
        let labels = meta.labels.clone().unwrap_or_default();
        Self {
            hard_spread: constraints(spec, "DoNotSchedule", &namespace, &labels),
            soft_spread: constraints(spec, "ScheduleAnyway", &namespace, &labels),
            labels,
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            priority: spec.priority.unwrap_or_default(),
            scheduler: spec.scheduler_name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
            requests: requests_of(spec),
            assumed_requests: assumed_requests_of(spec),
            host_ports: host_ports::of(spec),
            node_requirement: Arc::new(NodeRequirement::new(spec.node_selector.as_ref(), required)),
            preferred_nodes: preferred.collect(),
            affinities: affinities(spec, &namespace),
            gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
            claims: claims(spec, meta.name.as_deref().unwrap_or_default()),
            images: images(spec),
            is_terminating: meta.deletion_timestamp.is_some(),
            namespace,
            pod: pod.clone(),
        }
    }

    /// Whether it asks for spreading itself, so that defaults do not apply.
    pub fn spreads_itself(&self) -> bool {
        !self.hard_spread.is_empty() || !self.soft_spread.is_empty()
    }

    pub fn node_name(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }

    pub fn nominated_node(&self) -> Option<&str> {
        self.pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
    }

    pub fn tolerations(&self) -> &[Toleration] {
        self.pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
    }

    pub fn volumes(&self) -> &[Volume] {
        self.pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
    }

    /// Whether its containers have all ended, so that it takes nothing from its node.
    pub fn has_ended(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// The same pod with a newer object, when nothing that scheduling asks for has changed but its node.
    pub fn confirmed(&self, newer: &Arc<Pod>) -> Option<Arc<Self>> {
        let (old, new) = (self.pod.spec.as_ref()?, newer.spec.as_ref()?);
        let same = old.containers == new.containers
            && old.init_containers == new.init_containers
            && old.affinity == new.affinity
            && old.topology_spread_constraints == new.topology_spread_constraints
            && old.tolerations == new.tolerations
            && old.volumes == new.volumes
            && old.resources == new.resources
            && old.overhead == new.overhead
            && old.node_selector == new.node_selector
            && old.priority == new.priority
            && old.scheduling_gates == new.scheduling_gates
            && self.pod.metadata.labels == newer.metadata.labels
            && newer.metadata.deletion_timestamp.is_some() == self.is_terminating;
        let info = || Self { pod: newer.clone(), ..self.clone() };
        same.then(info).filter(|info| !info.has_ended()).map(Arc::new)
    }

    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn affinities(spec: &PodSpec, namespace: &str) -> Affinities {
    let Some(affinity) = &spec.affinity else { return Affinities::default() };
    let mut result = Affinities::default();
    let term = |term: &PodAffinityTerm| AffinityTerm::new(term, namespace);
    if let Some(affinity) = &affinity.pod_affinity {
        let required = affinity.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        result.required = required.map(term).collect();
        result.preferred =
            preferred.map(|p| Weighted { weight: p.weight.into(), term: term(&p.pod_affinity_term) }).collect();
    }
    if let Some(affinity) = &affinity.pod_anti_affinity {
        let required = affinity.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        result.required_anti = required.map(term).collect();
        result.preferred_anti =
            preferred.map(|p| Weighted { weight: p.weight.into(), term: term(&p.pod_affinity_term) }).collect();
    }
    let all: Vec<PodSelector> = result.required.iter().flat_map(|term| term.rule.pods.iter().cloned()).collect();
    let together = |term: &AffinityTerm| {
        Arc::new(Rule { pods: all.clone(), ending: true, topology_key: term.topology_key().to_owned() })
    };
    result.together = result.required.iter().map(together).collect();
    result
}

/// Ephemeral volumes have claims that are named after the pod.
fn claims(spec: &PodSpec, pod: &str) -> Vec<String> {
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{pod}-{}", volume.name)),
            _ => None,
        })
        .collect()
}

fn images(spec: &PodSpec) -> Vec<String> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers).filter_map(|c| c.image.as_deref());
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    containers.chain(volumes).map(tagged).collect()
}

/// An image's name as nodes report it: `latest` where no tag is given.
pub fn tagged(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') { image.to_owned() } else { format!("{image}:latest") }
}

//! The pod of a DaemonSet for one node, and which nodes should have one.

use ferry_client::owner;
use ferry_semantics::node_selector;
use ferry_semantics::taints::{NO_EXECUTE, NO_SCHEDULE, untolerated};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use kube::ResourceExt;

use crate::common::history::HASH_LABEL;
use crate::common::{pod, pod_control};

const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// Daemons stay where a node has problems: they may be what solves them.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

pub(super) fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut list = spec.tolerations.clone().unwrap_or_default();
    let host_network = (spec.host_network == Some(true)).then_some(TOLERATED_ON_HOST_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(host_network) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        if !list.contains(&toleration) {
            list.push(toleration);
        }
    }
    list
}

/// Whether a pod should be started on the node, and whether one that is there may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) start: bool,
    pub(super) stay: bool,
}

pub(super) fn fit(set: &DaemonSet, node: &Node) -> Fit {
    let no = Fit { start: false, stay: false };
    let Some(spec) = &set.spec.template.spec else { return no };
    let named = spec.node_name.as_deref().unwrap_or_default();
    if !(named.is_empty() || named == node.name_any()) || !node_selector::matches(spec, node) {
        return no;
    }
    let tolerations = tolerations(spec);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    Fit {
        start: untolerated(taints, &tolerations, &[NO_SCHEDULE, NO_EXECUTE]).is_none(),
        stay: untolerated(taints, &tolerations, &[NO_EXECUTE]).is_none(),
    }
}

/// The pod of the current revision for that node. The scheduler binds it: an affinity leaves it no other choice.
pub(super) fn pod_for(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let mut pod = pod_control::pod_from(&set.spec.template, set);
    pod.metadata.owner_references = Some(vec![owner::controller_reference(set)]);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.to_owned());
    if let Some(generation) = set.annotations().get(GENERATION_ANNOTATION) {
        labels.insert(GENERATION_LABEL.into(), generation.clone());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let here = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![here]), ..NodeSelectorTerm::default() };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

/// The node a pod is on, or is meant for while it is not bound.
pub(super) fn node_of(daemon: &Pod) -> Option<String> {
    let bound = pod::node(daemon);
    if !bound.is_empty() {
        return Some(bound.to_owned());
    }
    let affinity = daemon.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let named = fields.into_iter().find(|field| field.key == "metadata.name" && field.operator == "In");
    named?.values.as_ref()?.first().cloned()
}

/// The pod is of the current revision.
pub(super) fn is_current(set: &DaemonSet, hash: &str, daemon: &Pod) -> bool {
    let labels = daemon.labels();
    let generation = set.annotations().get(GENERATION_ANNOTATION);
    labels.get(HASH_LABEL).map(String::as_str) == Some(hash)
        || (generation.is_some() && labels.get(GENERATION_LABEL) == generation)
}

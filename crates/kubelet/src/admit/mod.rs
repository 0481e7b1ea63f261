//! Whether this node takes a pod that was bound to it. The scheduler has asked the same, but others bind pods too.
//!
//! What a pod asks for and cannot have here is a reason to refuse it: it is never run without.

mod resources;
mod unable;

use std::collections::{BTreeMap, BTreeSet};

use ferry_semantics::host_ports::{self, HostPorts};
use ferry_semantics::{node_selector, taints};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::cgroups::{request_of, requests};
use crate::preempt::Lack;
use crate::status::WaitReason;
use crate::{pod, quantity};

pub(crate) use unable::unable;

/// Why a pod is refused.
pub(crate) struct Refused {
    pub(crate) why: WaitReason,
    /// What it lacks, when that is the only reason: others may make room.
    pub(crate) lacks: Vec<Lack>,
}

/// What a pod is refused for; `others` are the pods the node has taken and that have not ended.
pub(crate) fn refusal<'a>(
    new: &Pod,
    others: impl Iterator<Item = &'a Pod> + Clone,
    allocatable: &BTreeMap<String, Quantity>,
    node: Option<&Node>,
) -> Option<Refused> {
    let lack = |key: &str, requested: i64, used: i64, capacity: Option<i64>| {
        let capacity = capacity.filter(|capacity| requested > 0 && used.saturating_add(requested) > *capacity)?;
        let why = WaitReason {
            reason: format!("OutOf{key}"),
            message: format!(
                "Node didn't have enough resource: {key}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        };
        Some((why, (key.to_owned(), requested.saturating_sub(capacity.saturating_sub(used)))))
    };
    let amount = |key: &str, number: fn(&Quantity) -> Option<i64>| allocatable.get(key).and_then(number);
    let (processor, memory) = requests(new);
    let used = others
        .clone()
        .map(requests)
        .fold((0_i64, 0_i64), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    let lacking = [
        lack("pods", 1, count, amount("pods", quantity::value)),
        lack("cpu", processor, used.0, amount("cpu", quantity::milli)),
        lack("memory", memory, used.1, amount("memory", quantity::value)),
    ];
    // The node's own kinds of resources; what no node has is the cluster's, and none of its business.
    let kinds = allocatable.keys().filter(|key| !["pods", "cpu", "memory"].contains(&key.as_str())).cloned();
    let kinds: BTreeSet<String> = kinds.chain(huge_pages(new)).collect();
    let others_use = |key: &str| others.clone().fold(0_i64, |sum, pod| sum.saturating_add(request_of(pod, key)));
    let more = kinds.iter().filter_map(|key| {
        let requested = request_of(new, key);
        let used = if requested > 0 { others_use(key) } else { 0 };
        lack(key, requested, used, Some(amount(key, quantity::value).unwrap_or(0)))
    });
    let (words, lacks): (Vec<WaitReason>, Vec<Lack>) = lacking.into_iter().flatten().chain(more).unzip();
    let others = [
        node.and_then(|node| misplaced(new, node)),
        ports_taken(new, others),
        node.and_then(|node| untolerated(new, node)),
    ];
    match (words.into_iter().next(), others.into_iter().flatten().next()) {
        (Some(why), None) => Some(Refused { why, lacks }),
        (Some(why), Some(_)) | (None, Some(why)) => Some(Refused { why, lacks: Vec::new() }),
        (None, None) => None,
    }
}

/// The sizes of huge pages that the pod asks for: a node that does not know one has none of it.
fn huge_pages(pod: &Pod) -> impl Iterator<Item = String> + '_ {
    let containers = pod::init_containers(pod).iter().chain(pod::containers(pod)).map(|c| c.resources.as_ref());
    let all = containers.chain([pod::spec(pod).resources.as_ref()]).flatten();
    let keys = all.flat_map(|r| r.requests.iter().chain(&r.limits).flat_map(BTreeMap::keys));
    keys.filter(|key| key.starts_with("hugepages-")).cloned()
}

fn failed(predicate: &str, why: &str) -> WaitReason {
    WaitReason { reason: predicate.to_owned(), message: format!("Predicate {predicate} failed: {why}") }
}

/// Whether the pod does not belong on the node by what the node says of itself: labels, taints.
pub(crate) fn belongs_elsewhere(new: &Pod, node: &Node) -> bool {
    misplaced(new, node).or_else(|| untolerated(new, node)).is_some()
}

/// Whether the pod wants to be on another node.
fn misplaced(new: &Pod, node: &Node) -> Option<WaitReason> {
    let fits = node_selector::matches(pod::spec(new), node);
    (!fits).then(|| failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"))
}

/// Only taints that drive pods away count here; those of files stay in spite of them.
fn untolerated(new: &Pod, node: &Node) -> Option<WaitReason> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tolerations = pod::spec(new).tolerations.as_deref().unwrap_or_default();
    let driven = !pod::is_static(new) && taints::untolerated(taints, tolerations, &[taints::NO_EXECUTE]).is_some();
    driven.then(|| failed("TaintToleration", "node(s) had taints that the pod didn't tolerate"))
}

fn ports_taken<'a>(new: &Pod, mut others: impl Iterator<Item = &'a Pod>) -> Option<WaitReason> {
    let wanted: HostPorts = host_ports::of(pod::spec(new)).iter().collect();
    let taken = !wanted.is_empty() && others.any(|other| wanted.conflict_with(&host_ports::of(pod::spec(other))));
    taken.then(|| failed("NodePorts", "node(s) didn't have free ports for the requested pod ports"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(container: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).expect("a pod")
    }

    #[test]
    fn a_pod_that_does_not_fit_is_refused() {
        let port = |number: u16, ip: &str, protocol: &str| json!({"name": "c", "ports": [{"containerPort": 1, "hostPort": number, "hostIP": ip, "protocol": protocol}]});
        let asks =
            |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let allocatable = [
            ("cpu", "2"),
            ("memory", "1Gi"),
            ("pods", "3"),
            ("ephemeral-storage", "10Gi"),
            ("hugepages-2Mi", "0"),
            ("example.com/gpu", "2"),
        ];
        let allocatable = allocatable.map(|(key, amount)| (key.to_owned(), Quantity(amount.to_owned()))).into();
        let check = |new: Value, others: &[Value], want: Option<&str>| {
            let others: Vec<Pod> = others.iter().cloned().map(of).collect();
            let refused = refusal(&of(new.clone()), others.iter(), &allocatable, Some(&Node::default()));
            assert_eq!(refused.map(|r| r.why.reason).as_deref(), want, "{new} beside {others:?}");
        };
        check(port(80, "", "TCP"), &[], None);
        check(port(80, "", "TCP"), &[port(80, "", "TCP")], Some("NodePorts"));
        check(port(80, "127.0.0.1", "TCP"), &[port(80, "0.0.0.0", "TCP")], Some("NodePorts"));
        check(port(80, "127.0.0.1", "TCP"), &[port(80, "192.0.2.1", "TCP")], None);
        check(port(80, "", "TCP"), &[port(80, "", "UDP"), port(81, "", "TCP")], None);
        check(asks("1500m", "1Mi"), &[asks("500m", "1Mi")], None);
        check(asks("1501m", "1Mi"), &[asks("500m", "1Mi")], Some("OutOfcpu"));
        check(asks("1m", "1025Mi"), &[], Some("OutOfmemory"));
        check(asks("0", "0"), &[asks("2", "1Gi")], None);
        check(asks("0", "0"), &[asks("0", "0"), asks("0", "0"), asks("0", "0")], Some("OutOfpods"));
        let of = |key: &str, amount: &str| json!({"name": "c", "resources": {"requests": {key: amount}, "limits": {key: amount}}});
        check(of("ephemeral-storage", "10Gi"), &[], None);
        check(of("ephemeral-storage", "6Gi"), &[of("ephemeral-storage", "6Gi")], Some("OutOfephemeral-storage"));
        check(of("hugepages-2Mi", "2Mi"), &[], Some("OutOfhugepages-2Mi"));
        check(of("hugepages-32Mi", "32Mi"), &[], Some("OutOfhugepages-32Mi"));
        check(of("example.com/gpu", "2"), &[], None);
        check(of("example.com/gpu", "2"), &[of("example.com/gpu", "1")], Some("OutOfexample.com/gpu"));
        // What the node has never heard of may be the whole cluster's.
        check(of("example.com/license", "1"), &[], None);
    }

    #[test]
    fn a_pod_that_belongs_elsewhere_is_refused() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "fast"}},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "7", "effect": "NoExecute"}]},
        }))
        .expect("a node");
        let check = |mut spec: Value, source: &str, want: Option<&str>| {
            spec["containers"] = json!([{"name": "c"}]);
            let metadata = json!({"name": "p", "annotations": {"kubernetes.io/config.source": source}});
            let new: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
            let refused = refusal(&new, std::iter::empty(), &BTreeMap::new(), Some(&node));
            assert_eq!(refused.map(|r| r.why.message).as_deref(), want, "{spec}");
            assert!(
                refusal(&new, std::iter::empty(), &BTreeMap::new(), None).is_none(),
                "nothing is known of the node"
            );
        };
        let tolerates = json!([{"key": "b", "operator": "Gt", "value": "5"}]);
        let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        let taint = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        check(json!({"tolerations": tolerates}), "api", None);
        check(json!({}), "api", Some(taint));
        check(json!({}), "file", None);
        check(json!({"tolerations": tolerates, "nodeSelector": {"disk": "fast"}}), "api", None);
        check(json!({"tolerations": tolerates, "nodeSelector": {"disk": "slow"}}), "api", Some(affinity));
        let required = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}]}}});
        check(json!({"tolerations": tolerates, "affinity": required}), "api", Some(affinity));
    }
}

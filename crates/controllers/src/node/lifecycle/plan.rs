//! What the state of a node means: its conditions when it is silent, and its taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::common::conditions;

const WATCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, the state in which it taints, the taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels of old that say what the ones of today say, which count.
const OLD_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The labels that have to change.
pub(super) fn labels(node: &Node) -> BTreeMap<&'static str, String> {
    let known = node.metadata.labels.as_ref();
    let value = |label: &str| known.and_then(|labels| labels.get(label));
    let wrong = OLD_LABELS.iter().filter(|(label, old)| value(label).is_some() && value(label) != value(old));
    wrong.filter_map(|(label, old)| Some((*old, value(label)?.clone()))).collect()
}

pub(super) fn state<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    let list = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions::find(list, kind).map(|condition| condition.status.as_str())
}

/// The status of a node that has not been heard of in time, or none when it says so already.
pub(super) fn silent(node: &Node, now: &Time) -> Option<NodeStatus> {
    let mut status = node.status.clone().unwrap_or_default();
    let list = status.conditions.get_or_insert_default();
    let mut changed = false;
    for kind in WATCHED {
        match list.iter_mut().find(|condition| condition.type_ == kind) {
            None => {
                changed = true;
                list.push(NodeCondition {
                    type_: kind.into(),
                    status: "Unknown".into(),
                    reason: Some("NodeStatusNeverUpdated".into()),
                    message: Some("Kubelet never posted node status.".into()),
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: Some(now.clone()),
                });
            }
            Some(condition) if condition.status != "Unknown" => {
                changed = true;
                condition.status = "Unknown".into();
                condition.reason = Some("NodeStatusUnknown".into());
                condition.message = Some("Kubelet stopped posting node status.".into());
                condition.last_transition_time = Some(now.clone());
            }
            Some(_) => {}
        }
    }
    changed.then_some(status)
}

/// The taints the node should have, or none when it has them. `evict` allows taints that drive pods away: not when
/// no node is well, since then it is more likely that the fault is ours. Order and foreign taints are kept.
pub(super) fn taints(node: &Node, evict: bool, now: &Time) -> Option<Vec<Taint>> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, when, key) in BY_CONDITION {
        if state(node, kind) == Some(when) {
            wanted.push((key, "NoSchedule"));
            if evict && kind == "Ready" {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    // A node without a Ready condition has not started yet.
    if state(node, "Ready").is_none() {
        wanted.push((NOT_READY, "NoSchedule"));
    }
    let spec = node.spec.as_ref();
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let old: Vec<Taint> = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let is_ours = |taint: &Taint| {
        let ours = BY_CONDITION.iter().any(|(.., key)| *key == taint.key) || taint.key == UNSCHEDULABLE;
        let evicts = taint.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
        ours && (taint.effect == "NoSchedule" || evicts)
    };
    let is = |taint: &Taint, (key, effect): (&str, &str)| taint.key == key && taint.effect == effect;
    let mut new: Vec<Taint> =
        old.iter().filter(|taint| !is_ours(taint) || wanted.iter().any(|wanted| is(taint, *wanted))).cloned().collect();
    for wanted in wanted {
        if !new.iter().any(|taint| is(taint, wanted)) {
            new.push(Taint {
                key: wanted.0.into(),
                effect: wanted.1.into(),
                value: None,
                time_added: Some(now.clone()),
            });
        }
    }
    (new != old).then_some(new)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn node(conditions: Value, taints: Value) -> Node {
        let json = json!({ "spec": { "taints": taints }, "status": { "conditions": conditions } });
        serde_json::from_value(json).expect("a node")
    }

    /// Taints as `key:effect` without the common prefix.
    fn check(conditions: &[(&str, &str)], before: &[&str], evict: bool, expected: Option<&[&str]>) {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, status)| json!({ "type": kind, "status": status })).collect();
        let taints: Vec<Value> = before
            .iter()
            .map(|text| {
                let (key, effect) = text.split_once(':').expect("a taint");
                json!({ "key": key.replace('~', "node.kubernetes.io/"), "effect": effect })
            })
            .collect();
        let made = taints_of(&node(json!(conditions), json!(taints)), evict);
        assert_eq!(made, expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()));
    }

    fn taints_of(node: &Node, evict: bool) -> Option<Vec<String>> {
        let taints = taints(node, evict, &Time(Timestamp::UNIX_EPOCH))?;
        let text = |taint: Taint| format!("{}:{}", taint.key.replace("node.kubernetes.io/", "~"), taint.effect);
        Some(taints.into_iter().map(text).collect())
    }

    #[test]
    fn conditions_become_taints() {
        check(&[("Ready", "True")], &[], true, None);
        check(&[], &[], true, Some(&["~not-ready:NoSchedule"]));
        check(&[("Ready", "True")], &["~not-ready:NoSchedule", "own:NoExecute"], true, Some(&["own:NoExecute"]));
        check(
            &[("Ready", "Unknown"), ("MemoryPressure", "True")],
            &["~not-ready:NoExecute"],
            true,
            Some(&["~unreachable:NoSchedule", "~unreachable:NoExecute", "~memory-pressure:NoSchedule"]),
        );
        check(&[("Ready", "False")], &[], false, Some(&["~not-ready:NoSchedule"]));
        check(&[("Ready", "False")], &["~not-ready:NoSchedule", "~not-ready:NoExecute"], true, None);
    }

    #[test]
    fn old_labels_follow_the_new_ones() {
        let check = |labels: Value, expected: &[(&str, &str)]| {
            let node = serde_json::from_value(json!({ "metadata": { "labels": labels } })).expect("a node");
            let made = super::labels(&node);
            assert_eq!(made.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>(), expected);
        };
        check(json!({}), &[]);
        check(json!({ "beta.kubernetes.io/os": "own" }), &[]);
        check(json!({ "kubernetes.io/os": "linux" }), &[("beta.kubernetes.io/os", "linux")]);
        check(
            json!({ "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64" }),
            &[("beta.kubernetes.io/arch", "arm64")],
        );
        check(json!({ "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux" }), &[]);
    }

    #[test]
    fn a_silent_node_becomes_unknown_once() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let mut node = node(json!([{ "type": "Ready", "status": "True" }]), json!([]));
        let status = silent(&node, &now).expect("a change");
        let reasons: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .map(|c| (c.type_.clone(), c.reason.clone().unwrap_or_default()))
            .collect();
        assert_eq!(reasons[0], ("Ready".into(), "NodeStatusUnknown".into()));
        assert_eq!(reasons[1], ("MemoryPressure".into(), "NodeStatusNeverUpdated".into()));
        node.status = Some(status);
        assert_eq!(silent(&node, &now), None);
    }
}

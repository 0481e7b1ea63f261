//! Pods that were ended by somebody else than themselves: their node was shut down or is gone, or room was made.

use ferry_meta::object;
use serde_json::Value;

use super::containers::replace;
use super::{Finding, Reason, said};
use crate::world::{World, standing};

/// By the reason that the kubelet wrote, or by the condition that whoever ends a pod writes before.
pub(super) fn finding(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    let target = standing(pod, "DisruptionTarget", "True");
    let by_condition = target.map(|target| object::text(target, "/reason")).unwrap_or_default();
    let message = object::text(pod, "/status/message");
    let cause = match (object::text(pod, "/status/reason"), by_condition) {
        ("NodeShutdown", _) => format!("the kubelet refused it: node {node} was shutting down"),
        // The kubelet has one reason for it, and the sentence is its own.
        ("Terminated", _) if message.contains("node shutdown") => {
            format!("the kubelet ended it: node {node} was shut down")
        }
        ("Preempting", _) => format!("the kubelet of {node} ended it to make room for a critical pod"),
        ("" | "NodeLost", "DeletionByPodGC") => {
            format!("it was ended by the pod garbage collector: its node {node} was gone")
        }
        ("", "PreemptionByScheduler") => "the scheduler ended it to make room for a pod of higher priority".to_owned(),
        ("", "DeletionByTaintManager") => {
            format!("it was evicted for a taint of node {node} that it does not tolerate")
        }
        ("", "EvictionByEvictionAPI") => "somebody evicted it, as a drain does".to_owned(),
        _ => return None,
    };
    let told = target.map(said).unwrap_or_default();
    Some(Finding::new(Reason::PodDisrupted, pod, cause).detail(message.trim()).detail(told).advise(replace(world, pod)))
}

//! Objects that are being deleted and are still there.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Hop, named, said};
use crate::world::{World, ago, number, standing, time_at, title};

/// A pod that was asked to end has until its grace period is over, and a little more for its kubelet to say so.
const SLACK_SECONDS: i64 = 5;

pub(super) fn held(world: &World, target: &Value) -> Option<Finding> {
    if !object::is_being_deleted(target) {
        return None;
    }
    if object::text(target, "/kind") == "Namespace" {
        return Some(namespace(target));
    }
    let finalizers: Vec<&str> = object::finalizers(target).collect();
    let since = time_at(target, "/metadata/deletionTimestamp");
    let since = since.map(|then| ago(world.now, then)).unwrap_or_default();
    if !finalizers.is_empty() {
        return Some(by_finalizers(target, &finalizers, &since));
    }
    if object::text(target, "/kind") == "Pod" {
        return pod(world, target);
    }
    Some(Finding::new(Hop::Deletion, target, format!("it is being deleted since {since}")).underway())
}

fn by_finalizers(target: &Value, finalizers: &[&str], since: &str) -> Finding {
    let cause = format!("its deletion waits for {} since {since}", named(finalizers));
    let mut finding = Finding::new(Hop::Deletion, target, cause);
    for finalizer in finalizers {
        finding = finding.advise(match *finalizer {
            "foregroundDeletion" => {
                "what it owns is deleted first; look for dependents that are held themselves".to_owned()
            }
            "kubernetes.io/pvc-protection" => {
                "a pod still uses this claim; delete the pod first (kubectl describe shows \"Used By\")".to_owned()
            }
            "kubernetes.io/pv-protection" => "a claim is still bound to this volume; delete the claim first".to_owned(),
            "batch.kubernetes.io/job-tracking" => {
                "the Job controller counts the pod and then lets go of it; see that it runs".to_owned()
            }
            "service.kubernetes.io/load-balancer-cleanup" => {
                "the cloud's controller removes the load balancer first; see that it runs".to_owned()
            }
            other => format!("whoever set {other} has to remove it: see that its controller runs and what it logs"),
        });
    }
    let patch = r#"--type=merge -p '{"metadata":{"finalizers":null}}'"#;
    let namespace = object::namespace(target);
    let place = if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") };
    finding.advise(format!("only if its controller is gone for good: kubectl patch {place}{} {patch}", title(target)))
}

fn pod(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    let ends = time_at(pod, "/metadata/deletionTimestamp")?;
    let left = ends.as_second() - world.now.as_second();
    if left > 0 {
        let grace = number(pod, "/metadata/deletionGracePeriodSeconds");
        let cause = format!("its containers have {left} s of {grace} s left to end by themselves");
        return Some(Finding::new(Hop::Deletion, pod, cause).underway());
    }
    let ready = world.find("nodes", node).map(|node| standing(node, "Ready", "True").is_some());
    let finding = match ready {
        Some(true) if -left <= SLACK_SECONDS => {
            return Some(Finding::new(Hop::Deletion, pod, "its kubelet is ending it").underway());
        }
        Some(true) => Finding::new(
            Hop::Deletion,
            pod,
            format!("node {node} is ready, but its kubelet has not ended the pod, {} s after it should have", -left),
        )
        .advise(format!("look at the kubelet's log on {node}: a volume or a container may not let go")),
        Some(false) => Finding::new(
            Hop::Deletion,
            pod,
            format!("node {node} is not ready, and only its kubelet can say that the pod has ended"),
        )
        .advise(format!("bring {node} back, or delete the node if it is gone for good: kubectl delete node {node}")),
        None => Finding::new(Hop::Deletion, pod, format!("its node {node} is not there any more"))
            .advise("the pod garbage collector deletes it shortly; see that the controllers run"),
    };
    Some(finding)
}

fn namespace(target: &Value) -> Finding {
    let mut finding = Finding::new(Hop::Deletion, target, "it is being emptied");
    let mut stuck = false;
    for (kind, advice) in [
        (
            "NamespaceDeletionDiscoveryFailure",
            "an APIService does not answer: kubectl get apiservices, repair or delete it",
        ),
        ("NamespaceDeletionGroupVersionParsingFailure", ""),
        (
            "NamespaceDeletionContentFailure",
            "something in it could not be deleted: a webhook or a right may be missing",
        ),
        ("NamespaceContentRemaining", ""),
        ("NamespaceFinalizersRemaining", "these objects wait for their finalizers: ask why of one of them"),
    ] {
        if let Some(condition) = standing(target, kind, "True") {
            stuck |= kind != "NamespaceContentRemaining";
            finding = finding.detail(said(condition));
            if !advice.is_empty() {
                finding = finding.advise(advice);
            }
        }
    }
    finding.underway = !stuck;
    if stuck {
        finding.cause = "it cannot be emptied".to_owned();
    }
    finding
}

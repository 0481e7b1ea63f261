//! A pod, from its way to a node until it is ready.

use ferry_meta::object;
use serde_json::Value;

use super::{Cause, Finding, Hop, containers, deletion, said, scheduling, service};
use crate::world::{World, ago, condition, is_true, standing, time_at};

/// In the order of the hops: the first that holds is the answer.
const CAUSES: [Cause; 14] = [
    deletion::held,
    ended,
    scheduling::gated,
    scheduling::unbound_claim,
    scheduling::scheduler_error,
    scheduling::unschedulable,
    lost_node,
    containers::image,
    containers::configuration,
    containers::crash,
    volumes,
    sandbox,
    containers::initialising,
    containers::probes,
];

pub(super) fn findings(world: &World, pod: &Value) -> Vec<Finding> {
    match first(world, pod) {
        Some(finding) => vec![finding],
        None => service::unlisted(world, pod).into_iter().collect(),
    }
}

/// What holds this pod up.
pub(super) fn first(world: &World, pod: &Value) -> Option<Finding> {
    if object::text(pod, "/status/phase") == "Succeeded" || is_serving(pod) {
        return None;
    }
    CAUSES.iter().chain(&[gates as Cause, starting]).find_map(|cause| cause(world, pod))
}

/// Ready and not about to go.
pub(super) fn is_serving(pod: &Value) -> bool {
    is_true(pod, "Ready") && !object::is_being_deleted(pod)
}

fn ended(_: &World, pod: &Value) -> Option<Finding> {
    if object::text(pod, "/status/phase") != "Failed" {
        return None;
    }
    let (reason, message) = (object::text(pod, "/status/reason"), object::text(pod, "/status/message"));
    let finding = match reason {
        "Evicted" => Finding::new(Hop::Node, pod, "its node evicted it for want of resources").detail(message).advise(
            "give the containers requests and limits that fit, or the node more room; delete the pod to tidy up",
        ),
        "DeadlineExceeded" => {
            Finding::new(Hop::Kubelet, pod, "it ran longer than spec.activeDeadlineSeconds").detail(message)
        }
        "" => containers::failed(pod),
        other => Finding::new(Hop::Node, pod, format!("it failed: {other}")).detail(message),
    };
    Some(finding)
}

fn lost_node(world: &World, pod: &Value) -> Option<Finding> {
    let (name, nodes) = (object::text(pod, "/spec/nodeName"), world.seen("nodes")?);
    let Some(node) = nodes.iter().find(|node| object::name(node) == name) else {
        let cause = format!("its node {name} does not exist");
        return Some(Finding::new(Hop::Node, pod, cause).advise("delete the pod; its controller makes another one"));
    };
    let ready = condition(node, "Ready")?;
    if object::text(ready, "/status") == "True" {
        return None;
    }
    let since = time_at(ready, "/lastTransitionTime").map(|then| ago(world.now, then)).unwrap_or_default();
    let finding =
        Finding::new(Hop::Node, pod, format!("its node {name} is not ready since {since}")).detail(said(ready));
    Some(finding.advise(format!("ferry why node/{name}")))
}

/// Volumes that cannot be had on the node.
fn volumes(world: &World, pod: &Value) -> Option<Finding> {
    if containers::any_started(pod) {
        return None;
    }
    let event = world.event(pod, &["FailedMount", "FailedAttachVolume", "FailedMapVolume"])?;
    let message = object::text(event, "/message");
    let finding = Finding::new(Hop::Kubelet, pod, "a volume cannot be mounted").detail(message);
    let missing = ["configmap", "secret"]
        .into_iter()
        .find(|kind| message.contains(&format!("{kind} \"")) && message.contains("not found"));
    Some(match missing {
        Some(kind) => finding.advise(format!("create the {kind} that it names, or mark the volume optional")),
        None => finding.advise("kubectl describe pod shows all attempts; look at the claim and its volume"),
    })
}

fn sandbox(world: &World, pod: &Value) -> Option<Finding> {
    if is_true(pod, "PodReadyToStartContainers") || containers::any_started(pod) {
        return None;
    }
    let event = world.event(pod, &["FailedCreatePodSandBox"])?;
    let finding = Finding::new(Hop::Kubelet, pod, "the runtime cannot make its sandbox and network");
    Some(
        finding
            .detail(object::text(event, "/message"))
            .advise("look at the network plug-in and the runtime of the node"),
    )
}

fn gates(_: &World, pod: &Value) -> Option<Finding> {
    standing(pod, "ContainersReady", "True")?;
    let missing: Vec<&str> = object::items(pod, "/spec/readinessGates")
        .iter()
        .map(|gate| object::text(gate, "/conditionType"))
        .filter(|name| !is_true(pod, name))
        .collect();
    (!missing.is_empty()).then(|| {
        let cause = format!("its containers are ready, but its readiness gates are not: {}", super::named(&missing));
        Finding::new(Hop::Ready, pod, cause).advise("whoever sets these conditions has not done so: see that it runs")
    })
}

/// Nothing is wrong that anybody has told of.
fn starting(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    let waiting: Vec<String> = object::items(pod, "/status/containerStatuses")
        .iter()
        .filter(|status| status["ready"].as_bool() != Some(true))
        .map(|status| {
            let reason = object::text(status, "/state/waiting/reason");
            let name = object::text(status, "/name");
            if reason.is_empty() { name.to_owned() } else { format!("{name} ({reason})") }
        })
        .collect();
    let since = condition(pod, "PodScheduled").and_then(|condition| time_at(condition, "/lastTransitionTime"));
    let since = since.map(|then| format!(" since {}", ago(world.now, then))).unwrap_or_default();
    let what =
        if waiting.is_empty() { "the kubelet has not said anything of it".to_owned() } else { waiting.join(", ") };
    let pulling = world.event(pod, &["Pulling"]).filter(|_| world.event(pod, &["Pulled"]).is_none());
    let finding = Finding::new(Hop::Kubelet, pod, format!("it is starting on node {node}{since}: {what}")).underway();
    Some(finding.detail(pulling.map(|event| object::text(event, "/message")).unwrap_or_default()))
}

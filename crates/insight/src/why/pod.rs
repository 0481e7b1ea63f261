//! A pod, from its way to a node until it is ready.

use ferry_meta::object;
use serde_json::Value;

use super::containers::{edit, replace};
use super::{
    Cause, Finding, Reason, cluster_objects, containers, crash, deletion, growth, image, network_policy, probes, said,
    scheduling, service, volume,
};
use crate::world::{World, ago, condition, is_true, number, standing, time_at};

/// In the order of the hops: the first that holds is the answer.
const CAUSES: [Cause; 18] = [
    deletion::held,
    ended,
    scheduling::gated,
    scheduling::unbound_claim,
    scheduling::devices,
    scheduling::scheduler_error,
    scheduling::unschedulable,
    lost_node,
    image::image,
    containers::configuration,
    crash::crash,
    volume::mount,
    sandbox,
    containers::initialising,
    crash::between_restarts,
    probes::probes,
    gates,
    starting,
];

pub(super) fn findings(world: &World, pod: &Value) -> Vec<Finding> {
    match first(world, pod) {
        Some(finding) => vec![finding],
        None => {
            let reached = growth::pod(world, pod).into_iter().chain(service::unlisted(world, pod));
            let reached = reached.chain(cut_off(world, pod)).chain(image::of_debugger(world, pod));
            reached.chain(network_policy::isolated(world, pod, network_policy::Traffic::Both)).collect()
        }
    }
}

/// It runs, and somebody drops its packets.
fn cut_off(world: &World, pod: &Value) -> Option<Finding> {
    let name = object::text(pod, "/spec/nodeName");
    let node = world.seen("nodes")?.iter().find(|node| object::name(node) == name)?;
    cluster_objects::dropping(node, pod).filter(|_| is_serving(pod))
}

/// What holds this pod up.
pub(super) fn first(world: &World, pod: &Value) -> Option<Finding> {
    if object::text(pod, "/status/phase") == "Succeeded" {
        return None;
    }
    if is_serving(pod) {
        return crash::between_restarts(world, pod);
    }
    CAUSES.iter().find_map(|cause| cause(world, pod))
}

/// Ready and not about to go.
pub(super) fn is_serving(pod: &Value) -> bool {
    is_true(pod, "Ready") && !object::is_being_deleted(pod)
}

fn ended(world: &World, pod: &Value) -> Option<Finding> {
    if object::text(pod, "/status/phase") != "Failed" {
        return None;
    }
    let (reason, message) = (object::text(pod, "/status/reason"), object::text(pod, "/status/message"));
    let node = object::text(pod, "/spec/nodeName");
    let finding = |reason: Reason, cause: String| Finding::new(reason, pod, cause).detail(message.trim());
    Some(match reason {
        "Evicted" if over_size(pod, message).is_some() => {
            let (volume, limit) = over_size(pod, message).unwrap_or_default();
            let cause = format!(
                "node {node} evicted it: its emptyDir volume {volume:?} has more in it than its sizeLimit of {limit}"
            );
            finding(Reason::Evicted, cause).advise(format!(
                "raise sizeLimit of {volume}, or let the program keep less there: {}",
                edit(world, pod)
            ))
        }
        "Evicted" if over_storage(pod, message).is_some() => {
            let limit = over_storage(pod, message).unwrap_or_default();
            let cause = format!(
                "node {node} evicted it: it wrote more to its own disk than its ephemeral-storage limit of {limit}"
            );
            finding(Reason::Evicted, cause).advise(format!(
                "raise limits.ephemeral-storage, or let the program write less, or into a volume: {}",
                edit(world, pod)
            ))
        }
        "Evicted" => finding(
            Reason::Evicted,
            format!("node {node} evicted it, for want of resources or because it used more than it may"),
        )
        .advise(format!(
            "give the containers requests and limits that fit, or the node more room: {}",
            edit(world, pod)
        ))
        .advise(replace(world, pod)),
        "DeadlineExceeded" => {
            let seconds = number(pod, "/spec/activeDeadlineSeconds");
            finding(Reason::PodDeadline, format!("it ran longer than its activeDeadlineSeconds of {seconds} s"))
                .advise(format!("raise activeDeadlineSeconds, or take it away: {}", edit(world, pod)))
        }
        "" => crash::failed(world, pod),
        rejected
            if rejected.starts_with("OutOf")
                || matches!(rejected, "NodeAffinity" | "NodeName" | "NodePorts" | "UnexpectedAdmissionError") =>
        {
            finding(Reason::PodRejected, format!("the kubelet of {node} refused it: {rejected}"))
                .detail("the node was chosen without the scheduler, or what it has changed since")
                .advise(replace(world, pod))
        }
        "SysctlForbidden"
        | "AppArmor"
        | "PodOSNotSupported"
        | "PodOSSelectorNodeLabelDoesNotMatch"
        | "TopologyAffinityError"
        | "InitContainerRestartPolicyForbidden"
        | "PodFeatureUnsupported" => {
            // The same pod would be refused there again.
            let remedy = match reason {
                "SysctlForbidden" => format!(
                    "take it out of securityContext.sysctls, or allow it on {node} (the kubelet's allowedUnsafeSysctls): {}",
                    edit(world, pod)
                ),
                "AppArmor" => format!(
                    "take appArmorProfile away, load the profile on {node}, or choose nodes that have AppArmor: {}",
                    edit(world, pod)
                ),
                _ => format!("correct what the message names, or choose other nodes: {}", edit(world, pod)),
            };
            finding(Reason::PodRejected, format!("the kubelet of {node} refused it: {reason}")).advise(remedy)
        }
        other => finding(Reason::PodFailed, format!("it failed: {other}")).advise(replace(world, pod)),
    })
}

/// The emptyDir that the kubelet names, with its limit.
fn over_size<'a>(pod: &'a Value, message: &str) -> Option<(&'a str, &'a str)> {
    object::items(pod, "/spec/volumes").iter().find_map(|volume| {
        let (name, limit) = (object::text(volume, "/name"), object::text(volume, "/emptyDir/sizeLimit"));
        (!limit.is_empty() && message.contains(&format!("{name:?}"))).then_some((name, limit))
    })
}

/// The limit of what containers write to their own disk, where the kubelet says that it was exceeded.
fn over_storage<'a>(pod: &'a Value, message: &str) -> Option<&'a str> {
    let told = message.starts_with("Pod ephemeral local storage usage exceeds")
        || message.contains("exceeded its local ephemeral storage limit");
    let limits = object::items(pod, "/spec/containers").iter();
    let mut limits = limits.map(|one| object::text(one, "/resources/limits/ephemeral-storage"));
    limits.find(|limit| told && !limit.is_empty() && message.contains(*limit))
}

fn lost_node(world: &World, pod: &Value) -> Option<Finding> {
    let (name, nodes) = (object::text(pod, "/spec/nodeName"), world.seen("nodes")?);
    let Some(node) = nodes.iter().find(|node| object::name(node) == name) else {
        let cause = format!("its node {name} does not exist");
        let finding = Finding::new(Reason::PodNodeMissing, pod, cause);
        // The scheduler says of every pod that it has placed it. Without that, the manifest names the node.
        return Some(match condition(pod, "PodScheduled") {
            Some(_) => finding.advise(replace(world, pod)),
            None => finding
                .detail("no scheduler has placed it: its manifest names the node (spec.nodeName)")
                .advise(format!("correct spec.nodeName, or take it away: {}", edit(world, pod))),
        });
    };
    let ready = condition(node, "Ready")?;
    if object::text(ready, "/status") == "True" {
        return None;
    }
    let since = time_at(ready, "/lastTransitionTime").map(|then| ago(world.now, then)).unwrap_or_default();
    let cause = format!("its node {name} is not ready since {since}");
    Some(Finding::new(Reason::PodNodeNotReady, pod, cause).detail(said(ready)).advise(format!("ferry why node/{name}")))
}

fn sandbox(world: &World, pod: &Value) -> Option<Finding> {
    if is_true(pod, "PodReadyToStartContainers") || containers::any_started(pod) {
        return None;
    }
    let event = world.event(pod, &["FailedCreatePodSandBox", "FailedPrepareDynamicResources"])?;
    let node = object::text(pod, "/spec/nodeName");
    let finding =
        Finding::new(Reason::Sandbox, pod, format!("the runtime of node {node} cannot make its sandbox and network"));
    let finding = finding.detail(object::text(event, "/message"));
    Some(match object::text(pod, "/spec/runtimeClassName") {
        "" => finding.advise(format!("look at the network plug-in and the runtime on {node}; ferry why node/{node}")),
        class => finding.detail(format!("it asks for the RuntimeClass {class:?}")).advise(format!(
            "see that the runtime of {node} knows the handler of that class: kubectl get runtimeclass {class} -o yaml"
        )),
    })
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
        Finding::new(Reason::ReadinessGate, pod, cause)
            .advise("whoever sets these conditions of the pod has not done so: see that this controller runs")
    })
}

/// Nothing is wrong that anybody has told of.
fn starting(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    let statuses = object::items(pod, "/status/containerStatuses");
    // A container that has done its work is not started again, and the others need not wait for it.
    let starts_again = matches!(object::text(pod, "/spec/restartPolicy"), "" | "Always");
    let is_done = |status: &Value| {
        !starts_again && status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0)
    };
    let is_ready = |status: &Value| status["ready"].as_bool() == Some(true);
    if statuses.iter().any(is_done) && statuses.iter().all(|status| is_done(status) || is_ready(status)) {
        return None;
    }
    let waiting: Vec<String> = statuses
        .iter()
        .filter(|status| !is_ready(status) && !is_done(status))
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
    let cause = format!("it is starting on node {node}{since}: {what}");
    let finding = Finding::new(Reason::Starting, pod, cause).underway();
    Some(finding.detail(pulling.map(|event| object::text(event, "/message")).unwrap_or_default()))
}

//! A pod, from its way to a node until it is ready.

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::Value;

use super::containers::{edit, replace};
use super::{
    Cause, Finding, Reason, cluster_objects, containers, crash, deletion, devices, disruption, fit, growth, image,
    is_soon, network_policy, probes, said, scheduling, service, volume,
};
use crate::world::{World, ago, condition, event_time, is_true, number, span, standing, time_at};

/// In the order of the hops: the first that holds is the answer.
const CAUSES: [Cause; 18] = [
    deletion::held,
    ended,
    scheduling::gated,
    scheduling::unbound_claim,
    devices::of_pod,
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
        return crash::between_restarts(world, pod).or_else(|| unheard(world, pod));
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
    if let Some(disrupted) = disruption::finding(world, pod) {
        return Some(disrupted);
    }
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
            let found = finding(Reason::PodRejected, format!("the kubelet of {node} refused it: {rejected}"));
            let checked = fit::check(world, pod).unwrap_or_default();
            let here: Vec<fit::Checked<'_>> = checked.into_iter().filter(|one| one.node == node).collect();
            let still = fit::lines(&here);
            // What would be refused again is not to be made again as it is.
            if still.is_empty() {
                return Some(
                    found
                        .detail("the node was chosen without the scheduler, or what it has changed since")
                        .advise(replace(world, pod)),
                );
            }
            let found = still.into_iter().fold(found, Finding::detail);
            fit::advice(world, &here, &edit(world, pod)).into_iter().fold(found, Finding::advise).advise(
                "if its manifest names the node (spec.nodeName), take that away: the scheduler finds one that fits",
            )
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

/// It was ready when its kubelet was last heard of, which is a while ago.
fn unheard(world: &World, pod: &Value) -> Option<Finding> {
    let node = world.find("nodes", object::text(pod, "/spec/nodeName"))?;
    let since = time_at(condition(node, "Ready")?, "/lastTransitionTime")?;
    let long = world.now.as_second() - since.as_second() > UNHEARD_SECONDS;
    let found = lost_node(world, pod).filter(|_| long)?;
    Some(found.detail("the pod still counts as ready: nobody has marked it otherwise"))
}

fn sandbox(world: &World, pod: &Value) -> Option<Finding> {
    if is_true(pod, "PodReadyToStartContainers") || containers::any_started(pod) {
        return None;
    }
    let event = world.event(pod, &["FailedCreatePodSandBox", "FailedPrepareDynamicResources"])?;
    let node = object::text(pod, "/spec/nodeName");
    if object::text(event, "/reason") == "FailedPrepareDynamicResources" {
        let cause = format!("the kubelet of {node} cannot get its devices ready (spec.resourceClaims)");
        return Some(
            Finding::new(Reason::DeviceClaim, pod, cause)
                .detail(object::text(event, "/message"))
                .advise(format!("see that the driver of these devices runs on {node}, and what it logs")),
        );
    }
    let finding =
        Finding::new(Reason::Sandbox, pod, format!("the runtime of node {node} cannot make its sandbox and network"));
    let finding = finding.detail(object::text(event, "/message"));
    if pod.pointer("/spec/hostUsers").and_then(Value::as_bool) == Some(false)
        && object::text(event, "/message").contains("user namespace")
    {
        return Some(finding.detail("it asks for users of its own (spec.hostUsers: false)").advise(format!(
            "choose nodes whose runtime and kernel have user namespaces, or take hostUsers away: {}",
            edit(world, pod)
        )));
    }
    Some(match object::text(pod, "/spec/runtimeClassName") {
        "" => finding.advise(format!("look at the network plug-in and the runtime on {node}; ferry why node/{node}")),
        class => finding.detail(format!("it asks for the RuntimeClass {class:?}")).advise(format!(
            "see that the runtime of {node} knows the handler of that class: kubectl get runtimeclass {class} -o yaml"
        )),
    })
}

fn gates(world: &World, pod: &Value) -> Option<Finding> {
    let ready = standing(pod, "ContainersReady", "True")?;
    let since = time_at(ready, "/lastTransitionTime");
    let missing: Vec<&str> = object::items(pod, "/spec/readinessGates")
        .iter()
        .map(|gate| object::text(gate, "/conditionType"))
        .filter(|name| !is_true(pod, name))
        .collect();
    (!missing.is_empty()).then(|| {
        let cause = format!("its containers are ready, but its readiness gates are not: {}", super::named(&missing));
        Finding::new(Reason::ReadinessGate, pod, cause)
            .underway_if(since.is_some_and(|since| is_soon(world, since)))
            .advise("whoever sets these conditions of the pod has not done so: see that this controller runs")
    })
}

/// So long the controller of nodes may take to mark the pods of a node that is lost.
const UNHEARD_SECONDS: i64 = 120;

/// A kubelet that says nothing of a pod for so long does not work on it.
const SILENT_SECONDS: i64 = 600;

/// So long a kubelet may try again before what it warns of counts.
const TRIES_SECONDS: i64 = 60;

/// The kubelet warns of something that nothing here knows.
fn warned(world: &World, pod: &Value, scheduled: Option<Timestamp>) -> Option<Finding> {
    let newest = world.events(pod).pop().filter(|event| object::text(event, "/type") == "Warning")?;
    let of_before = ["FailedScheduling", "Preempted", "Unhealthy", "BackOff"];
    // What the scheduler or a container of before met is over.
    if of_before.contains(&object::text(newest, "/reason")) || event_time(newest) < scheduled {
        return None;
    }
    let node = object::text(pod, "/spec/nodeName");
    let cause = format!("the kubelet of {node} cannot start it: {}", object::text(newest, "/reason"));
    let early = scheduled.is_none_or(|at| world.now.as_second() - at.as_second() < TRIES_SECONDS);
    Some(
        Finding::new(Reason::Starting, pod, cause)
            .probably()
            .underway_if(early)
            .detail(said(newest))
            .advise(format!("correct what the message names: {}", edit(world, pod)))
            .advise(format!("or, where it is about the node: ferry why node/{node}")),
    )
}

/// Nothing is wrong that anybody has told of.
fn starting(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    let statuses = object::items(pod, "/status/containerStatuses");
    // A container that has done its work is not started again, and the others need not wait for it.
    let starts_again = |status: &Value| containers::restart_policy(pod, object::text(status, "/name")) == "Always";
    let is_done = |status: &Value| {
        !starts_again(status) && status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0)
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
    let scheduled = condition(pod, "PodScheduled").and_then(|condition| time_at(condition, "/lastTransitionTime"));
    let since = scheduled.map(|then| format!(" since {}", ago(world.now, then))).unwrap_or_default();
    let what =
        if waiting.is_empty() { "the kubelet has not said anything of it".to_owned() } else { waiting.join(", ") };
    let pulling = world.event(pod, &["Pulling"]).filter(|_| world.event(pod, &["Pulled"]).is_none());
    let cause = format!("it is starting on node {node}{since}: {what}");
    let finding = Finding::new(Reason::Starting, pod, cause);
    if let Some(pulling) = pulling {
        return Some(finding.underway().detail(object::text(pulling, "/message")));
    }
    if let Some(finding) = warned(world, pod, scheduled) {
        return Some(finding);
    }
    // A kubelet that is at work says something of it.
    let told = world.events(pod).into_iter().filter_map(event_time).chain(scheduled).max();
    let silent = told.map(|at| world.now.as_second() - at.as_second()).unwrap_or(0);
    if silent < SILENT_SECONDS || world.seen("events").is_none() {
        return Some(finding.underway());
    }
    let what = if waiting.is_empty() { String::new() } else { format!(": {what}") };
    let cause = format!(
        "the kubelet of {node} does not go on with it, and has said nothing of it for {}{what}",
        span(silent.saturating_mul(1_000_000))
    );
    Some(
        Finding::new(Reason::Starting, pod, cause)
            .probably()
            .advise(format!("ferry why node/{node}"))
            .advise(format!("look at the kubelet's log on {node}")),
    )
}

//! Nodes: on the way into the cluster, lost, short of something.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, budget, cluster_objects, deletion, is_soon, is_young, named, plural, rollout, said};
use crate::gather::{ALL_BUDGETS, ALL_PODS};
use crate::nodes::{CERTIFICATES, KUBELET, LEASE, REMOVALS};
use crate::world::{World, ago, condition, standing, time_at};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

pub(super) fn findings(world: &World, node: &Value) -> Vec<Finding> {
    if object::uid(node).is_empty() && node.get("status").is_none() {
        return vec![joining(world, node)];
    }
    let name = object::name(node);
    let finding = |reason: Reason, cause: String| Finding::new(reason, node, cause);
    let Some(ready) = condition(node, "Ready") else {
        return vec![
            finding(Reason::NodeSilent, "its kubelet has not said anything yet".into())
                .underway_if(is_young(world, node))
                .advise(format!("see that the kubelet runs on {name}")),
        ];
    };
    let since = time_at(ready, "/lastTransitionTime").map(|then| ago(world.now, then)).unwrap_or_default();
    match object::text(ready, "/status") {
        "True" => {}
        "Unknown" if object::text(ready, "/reason") == NEVER_UPDATED && world.all(LEASE).is_empty() => {
            return vec![never_heard_of(world, node)];
        }
        "Unknown" => return vec![lost(world, node, ready, &since)],
        _ => {
            let said = said(ready);
            let finding = finding(Reason::NodeNotReady, format!("its kubelet says that it is not ready since {since}"))
                .detail(said)
                .underway_if(is_young(world, node));
            let has_range = !object::text(node, "/spec/podCIDR").is_empty();
            // Without a range there is no network; whether it is the network at all, only the message tells.
            let network = object::text(ready, "/message").contains("NetworkPluginNotReady")
                || object::text(ready, "/message").contains("network is not ready")
                || standing(node, "NetworkUnavailable", "True").is_some();
            return vec![match (network, has_range) {
                (true, false) => finding.detail("it has no range of pod addresses (spec.podCIDR)").advise(
                    "see that the cluster's range has room for another node, and that the node IPAM controller runs",
                ),
                (true, true) => finding.advise("see that the network plug-in is installed on it and runs"),
                (false, _) => finding.advise(format!("look at the kubelet's log on {name}")),
            }];
        }
    }
    let mut found = Vec::new();
    for (kind, what) in [
        ("MemoryPressure", "memory"),
        ("DiskPressure", "disk"),
        ("PIDPressure", "process ids"),
        ("NetworkUnavailable", "network"),
    ] {
        if let Some(short) = standing(node, kind, "True") {
            let cause = match kind {
                "NetworkUnavailable" => "its network is not set up: new pods stay away".to_owned(),
                _ => format!("it is short of {what}: new pods stay away, and some may be evicted"),
            };
            let do_that = match kind {
                "NetworkUnavailable" => "see that the network plug-in or the routes of the cloud are set up".to_owned(),
                "DiskPressure" => format!("remove images and files on {name}, or end pods there"),
                _ => format!("end pods on {name}: kubectl get pods -A --field-selector spec.nodeName={name}"),
            };
            found.push(finding(Reason::NodePressure, cause).detail(said(short)).advise(do_that));
        }
    }
    found.extend(problem(node));
    found.extend(left_taint(world, node));
    found.extend(cluster_objects::dropping(node, node));
    if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        let cordoned = finding(Reason::NodeCordoned, "it is cordoned: no new pods come".into())
            .note()
            .advise(format!("kubectl uncordon {name}"));
        found.push(cordoned);
        found.extend(drain_blocked(world, node));
    }
    found.extend(taints(node));
    if let Some(request) = open_request(world, SERVING) {
        let cause = "its kubelet waits for a serving certificate: logs, exec and port-forward do not work there";
        found.push(
            finding(Reason::NodeCertificate, cause.into())
                .advise(format!("kubectl certificate approve {}", object::name(request))),
        );
    }
    found
}

/// What the node lifecycle controller writes where no kubelet has ever written anything.
const NEVER_UPDATED: &str = "NodeStatusNeverUpdated";

/// Somebody made the Node, and no kubelet has come for it.
fn never_heard_of(world: &World, node: &Value) -> Finding {
    let name = object::name(node);
    let made = time_at(node, "/metadata/creationTimestamp").map(|then| ago(world.now, then)).unwrap_or_default();
    let cause = format!("no kubelet has ever said anything for it: it was made {made} ago, and has no status");
    Finding::new(Reason::NodeSilent, node, cause)
        .detail("a Node that somebody makes by hand is a machine only when a kubelet of that name runs")
        .advise(format!("start the kubelet on the machine {name}, as with `ferry join`"))
        .advise(format!("or, if there is no such machine: kubectl delete node {name}"))
}

/// A node that is to be emptied, and a budget that lets none of its pods go.
fn drain_blocked(world: &World, node: &Value) -> Option<Finding> {
    let name = object::name(node);
    let on_it = |pod: &&Value| object::text(pod, "/spec/nodeName") == name;
    for pod in world.all(ALL_PODS).iter().filter(on_it).filter(|pod| is_drained(pod)) {
        let mut over: Vec<&Value> =
            world.all(ALL_BUDGETS).iter().filter(|budget| budget::selects(budget, pod)).collect();
        if let [first, second, ..] = over.as_slice() {
            let place = object::namespace(pod);
            let cause = format!(
                "it cannot be drained: two PodDisruptionBudgets select the pod {} in {place}, {} and {}, and such a pod is evicted by nobody",
                object::name(pod),
                object::name(first),
                object::name(second)
            );
            let why = format!("ferry why -n {place} pdb/{}", object::name(first));
            return Some(Finding::new(Reason::DrainBlocked, node, cause).advise(why));
        }
        over.retain(|budget| budget::keeps(budget, pod));
        if let Some(budget) = over.first() {
            let (place, title) = (object::namespace(pod), object::name(budget));
            let cause = format!(
                "it cannot be drained: the PodDisruptionBudget {title} lets no pod like {} in {place} go",
                named(&[object::name(pod)])
            );
            return Some(
                Finding::new(Reason::DrainBlocked, node, cause)
                    .detail(budget::counted(budget))
                    .advise(format!("ferry why -n {place} pdb/{title}")),
            );
        }
    }
    // What was evicted and does not go keeps a drain waiting.
    let going = world.all(ALL_PODS).iter().filter(on_it).filter(|pod| object::is_being_deleted(pod));
    let held = going.filter_map(|pod| deletion::held(world, pod)).find(|held| !held.underway)?;
    let cause = "it cannot be drained: a pod that is to go does not";
    Some(Finding::new(Reason::DrainBlocked, node, cause).because_of(held))
}

/// The taint of a node that its cloud's controller has not looked at.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Somebody puts it on a node that is off for good, and takes it away when the node is back.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Conditions of the node problem detector: they tell of something bad where they stand at True.
const PROBLEMS: [&str; 8] = [
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "CorruptDockerOverlay2",
    "FrequentKubeletRestart",
    "FrequentContainerdRestart",
    "FrequentUnregisterNetDevice",
    "ContainerRuntimeUnhealthy",
    "KubeletUnhealthy",
];

/// What a detector on the node has found.
fn problem(node: &Value) -> Option<Finding> {
    let standing = PROBLEMS.into_iter().find_map(|name| standing(node, name, "True"))?;
    let cause = format!("a detector on it reports {}: {}", object::text(standing, "/type"), said(standing));
    let name = object::name(node);
    Some(
        Finding::new(Reason::NodeProblem, node, cause)
            .advise(format!("empty it and look at the machine: kubectl drain {name} --ignore-daemonsets")),
    )
}

/// Taints that tell of a condition, with the status at which they stand.
const OF_CONDITIONS: [(&str, &str, &[&str]); 6] = [
    ("node.kubernetes.io/not-ready", "Ready", &["False"]),
    ("node.kubernetes.io/unreachable", "Ready", &["Unknown"]),
    ("node.kubernetes.io/memory-pressure", "MemoryPressure", &["True"]),
    ("node.kubernetes.io/disk-pressure", "DiskPressure", &["True"]),
    ("node.kubernetes.io/pid-pressure", "PIDPressure", &["True"]),
    ("node.kubernetes.io/network-unavailable", "NetworkUnavailable", &["True"]),
];

/// A taint that was left behind: its condition has changed, and nobody has taken it away.
fn left_taint(world: &World, node: &Value) -> Option<Finding> {
    let has = |key: &str| object::items(node, "/spec/taints").iter().find(|taint| object::text(taint, "/key") == key);
    let (taint, said) = OF_CONDITIONS.into_iter().find_map(|(key, kind, bad)| {
        let (taint, says) = (has(key)?, condition(node, kind)?);
        let is_over = !bad.contains(&object::text(says, "/status"));
        let late = time_at(says, "/lastTransitionTime").is_some_and(|since| !is_soon(world, since));
        (is_over && late).then_some((taint, says))
    })?;
    let (name, key, effect) = (object::name(node), object::text(taint, "/key"), object::text(taint, "/effect"));
    let cause = format!(
        "it keeps pods away by the taint {key}:{effect}, though it says {}={}: nobody has taken the taint away",
        object::text(said, "/type"),
        object::text(said, "/status")
    );
    Some(
        Finding::new(Reason::NodeTaints, node, cause)
            .advise(rollout::CONTROLLERS)
            .advise(format!("or take it away: kubectl taint nodes {name} {key}:{effect}-")),
    )
}

/// Taints that somebody has put on it keep pods away. Those that tell of its state are told by its conditions.
fn taints(node: &Value) -> Option<Finding> {
    let keeps = |taint: &&Value| {
        let (key, effect) = (object::text(taint, "/key"), object::text(taint, "/effect"));
        effect != "PreferNoSchedule" && (!key.starts_with("node.kubernetes.io/") || key == OUT_OF_SERVICE)
    };
    let all: Vec<&Value> = object::items(node, "/spec/taints").iter().filter(keeps).collect();
    let name = object::name(node);
    if all.iter().any(|taint| object::text(taint, "/key") == UNINITIALIZED) {
        let cause =
            format!("no pods come: it has the taint {UNINITIALIZED} until the cloud's controller has looked at it");
        return Some(
            Finding::new(Reason::NodeUninitialized, node, cause)
                .advise("see that the cloud-controller-manager runs, and what it logs")
                .advise(format!(
                    "if there is none, start the kubelet without --cloud-provider=external and take the taint away: kubectl taint nodes {name} {UNINITIALIZED}-"
                )),
        );
    }
    let texts: Vec<String> = all
        .iter()
        .map(|taint| {
            let (key, value) = (object::text(taint, "/key"), object::text(taint, "/value"));
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            format!("{key}{value}:{}", object::text(taint, "/effect"))
        })
        .collect();
    let first = texts.first()?;
    let cause = format!("only pods that tolerate its taint {} come", named(&texts));
    Some(Finding::new(Reason::NodeTaints, node, cause).note().advise(format!("kubectl taint nodes {name} {first}-")))
}

/// Whether a drain would evict this pod: not one of a DaemonSet, nor what is over, going, or the node's own.
fn is_drained(pod: &Value) -> bool {
    let owners = object::items(pod, "/metadata/ownerReferences");
    let of_daemons =
        owners.iter().any(|owner| owner["controller"] == true && object::text(owner, "/kind") == "DaemonSet");
    let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    let is_mirror = object::annotations(pod).contains_key("kubernetes.io/config.mirror");
    !of_daemons && !over && !is_mirror && !object::is_being_deleted(pod)
}

/// Nothing is heard of it: whether the servers hear nothing because it is off, or because it is cut off.
fn lost(world: &World, node: &Value, ready: &Value, since: &str) -> Finding {
    let name = object::name(node);
    let renewed = world.all(LEASE).first().and_then(|lease| time_at(lease, "/spec/renewTime"));
    let beat = renewed.or_else(|| time_at(ready, "/lastHeartbeatTime"));
    let beat = beat.map(|then| format!("; the last heartbeat was {} ago", ago(world.now, then))).unwrap_or_default();
    let mut finding =
        Finding::new(Reason::NodeLost, node, format!("its heartbeats stopped: it counts as lost since {since}{beat}"));
    match world.all(KUBELET).first().map(|kubelet| (kubelet["answers"] == true, object::text(kubelet, "/why"))) {
        Some((true, _)) => {
            finding = finding
                .detail("its kubelet answers the API server, so that the machine runs")
                .advise(format!("see in the log of {name} why it does not reach the API server: an address, a rule for packets, or its clock"));
        }
        Some((false, why)) => {
            finding = finding
                .detail("the API server does not reach its kubelet either: the machine is off, or cut off")
                .detail(why)
                .advise(format!("see that the machine {name} runs and has its network"));
        }
        None => {
            finding = finding.advise(format!(
                "see that the machine {name} runs, its kubelet too, and that it reaches the API server"
            ));
        }
    }
    let is_lost = |node: &&Value| standing(node, "Ready", "Unknown").is_some();
    let (all, others) = (world.all("nodes").len(), world.all("nodes").iter().filter(is_lost).count());
    if others > 1 {
        finding = finding.detail(format!("{} of {all} are lost at the same time", plural(others, "node")));
    }
    finding.advise(format!(
        "if it is off for good: `ferry node remove {name} --force`, and its pods are made again elsewhere"
    ))
}

fn has_condition(request: &Value, kind: &str) -> bool {
    condition(request, kind).is_some_and(|found| object::text(found, "/status") != "False")
}

fn has_certificate(request: &Value) -> bool {
    !object::text(request, "/status/certificate").is_empty()
}

/// The newest request that nobody judged yet.
fn open_request<'a>(world: &'a World, signer: &str) -> Option<&'a Value> {
    newest(world, signer).filter(|request| {
        !has_certificate(request) && !["Approved", "Denied", "Failed"].iter().any(|kind| has_condition(request, kind))
    })
}

fn newest<'a>(world: &'a World, signer: &str) -> Option<&'a Value> {
    let of = world.all(CERTIFICATES).iter().filter(|request| object::text(request, "/spec/signerName") == signer);
    of.max_by_key(|request| time_at(request, "/metadata/creationTimestamp"))
}

/// There is no Node of this name: which step on the way to it is stuck.
fn joining(world: &World, node: &Value) -> Finding {
    let name = object::name(node);
    let finding = |cause: String| Finding::new(Reason::NodeJoining, node, cause);
    let removed = world.all(REMOVALS).first().and_then(|times| time_at(times, &format!("/{name}")));
    let request = newest(world, CLIENT).filter(|request| {
        // What was asked for before the removal is of no use any more.
        removed.is_none_or(|removed| time_at(request, "/metadata/creationTimestamp").is_some_and(|then| then > removed))
    });
    let Some(request) = request else {
        let when = removed.map(|then| format!(" {} ago", ago(world.now, then))).unwrap_or_default();
        let cause = format!("it was removed from the cluster{when}, and its certificates are refused");
        return Finding::new(Reason::NodeRemoved, node, cause)
            .advise(format!("if it is to come back: `ferry leave` and then `ferry join` on {name}"));
    };
    let (about, asked) = (object::name(request), time_at(request, "/metadata/creationTimestamp"));
    let asked = asked.map(|then| ago(world.now, then)).unwrap_or_default();
    if let Some(denied) = condition(request, "Denied") {
        return finding(format!("it is joining, and its certificate was denied ({about})")).detail(said(denied));
    }
    if let Some(failed) = condition(request, "Failed") {
        return finding(format!("it is joining, and its certificate could not be signed ({about})"))
            .detail(said(failed));
    }
    if has_certificate(request) {
        return finding(format!(
            "it is joining: it got its certificate, asked for {asked} ago, and has not registered"
        ))
        .advise(format!("see that `ferry node run` runs on {name}, and what its log says"))
        .advise("the same `ferry join` again goes on from there");
    }
    if has_condition(request, "Approved") {
        return finding(format!("it is joining: its certificate is approved and not signed yet ({about})"))
            .advise("see that the certificate signing controller runs and has the CA's key");
    }
    finding(format!("it is joining, and waits for its certificate since {asked}: nobody approved {about}"))
        .advise(format!("kubectl certificate approve {about}"))
}

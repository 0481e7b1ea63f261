//! Workloads: what their controllers could not do, then what holds up their pods.

use std::collections::BTreeMap;

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::{Value, json};

use super::{
    Finding, Reason, admission, deletion, fit, is_young, named, pairs, parts, plural, pod, rollout, said, service,
    warning,
};
use crate::world::{World, condition, event_time, is_owned_by, number, standing, time_at, title, word};

pub(super) fn findings(world: &World, target: &Value) -> Vec<Finding> {
    let first = parts::set_refused(world, target).or_else(|| unseen(world, target));
    let wanted_so: Vec<Finding> = paused(world, target).into_iter().chain(scaled_to_zero(target)).collect();
    let first = first.or_else(|| name_taken(world, target));
    let first = first.or_else(|| refused(world, target).filter(|_| wanted(target) > 0));
    if let Some(finding) = first {
        return std::iter::once(finding).chain(wanted_so).collect();
    }
    let pods = current_pods(world, target);
    // What ended is replaced: it tells why there are too few, and nothing where there are enough.
    let over = |pod: &Value| matches!(object::text(pod, "/status/phase"), "Failed" | "Succeeded");
    let enough = pods.iter().filter(|pod| pod::is_serving(pod)).count() as i64 >= wanted(target);
    let looked_at: Vec<&Value> = pods.iter().copied().filter(|pod| !enough || !over(pod)).collect();
    let mut found = of_pods(world, &looked_at);
    rollout::stale(target, &looked_at, &mut found);
    rollout::in_its_own_way(world, target, &looked_at, &mut found);
    if pods.is_empty() && !wanted_so.is_empty() {
        return wanted_so;
    }
    if let Some(late) = standing(target, "Progressing", "False") {
        match found.first_mut() {
            Some(first) => first.details.push(said(late)),
            None => found.push(
                Finding::new(Reason::ProgressDeadline, target, "its rollout made no progress within its deadline")
                    .detail(said(late))
                    .advise(format!("kubectl rollout status {}{}", super::in_namespace(target), title(target))),
            ),
        }
    }
    if object::text(target, "/kind") == "StatefulSet" && (pods.len() as i64) < wanted(target) && is_ordered(target) {
        for finding in &mut found {
            finding.details.push(format!(
                "{} of {} pods are made: the next one waits until all before it are ready (podManagementPolicy OrderedReady)",
                pods.len(),
                wanted(target)
            ));
        }
    }
    if found.is_empty() {
        let causes = [missing, available_later, rollout::on_delete, rollout::partition];
        found.extend(causes.iter().find_map(|cause| cause(world, target, &pods)));
    }
    if found.is_empty() {
        found.extend(pods.iter().find_map(|pod| service::unlisted(world, pod)));
    }
    found.extend(governing_service(world, target));
    found.extend(skipped_nodes(world, target, &pods));
    found.extend(wanted_so);
    found
}

fn is_ordered(set: &Value) -> bool {
    object::text(set, "/spec/podManagementPolicy") != "Parallel"
}

/// Nothing runs because nothing is wanted. A ReplicaSet that its Deployment has left behind is as it should be.
fn scaled_to_zero(target: &Value) -> Option<Finding> {
    let none = target.pointer("/spec/replicas").and_then(Value::as_i64) == Some(0);
    let owned = !object::items(target, "/metadata/ownerReferences").is_empty();
    (none && !owned && object::text(target, "/kind") != "DaemonSet").then(|| {
        let command = format!("kubectl scale {}{} --replicas=1", super::in_namespace(target), title(target));
        let cause = "it is scaled to zero: spec.replicas is 0, and so it has no pods";
        Finding::new(Reason::ScaledToZero, target, cause).note().advise(format!("if pods are wanted: {command}"))
    })
}

/// Pods of a StatefulSet have fixed names; somebody else may have one.
fn name_taken(world: &World, target: &Value) -> Option<Finding> {
    if object::text(target, "/kind") != "StatefulSet" {
        return None;
    }
    let start = number(target, "/spec/ordinals/start");
    let names = (start..start + wanted(target)).map(|ordinal| format!("{}-{ordinal}", object::name(target)));
    let taken = names
        .take(1000)
        .find_map(|name| world.find("pods", &name).filter(|pod| !is_owned_by(pod, object::uid(target))))?;
    let name = object::name(taken);
    if let Some(going) = deletion::held(world, taken) {
        let cause =
            format!("it makes its pod {name:?} when the pod of that name, which does not belong to it, is gone");
        return Some(Finding::new(Reason::NotOwned, target, cause).because_of(going));
    }
    let cause =
        format!("it cannot make its pod {name:?}: a pod of that name is there already and does not belong to it");
    Some(
        Finding::new(Reason::NotOwned, target, cause)
            .detail(super::containers::maker(world, taken).map(|by| format!("it belongs to {by}")).unwrap_or_default())
            .advise(format!("if it is not needed: kubectl delete {}pod/{name}", super::in_namespace(target))),
    )
}

/// All pods are ready, but not for long enough.
fn available_later(world: &World, target: &Value, pods: &[&Value]) -> Option<Finding> {
    let least = number(target, "/spec/minReadySeconds");
    let available = match object::text(target, "/kind") {
        "DaemonSet" => number(target, "/status/numberAvailable"),
        _ => number(target, "/status/availableReplicas"),
    };
    if least == 0 || available >= wanted(target) {
        return None;
    }
    let ready = pods.iter().filter_map(|pod| time_at(condition(pod, "Ready")?, "/lastTransitionTime")).max();
    let left = ready.map(|at| at.as_second() + least - world.now.as_second()).filter(|left| *left > 0);
    let left = left.map(|left| format!("; the last of them counts in {left} s")).unwrap_or_default();
    let cause = format!(
        "its pods are ready, and count as available when they have been so for {least} s (minReadySeconds): {available} of {} do{left}",
        wanted(target)
    );
    Some(Finding::new(Reason::MinReadySeconds, target, cause).underway())
}

/// Without its Service, the pods of a StatefulSet have no names of their own in DNS.
fn governing_service(world: &World, target: &Value) -> Option<Finding> {
    let name = object::text(target, "/spec/serviceName");
    if object::text(target, "/kind") != "StatefulSet" || name.is_empty() {
        return None;
    }
    let namespace = object::namespace(target);
    let finding = |cause: String| Finding::new(Reason::ServiceMissing, target, cause);
    let labels = object::map(target, "/spec/template/metadata/labels");
    match world.seen("services")?.iter().find(|service| object::name(service) == name) {
        None => Some(
            finding(format!("its Service {name:?} (spec.serviceName) does not exist in namespace {namespace}: its pods have no names in DNS"))
                // Manifests name the Service before or after it.
                .underway_if(is_young(world, target))
                .advise(format!(
                    "create it, headless, with the selector {labels}: kubectl create service clusterip -n {namespace} {name} --clusterip=None && kubectl set selector -n {namespace} service/{name} {labels}",
                    labels = pairs(labels),
                    name = word(name)
                )),
        ),
        Some(service) => {
            let selector = object::map(service, "/spec/selector");
            let selects = LabelSelector::from_map(selector).matches(labels);
            let address = object::text(service, "/spec/clusterIP");
            if selects && !selector.is_empty() && !matches!(address, "" | "None") {
                let cause = format!("its Service {name:?} has an address of its own (clusterIP {address}): only a headless one gives each pod a name in DNS");
                return Some(finding(cause).note().advise(format!(
                    "if pods are to be reached by name, delete it and create it headless (clusterIP: None): kubectl delete -n {namespace} service/{name}"
                )));
            }
            (!selector.is_empty() && !selects).then(|| {
                finding(format!("its Service {name:?} selects {}, and its pods have {}: they have no names in DNS", pairs(selector), pairs(labels)))
                    .advise(format!("correct the selector: kubectl edit -n {namespace} service/{name}"))
            })
        }
    }
}

/// The tolerations that the controller gives to every daemon pod.
const DAEMON_TOLERATES: [&str; 6] =
    ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"];

/// A pod of a DaemonSet as it would be on any node.
fn daemon(target: &Value) -> Value {
    let mut pod =
        json!({ "metadata": target.pointer("/spec/template/metadata"), "spec": target.pointer("/spec/template/spec") });
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.insert("namespace".into(), object::namespace(target).into());
    }
    let mut tolerations = object::items(&pod, "/spec/tolerations").to_vec();
    let host = pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true);
    for name in DAEMON_TOLERATES.into_iter().chain(host.then_some("network-unavailable")) {
        tolerations.push(json!({ "key": format!("node.kubernetes.io/{name}"), "operator": "Exists" }));
    }
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.insert("tolerations".into(), tolerations.into());
    }
    pod
}

/// Nodes that its selector means and whose taints keep it away.
fn skipped_nodes(world: &World, target: &Value, pods: &[&Value]) -> Option<Finding> {
    if object::text(target, "/kind") != "DaemonSet" || number(target, "/status/desiredNumberScheduled") == 0 {
        return None;
    }
    let template = daemon(target);
    let mut taints: Vec<String> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for one in fit::check(world, &template)? {
        let here = pods.iter().any(|pod| object::text(pod, "/spec/nodeName") == one.node);
        let own: Vec<String> = one
            .obstacles
            .iter()
            .filter_map(|obstacle| match obstacle {
                fit::Obstacle::Taint { taint, .. } => Some(taint.clone()),
                _ => None,
            })
            .collect();
        let meant = !one.obstacles.iter().any(fit::Obstacle::is_choice);
        if !here && meant && !own.is_empty() {
            names.push(one.node);
            taints.extend(own);
        }
    }
    taints.sort();
    taints.dedup();
    (!names.is_empty()).then(|| {
        let cause = format!(
            "it leaves out {} ({}): it does not tolerate {}",
            plural(names.len(), "node"),
            named(&names),
            named(&taints)
        );
        let edit = format!("kubectl edit {}{}", super::in_namespace(target), title(target));
        Finding::new(Reason::NodesSkipped, target, cause)
            .note()
            .advise(format!("if it is to run there, add tolerations to its template: {edit}"))
    })
}

/// The controller writes down which generation it has acted on.
fn unseen(world: &World, target: &Value) -> Option<Finding> {
    let (wanted, seen) = (number(target, "/metadata/generation"), number(target, "/status/observedGeneration"));
    if wanted <= seen || object::text(target, "/kind") == "ReplicationController" {
        return None;
    }
    let kind = object::text(target, "/kind");
    let cause = format!("the {kind} controller has acted on generation {seen} of it, and there is generation {wanted}");
    // A controller that runs needs no seconds for it.
    let late = rollout::changed(target).is_some_and(|at| world.now.as_second() - at.as_second() > 10);
    let mut finding = Finding::new(Reason::ControllerBehind, target, cause).advise(rollout::CONTROLLERS);
    finding.underway = !late;
    Some(finding)
}

fn paused(world: &World, target: &Value) -> Option<Finding> {
    rollout::is_paused(target).then(|| {
        let resume = format!("kubectl rollout resume {}{}", super::in_namespace(target), title(target));
        let none = world.seen("replicasets").is_some() && newest_set(world, target).is_none();
        let cause = if none {
            "it is paused (spec.paused), and so it has no pods yet"
        } else {
            "it is paused (spec.paused): changes of its template are not rolled out"
        };
        Finding::new(Reason::Paused, target, cause).note().advise(resume)
    })
}

/// Pods that were refused on their way in: quotas, policies, webhooks.
pub(super) fn refused(world: &World, target: &Value) -> Option<Finding> {
    let newest = newest_set(world, target);
    let owners = [Some(target), newest];
    for owner in owners.into_iter().flatten() {
        let said_by_condition = standing(owner, "ReplicaFailure", "True").map(|c| object::text(c, "/message"));
        let event = world.event(owner, &["FailedCreate"]).filter(|event| {
            // One that could be made later shows that what was in the way is gone.
            let made = world.event(owner, &["SuccessfulCreate"]).and_then(event_time);
            is_short(owner) && made <= event_time(event)
        });
        let message = said_by_condition.or_else(|| event.map(|event| object::text(event, "/message")));
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            return Some(admission::refusal(world, owner, message));
        }
    }
    None
}

fn is_short(owner: &Value) -> bool {
    let status = |field: &str| number(owner, &format!("/status/{field}"));
    match object::text(owner, "/kind") {
        "Job" => status("active") + status("ready") + status("succeeded") == 0,
        _ => status("replicas").max(status("currentNumberScheduled")) < wanted(owner),
    }
}

/// How many pods it is meant to have.
pub(super) fn wanted(target: &Value) -> i64 {
    if object::text(target, "/kind") == "DaemonSet" {
        return number(target, "/status/desiredNumberScheduled");
    }
    target.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

/// The ReplicaSet of a Deployment that is being rolled out.
pub(crate) fn newest_set<'a>(world: &'a World, target: &'a Value) -> Option<&'a Value> {
    let revision = |set: &Value| {
        let text = object::annotations(set).get("deployment.kubernetes.io/revision").and_then(Value::as_str);
        text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    world.owned("replicasets", target).max_by_key(|set| revision(set))
}

/// The pods that it makes now; those of older ReplicaSets are on their way out.
pub(crate) fn current_pods<'a>(world: &'a World, target: &'a Value) -> Vec<&'a Value> {
    let owner = if object::text(target, "/kind") == "Deployment" { newest_set(world, target) } else { Some(target) };
    owner.into_iter().flat_map(|owner| world.owned("pods", owner)).collect()
}

/// One finding per cause, with how many pods it holds up.
pub(super) fn of_pods(world: &World, pods: &[&Value]) -> Vec<Finding> {
    let mut groups: BTreeMap<String, (usize, usize, Finding)> = BTreeMap::new();
    let (looked_at, left_out) = examples(pods);
    for (order, pod) in looked_at.into_iter().enumerate() {
        // A pod that goes is replaced; it only counts when it does not go.
        let finding = deletion::held(world, pod)
            .filter(|held| !held.underway)
            .or_else(|| (!object::is_being_deleted(pod)).then(|| pod::first(world, pod)).flatten());
        let Some(finding) = finding else { continue };
        let key = format!("{:?} {}", finding.hop, finding.cause);
        groups.entry(key).and_modify(|group| group.1 += 1).or_insert((order, 1, finding));
    }
    let mut groups: Vec<(usize, usize, Finding)> = groups.into_values().collect();
    // Errors before what is merely under way, then those of most pods.
    groups.sort_by_key(|(order, count, finding)| (finding.underway, std::cmp::Reverse(*count), *order));
    let found = groups.into_iter().map(|(_, count, mut finding)| {
        if count > 1 {
            finding.about = format!("{} and {} more like it", finding.about, count - 1);
        }
        finding
    });
    let mut found: Vec<Finding> = found.collect();
    if left_out > 0
        && let Some(first) = found.first_mut()
    {
        let left_out = plural(left_out, "more pod");
        first.details.push(format!("{left_out} that look like those were not examined one by one"));
    }
    found
}

/// So many pods that look alike, and so many in all, are examined one by one.
const ALIKE: usize = 50;
const EXAMINED: usize = 400;

/// Those to be examined, some of every state that pods are seen in, and how many others there are that are not ready.
fn examples<'a>(pods: &[&'a Value]) -> (Vec<&'a Value>, usize) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut found, mut left_out) = (Vec::new(), 0);
    for pod in pods {
        let count = seen.entry(looks(pod)).or_default();
        *count += 1;
        if *count <= ALIKE && found.len() < EXAMINED {
            found.push(*pod);
        } else if !pod::is_serving(pod) {
            left_out += 1;
        }
    }
    (found, left_out)
}

/// How a pod looks at first sight: its phase, whether it has a node, and what its containers wait for.
fn looks(pod: &Value) -> String {
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let states = statuses.into_iter().flat_map(|list| object::items(pod, list)).map(|status| {
        let state = ["waiting", "terminated", "running"].into_iter().find(|state| status["state"].get(state).is_some());
        let state = state.unwrap_or_default();
        format!("{state} {}", object::text(&status["state"][state], "/reason"))
    });
    format!(
        "{} {} {} {} {}",
        object::text(pod, "/status/phase"),
        object::text(pod, "/status/reason"),
        object::is_being_deleted(pod),
        object::text(pod, "/spec/nodeName").is_empty(),
        states.collect::<Vec<_>>().join(",")
    )
}

/// No pod is held up, and there are not enough of them.
fn missing(world: &World, target: &Value, pods: &[&Value]) -> Option<Finding> {
    let (wanted, ready) = (wanted(target), pods.iter().filter(|pod| pod::is_serving(pod)).count() as i64);
    if object::text(target, "/kind") == "DaemonSet" && wanted == 0 {
        let nodes = world.seen("nodes").map(<[Value]>::len);
        return nodes.filter(|count| *count > 0).map(|count| {
            let cause = match count {
                1 => "the only node is not meant for it".to_owned(),
                count => format!("none of the {count} nodes is meant for it"),
            };
            let template = daemon(target);
            let checked = fit::check(world, &template).unwrap_or_default();
            let found = fit::lines(&checked)
                .into_iter()
                .fold(Finding::new(Reason::NoNodeForDaemon, target, cause), Finding::detail);
            let edit = format!("kubectl edit {}{}", super::in_namespace(target), title(target));
            let found = fit::advice(world, &checked, &edit).into_iter().fold(found, Finding::advise);
            if found.advice.is_empty() {
                return found
                    .advise(format!("compare its nodeSelector, affinity and tolerations with the nodes: {edit}"));
            }
            found
        });
    }
    let by_sets = object::text(target, "/kind") == "Deployment";
    if world.seen("pods").is_none() || (by_sets && world.seen("replicasets").is_none()) {
        let ready = number(target, "/status/readyReplicas").max(number(target, "/status/numberReady"));
        let cause = format!("{ready} of {wanted} pods are ready, and its pods could not be looked at");
        return (ready < wanted).then(|| Finding::new(Reason::PodsMissing, target, cause).underway());
    }
    if ready >= wanted {
        return None;
    }
    if let Some(waits) = rollout::recreate(world, target).or_else(|| rollout::not_long_enough(world, target, pods)) {
        return Some(waits);
    }
    // While it is paused, the pods of the old template stay: all that it has count.
    if rollout::is_paused(target) && rollout::serving(world, target) >= wanted {
        return None;
    }
    let cause = format!("{ready} of {wanted} pods are ready, and its controller has not made the others yet");
    let told = warning(world, target).map(|event| object::text(event, "/message")).unwrap_or_default();
    let going = pods.iter().filter(|pod| object::is_being_deleted(pod)).count();
    let going = if going > 0 { format!("{} on the way out", plural(going, "pod")) } else { String::new() };
    let finding = Finding::new(Reason::PodsMissing, target, cause).detail(told);
    // A controller that runs needs no seconds for it, unless pods of before have to go first.
    let late = going.is_empty() && rollout::is_late(world, target, pods);
    let finding = if late { finding.advise(rollout::CONTROLLERS) } else { finding };
    Some(finding.detail(going).underway_if(!late))
}

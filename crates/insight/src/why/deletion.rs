//! Objects that are being deleted and are still there.

use ferry_meta::object;
use serde_json::{Value, json};

use super::{Finding, Reason, finalizers, in_namespace, is_soon, named, said, title_with_group, warning};
use crate::gather::{ALL_PODS, REMAINING};
use crate::world::{World, ago, event_time, known_kind, number, standing, time_at, title};

pub(super) fn held(world: &World, target: &Value) -> Option<Finding> {
    if !object::is_being_deleted(target) {
        return None;
    }
    // What has just been deleted is on its way: those who are to let go of it need a moment.
    let deleted = time_at(target, "/metadata/deletionTimestamp");
    let soon = deleted.is_some_and(|then| is_soon(world, then));
    let kind = known_kind(target);
    if kind == "Namespace" {
        return Some(namespace(world, target).underway_if(soon));
    }
    let finalizers: Vec<&str> = object::finalizers(target).collect();
    // The containers of a pod end first, within its grace period.
    if kind == "Pod" && deleted.is_some_and(|ends| ends > world.now) {
        return pod(world, target);
    }
    let since = deleted.map(|then| ago(world.now, then)).unwrap_or_default();
    if !finalizers.is_empty() {
        return Some(by_finalizers(world, target, &finalizers, &since).underway_if(soon));
    }
    if kind == "Pod" {
        return pod(world, target);
    }
    Some(Finding::new(Reason::BeingDeleted, target, format!("it is being deleted since {since}")).underway())
}

/// Who set a finalizer, as the managed fields tell.
fn manager<'a>(target: &'a Value, finalizer: &str) -> Option<&'a str> {
    let field = format!("v:{}", Value::from(finalizer));
    let entries = object::items(target, "/metadata/managedFields").iter();
    let mut with = entries.filter(|entry| {
        let set = entry.pointer("/fieldsV1/f:metadata/f:finalizers").and_then(Value::as_object);
        set.is_some_and(|set| set.contains_key(&field) || set.is_empty())
    });
    with.next().map(|entry| object::text(entry, "/manager")).filter(|manager| !manager.is_empty())
}

/// What a finalizer waits for, followed to the object that holds it.
struct Held {
    reason: Reason,
    details: Vec<String>,
    advice: Vec<String>,
}

fn follow(world: &World, target: &Value, finalizer: &str) -> Held {
    let namespace = object::namespace(target);
    let held = |reason, details: Vec<String>, advice: Vec<String>| Held { reason, details, advice };
    match finalizer {
        "foregroundDeletion" => {
            let Some(owned) = world.seen(REMAINING) else {
                return held(
                    Reason::FinalizerForeground,
                    vec!["what it owns is deleted first; whether any of that is left could not be looked at".into()],
                    vec!["ask somebody who may list all that is in its namespace".into()],
                );
            };
            let names: Vec<String> = owned.iter().map(of_resource).collect();
            // What waits for its own dependents is not what everything waits for: that is further down.
            let waits = |item: &&Value| object::finalizers(item).any(|one| one != "foregroundDeletion");
            let first = owned.iter().find(waits).or_else(|| owned.iter().rfind(|item| object::is_being_deleted(item)));
            match first.or(owned.first()) {
                Some(first) => {
                    let more: Vec<&str> = object::finalizers(first).collect();
                    let why = if more.is_empty() {
                        String::new()
                    } else {
                        format!("{} is held itself, by {}", of_resource(first), named(&more))
                    };
                    held(
                        Reason::FinalizerForeground,
                        vec![format!("what it owns is deleted first, and is still there: {}", named(&names)), why],
                        vec![format!("ferry why {}{}", in_namespace(first), of_resource(first))],
                    )
                }
                None => held(
                    Reason::FinalizerForeground,
                    vec![
                        "nothing that it owns is left in its namespace: the garbage collector removes the finalizer"
                            .into(),
                    ],
                    vec!["see that the controllers run".into()],
                ),
            }
        }
        "kubernetes.io/pvc-protection" => {
            let Some(users) = finalizers::users_of_claim(world, target) else {
                return held(
                    Reason::FinalizerClaimInUse,
                    vec!["it goes when no pod uses it; whether one does could not be looked at".into()],
                    vec!["ask somebody who may list pods".into()],
                );
            };
            let names: Vec<String> = users.iter().map(|pod| format!("pod/{}", object::name(pod))).collect();
            match users.first() {
                Some(first) => held(
                    Reason::FinalizerClaimInUse,
                    vec![format!("{} still uses it", named(&names)), finalizers::ended(&users)],
                    vec![match super::containers::maker(world, first) {
                        // What it is made of is needed for whatever it is to have in the place of this claim.
                        Some(maker) if maker.starts_with("deployment/") || maker.starts_with("statefulset/") => {
                            format!("end what uses it: kubectl scale -n {namespace} {maker} --replicas=0")
                        }
                        maker => format!(
                            "end what uses it: kubectl delete -n {namespace} {}",
                            maker.unwrap_or_else(|| names[0].clone())
                        ),
                    }],
                ),
                None => held(
                    Reason::FinalizerClaimInUse,
                    vec!["no pod that has a node uses it: the controller removes the finalizer".into()],
                    vec!["see that the controllers run".into()],
                ),
            }
        }
        "kubernetes.io/pv-protection" => {
            let claim = target.pointer("/spec/claimRef");
            let claim = claim.map(|claim| (object::text(claim, "/namespace"), object::text(claim, "/name")));
            match claim {
                Some((namespace, name)) => {
                    let is_kept = object::text(target, "/spec/persistentVolumeReclaimPolicy") == "Retain";
                    let keep = format!(
                        "if what is on the volume is to be kept: kubectl patch pv {} -p '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'",
                        object::name(target)
                    );
                    let with_it = if is_kept { "" } else { ", and with it what is on the volume" };
                    let delete = format!("delete the claim first{with_it}: kubectl delete pvc -n {namespace} {name}");
                    let advice = if is_kept { vec![delete] } else { vec![keep, delete] };
                    held(
                        Reason::FinalizerVolumeBound,
                        vec![format!("the claim {namespace}/{name} is bound to it")],
                        advice,
                    )
                }
                None => held(Reason::FinalizerVolumeBound, Vec::new(), vec!["see that the controllers run".into()]),
            }
        }
        "customresourcecleanup.apiextensions.k8s.io" => {
            let left = world.all(REMAINING);
            let names: Vec<String> =
                left.iter().map(|item| format!("{}/{}", object::namespace(item), object::name(item))).collect();
            let there = match names.is_empty() {
                true => "its objects are deleted first; which are left could not be looked at".to_owned(),
                false => format!("objects of this kind are still there: {}", named(&names)),
            };
            let stuck = left.iter().find(|item| object::finalizers(item).next().is_some());
            let advice = stuck.map(|item| format!("ferry why {}{}", in_namespace(item), of_resource(item)));
            let why = stuck.map(|item| {
                format!("{} waits for {}", of_resource(item), named(&object::finalizers(item).collect::<Vec<_>>()))
            });
            held(
                Reason::FinalizerCustomResources,
                vec![there, why.unwrap_or_default()],
                vec![advice.unwrap_or_else(|| "they are deleted one after the other".into())],
            )
        }
        "batch.kubernetes.io/job-tracking" => {
            let job = super::containers::maker(world, target).unwrap_or_else(|| "its Job".into());
            held(
                Reason::Finalizer,
                vec![format!("the Job controller counts the pod for {job}, and then lets go of it")],
                vec!["see that the controllers run".into()],
            )
        }
        "service.kubernetes.io/load-balancer-cleanup" => held(
            Reason::Finalizer,
            vec![
                "the controller of load balancers removes the load balancer first".into(),
                warning(world, target).map(said).unwrap_or_default(),
            ],
            vec!["see that the controllers run, or the cloud's controller".into()],
        ),
        "orphan" => held(
            Reason::Finalizer,
            vec!["what it owns is being released".into()],
            vec!["see that the controllers run".into()],
        ),
        other => match finalizers::known(world, target, other) {
            Some((details, advice)) => held(Reason::Finalizer, details, advice),
            None => custom(world, target, other),
        },
    }
}

/// A finalizer of somebody: who set it, and whether a pod of that name runs.
fn custom(world: &World, target: &Value, finalizer: &str) -> Held {
    let manager = manager(target, finalizer);
    let mut details = Vec::new();
    if let Some(manager) = manager {
        details.push(format!("{finalizer} was set by {manager:?}"));
    }
    // `example.com/cleanup`: the controller is called after the domain, or as the manager calls itself.
    let domain = finalizer.split('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
    let is_tool =
        |name: &str| name.starts_with("kubectl") || name == "before-first-apply" || name.starts_with("Go-http");
    let words: Vec<&str> =
        [manager.unwrap_or_default(), domain].into_iter().filter(|word| word.len() > 3 && !is_tool(word)).collect();
    let pods = world.seen(ALL_PODS);
    let candidate =
        pods.unwrap_or_default().iter().find(|pod| words.iter().any(|word| object::name(pod).contains(word)));
    match candidate {
        Some(pod) => {
            let (name, place) = (object::name(pod), object::namespace(pod));
            let well = super::pod::is_serving(pod);
            let state = if well { "which is ready" } else { "which is not ready" };
            details.push(format!("its controller is probably pod/{name} in {place}, {state}"));
            let see = if well {
                format!("see what it says of it: kubectl logs -n {place} {name}")
            } else {
                format!("ferry why -n {place} pod/{name}")
            };
            Held { reason: Reason::Finalizer, details, advice: vec![see] }
        }
        None => {
            if pods.is_some() {
                details.push(format!("no pod in the cluster looks like a controller for {finalizer}: probably it is gone, or runs elsewhere"));
            }
            Held {
                reason: Reason::Finalizer,
                details,
                advice: vec![format!("start the controller that set {finalizer}; it removes it when its work is done")],
            }
        }
    }
}

/// `configmap/x`, as commands take it.
fn of_resource(item: &Value) -> String {
    match object::text(item, "/resource") {
        "" => title(item),
        resource => format!("{resource}/{}", object::name(item)),
    }
}

fn by_finalizers(world: &World, target: &Value, finalizers: &[&str], since: &str) -> Finding {
    let cause = format!("its deletion waits for the finalizer {} since {since}", named(finalizers));
    let mut found = Finding::new(Reason::Finalizer, target, cause);
    let mut theirs = false;
    for (index, finalizer) in finalizers.iter().enumerate() {
        let held = follow(world, target, finalizer);
        if index == 0 {
            found.reason = held.reason;
        }
        theirs |= held.reason == Reason::Finalizer;
        found = held.details.into_iter().fold(found, Finding::detail);
        found = held.advice.into_iter().fold(found, Finding::advise);
    }
    if !theirs {
        return found;
    }
    let patch = r#"--type=merge -p '{"metadata":{"finalizers":null}}'"#;
    found.advise(format!(
        "only if its controller is gone for good: kubectl patch {}{} {patch}",
        in_namespace(target),
        title_with_group(target)
    ))
}

fn pod(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    let ends = time_at(pod, "/metadata/deletionTimestamp")?;
    let left = ends.as_second() - world.now.as_second();
    let grace = number(pod, "/metadata/deletionGracePeriodSeconds");
    let begun = ends.checked_sub(jiff::SignedDuration::from_secs(grace)).unwrap_or(ends);
    if left > 0 {
        let cause = format!("its containers have {left} s of {grace} s left to end by themselves");
        return Some(Finding::new(Reason::GracePeriod, pod, cause).underway());
    }
    let Some(nodes) = world.seen("nodes") else {
        let cause = format!(
            "its kubelet has not ended it, {} s after it should have; node {node} could not be looked at",
            -left
        );
        return Some(
            Finding::new(Reason::KubeletEndsNot, pod, cause)
                .underway_if(is_soon(world, ends))
                .advise("ask somebody who may list nodes"),
        );
    };
    let ready = nodes.iter().find(|item| object::name(item) == node);
    let ready = ready.map(|node| standing(node, "Ready", "True").is_some());
    let finding = match ready {
        Some(true) if is_soon(world, ends) => {
            return Some(Finding::new(Reason::GracePeriod, pod, "its kubelet is ending it").underway());
        }
        Some(true) => Finding::new(
            Reason::KubeletEndsNot,
            pod,
            format!("node {node} is ready, but its kubelet has not ended the pod, {} s after it should have", -left),
        )
        // What the kubelet could not do, it tells; what it met while the pod ran is over.
        .detail(warning(world, pod).filter(|event| event_time(event) >= Some(begun)).map(said).unwrap_or_default())
        .advise(format!("look at the kubelet's log on {node}: a volume or a container may not let go")),
        Some(false) => Finding::new(
            Reason::NodeGoneForDeletion,
            pod,
            format!("node {node} is not ready, and only its kubelet can say that the pod has ended"),
        )
        .advise(format!("bring {node} back, or delete the node if it is gone for good: kubectl delete node {node}")),
        None => Finding::new(Reason::NodeGoneForDeletion, pod, format!("its node {node} is not there any more"))
            .advise("the pod garbage collector deletes it shortly; see that the controllers run"),
    };
    Some(finding)
}

fn namespace(world: &World, target: &Value) -> Finding {
    let mut finding = Finding::new(Reason::NamespaceTerminating, target, "it is being emptied");
    let mut stuck = false;
    for (kind, advice) in [
        (
            "NamespaceDeletionDiscoveryFailure",
            "an APIService does not answer: repair or delete it (kubectl get apiservices)",
        ),
        ("NamespaceDeletionGroupVersionParsingFailure", ""),
        (
            "NamespaceDeletionContentFailure",
            "something in it could not be deleted: a webhook or a right may be in the way",
        ),
        ("NamespaceContentRemaining", ""),
        ("NamespaceFinalizersRemaining", ""),
    ] {
        if let Some(condition) = standing(target, kind, "True") {
            stuck |= kind != "NamespaceContentRemaining";
            finding = finding.detail(said(condition));
            if !advice.is_empty() {
                finding = finding.advise(advice);
            }
        }
    }
    let undiscovered = standing(target, "NamespaceDeletionDiscoveryFailure", "True").is_some();
    let is_dead = |one: &&Value| undiscovered && standing(one, "Available", "False").is_some();
    for one in world.all("apiservices").iter().filter(is_dead).take(3) {
        finding = finding.advise(format!("ferry why apiservice/{}", object::name(one)));
    }
    let name = object::name(target);
    // Others may have put finalizers on the namespace itself, of either kind.
    let own: Vec<&str> = object::finalizers(target).collect();
    let more = object::items(target, "/spec/finalizers").iter().filter_map(Value::as_str);
    let more: Vec<&str> = more.filter(|finalizer| *finalizer != "kubernetes").collect();
    for finalizer in own.iter().chain(&more) {
        let follows = follow(world, target, finalizer);
        finding = follows.details.into_iter().fold(finding, Finding::detail);
        finding = follows.advice.into_iter().fold(finding, Finding::advise);
    }
    let held: Vec<&Value> =
        world.all(REMAINING).iter().filter(|item| object::finalizers(item).next().is_some()).collect();
    for item in held.iter().take(4) {
        let finalizers: Vec<&str> = object::finalizers(item).collect();
        finding = finding.detail(format!("{} waits for the finalizer {}", of_resource(item), named(&finalizers)));
        for finalizer in &finalizers {
            finding = follow(world, item, finalizer).details.into_iter().fold(finding, Finding::detail);
        }
        finding = finding.advise(format!("ferry why -n {name} {}", of_resource(item)));
    }
    // What is being deleted and has no finalizers waits for somebody too: a pod for its kubelet.
    let lingers = |item: &&Value| {
        let since = time_at(item, "/metadata/deletionTimestamp");
        object::finalizers(item).next().is_none()
            && since.is_some_and(|since| since <= world.now && !is_soon(world, since))
    };
    let lingering: Vec<&Value> = world.all(REMAINING).iter().filter(lingers).collect();
    for item in lingering.iter().take(3) {
        let since = time_at(item, "/metadata/deletionTimestamp").map(|then| ago(world.now, then)).unwrap_or_default();
        finding = finding.detail(format!("{} should have been gone {since} ago", of_resource(item)));
        finding = finding.advise(format!("ferry why -n {name} {}", of_resource(item)));
    }
    stuck |= !lingering.is_empty();
    let emptied = standing(target, "NamespaceContentRemaining", "False").is_some()
        && standing(target, "NamespaceFinalizersRemaining", "False").is_some();
    if (!own.is_empty() || !more.is_empty()) && (emptied || held.is_empty() && !stuck) {
        let all: Vec<&str> = own.iter().chain(&more).copied().collect();
        finding.cause = format!("it waits for a finalizer on the namespace itself: {}", named(&all));
        if !own.is_empty() {
            let patch = r#"--type=merge -p '{"metadata":{"finalizers":null}}'"#;
            finding = finding
                .advise(format!("only if its controller is gone for good: kubectl patch namespace {name} {patch}"));
        }
        if !more.is_empty() {
            let left: Vec<&str> = object::items(target, "/spec/finalizers")
                .iter()
                .filter_map(Value::as_str)
                .filter(|one| *one == "kubernetes")
                .collect();
            let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name }, "spec": { "finalizers": left } });
            finding = finding.advise(format!("only if its controller is gone for good: echo '{body}' | kubectl replace --raw /api/v1/namespaces/{name}/finalize -f -"));
        }
        return finding;
    }
    finding.underway = !stuck;
    if stuck {
        finding.cause = match held.first() {
            Some(first) => format!("it cannot be emptied: {} is held by a finalizer", of_resource(first)),
            None => match lingering.first() {
                Some(first) => format!("it cannot be emptied: {} does not go", of_resource(first)),
                None => "it cannot be emptied".to_owned(),
            },
        };
    }
    finding
}

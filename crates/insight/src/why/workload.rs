//! Workloads: what their controllers could not do, then what holds up their pods.

use std::collections::BTreeMap;

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Hop, deletion, plural, pod, said, service};
use crate::world::{World, condition, number, standing, time_at, title};

pub(super) fn findings(world: &World, target: &Value) -> Vec<Finding> {
    if let Some(finding) = unseen(world, target).or_else(|| paused(target)).or_else(|| refused(world, target)) {
        return vec![finding];
    }
    let pods = current_pods(world, target);
    let mut found = of_pods(world, &pods);
    if let Some(late) = standing(target, "Progressing", "False") {
        match found.first_mut() {
            Some(first) => first.details.push(said(late)),
            None => found.push(
                Finding::new(Hop::Controller, target, "its rollout made no progress within its deadline")
                    .detail(said(late)),
            ),
        }
    }
    if found.is_empty() {
        found.extend(missing(world, target, &pods));
    }
    if found.is_empty() {
        found.extend(pods.iter().find_map(|pod| service::unlisted(world, pod)));
    }
    found
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
    let changed = object::items(target, "/metadata/managedFields")
        .iter()
        .filter(|entry| object::text(entry, "/subresource").is_empty())
        .filter_map(|entry| time_at(entry, "/time"))
        .max();
    let late = changed.is_some_and(|at| world.now.as_second() - at.as_second() > 10);
    let mut finding = Finding::new(Hop::Controller, target, cause)
        .advise("see that the controllers run: ferry controller-manager, or kube-controller-manager");
    finding.underway = !late;
    Some(finding)
}

fn paused(target: &Value) -> Option<Finding> {
    (target.pointer("/spec/paused").and_then(Value::as_bool) == Some(true)).then(|| {
        let name = title(target).replace('/', " ");
        let resume = format!("kubectl rollout resume -n {} {name}", object::namespace(target));
        Finding::new(Hop::Controller, target, "it is paused: changes of its template are not rolled out").advise(resume)
    })
}

/// Pods that were refused on their way in: quotas, policies, webhooks.
fn refused(world: &World, target: &Value) -> Option<Finding> {
    let newest = newest_set(world, target);
    let owners = [Some(target), newest];
    for owner in owners.into_iter().flatten() {
        let said_by_condition = standing(owner, "ReplicaFailure", "True").map(|c| object::text(c, "/message"));
        let wants = wanted(owner);
        let short = number(owner, "/status/replicas").max(number(owner, "/status/currentNumberScheduled")) < wants;
        let event = world.event(owner, &["FailedCreate"]).filter(|_| short);
        let message = said_by_condition.or_else(|| event.map(|event| object::text(event, "/message")));
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            return Some(refusal(owner, message));
        }
    }
    None
}

fn refusal(owner: &Value, message: &str) -> Finding {
    let finding = |cause: &str| Finding::new(Hop::Admission, owner, cause).detail(message);
    if message.contains("exceeded quota") {
        finding("its pods are refused: the namespace's quota is used up").advise(format!(
            "kubectl describe resourcequota -n {}: raise it, or ask for less",
            object::namespace(owner)
        ))
    } else if message.contains("failed quota") || message.contains("must specify") {
        finding("its pods are refused: the quota wants resources that they do not name")
            .advise("name requests and limits in the template, or give the namespace a LimitRange with defaults")
    } else if message.contains("violates PodSecurity") {
        finding("its pods are refused: they ask for more than the namespace's security level allows").advise(
            "correct the securityContext in the template, or change the label pod-security.kubernetes.io/enforce",
        )
    } else if message.contains("admission webhook") || message.contains("calling webhook") {
        finding("its pods are refused by an admission webhook")
            .advise("what the webhook wants is in its message; if it does not answer, look at the Service behind it")
    } else if message.contains("ValidatingAdmissionPolicy") {
        finding("its pods are refused by a ValidatingAdmissionPolicy").advise("change the template as the message says")
    } else if message.contains("serviceaccount") && message.contains("not found") {
        finding("its pods are refused: their service account does not exist").advise("create it, or name another")
    } else if message.contains("forbidden") {
        finding("its pods are refused").advise("see what the message names")
    } else {
        finding("its pods cannot be created").advise("change the template as the message says")
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
fn of_pods(world: &World, pods: &[&Value]) -> Vec<Finding> {
    let mut groups: BTreeMap<String, (usize, usize, Finding)> = BTreeMap::new();
    for (order, pod) in pods.iter().enumerate() {
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
    groups
        .into_iter()
        .map(|(_, count, mut finding)| {
            if count > 1 {
                finding.about = format!("{} and {} more like it", finding.about, count - 1);
            }
            finding
        })
        .collect()
}

/// No pod is held up, and there are not enough of them.
fn missing(world: &World, target: &Value, pods: &[&Value]) -> Option<Finding> {
    let (wanted, ready) = (wanted(target), pods.iter().filter(|pod| pod::is_serving(pod)).count() as i64);
    if object::text(target, "/kind") == "DaemonSet" && wanted == 0 {
        let nodes = world.seen("nodes").map(<[Value]>::len);
        return nodes.filter(|count| *count > 0).map(|count| {
            let cause = format!("none of the {} is meant for it", plural(count, "node"));
            Finding::new(Hop::Controller, target, cause)
                .advise("compare its nodeSelector, affinity and tolerations with the nodes")
        });
    }
    if ready >= wanted {
        return None;
    }
    let cause = format!("{ready} of {wanted} pods are ready, and its controller has not made the others yet");
    let warning = world.events(target).into_iter().rfind(|event| object::text(event, "/type") == "Warning");
    let told = warning.map(|event| object::text(event, "/message")).unwrap_or_default();
    Some(Finding::new(Hop::Controller, target, cause).detail(told).underway())
}

pub(super) fn job(world: &World, job: &Value) -> Vec<Finding> {
    if standing(job, "Complete", "True").is_some() {
        return Vec::new();
    }
    if let Some(failed) = standing(job, "Failed", "True").or_else(|| standing(job, "FailureTarget", "True")) {
        return vec![failed_job(world, job, failed)];
    }
    if job.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        let advice = format!(
            "kubectl patch job -n {} {} -p '{{\"spec\":{{\"suspend\":false}}}}'",
            object::namespace(job),
            object::name(job)
        );
        return vec![Finding::new(Hop::Controller, job, "it is suspended: spec.suspend is true").advise(advice)];
    }
    if let Some(finding) = refused(world, job) {
        return vec![finding];
    }
    let pods: Vec<&Value> = world.owned("pods", job).collect();
    // A pod that is ready is at work.
    let found = of_pods(world, &pods);
    if !found.is_empty() {
        return found;
    }
    let (active, done) = (number(job, "/status/active"), number(job, "/status/succeeded"));
    let wanted = job.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    let cause = format!("{done} of {wanted} are done, {active} at work");
    vec![Finding::new(Hop::Controller, job, cause).underway()]
}

fn failed_job(world: &World, job: &Value, failed: &Value) -> Finding {
    let reason = object::text(failed, "/reason");
    let cause = match reason {
        "BackoffLimitExceeded" => {
            let limit = job.pointer("/spec/backoffLimit").and_then(Value::as_i64).unwrap_or(6);
            format!("its pods failed more often than backoffLimit={limit} allows")
        }
        "DeadlineExceeded" => "it took longer than activeDeadlineSeconds allows".to_owned(),
        "PodFailurePolicy" => "a rule of podFailurePolicy ended it".to_owned(),
        "FailedIndexes" | "MaxFailedIndexesExceeded" => "some of its indexes failed".to_owned(),
        other => format!("it failed: {other}"),
    };
    let mut finding = Finding::new(Hop::Controller, job, cause).detail(object::text(failed, "/message"));
    let broken = world.owned("pods", job).filter_map(|pod| pod::first(world, pod)).find(|finding| !finding.underway);
    if let Some(broken) = broken {
        finding = finding.detail(format!("{}: {}", broken.about, broken.cause));
        finding.details.extend(broken.details);
        finding.advice.extend(broken.advice);
    }
    finding.advise("a Job that failed stays so: delete it and create it anew when the cause is gone")
}

pub(super) fn cron_job(world: &World, target: &Value) -> Vec<Finding> {
    if target.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return vec![Finding::new(Hop::Controller, target, "it is suspended: spec.suspend is true")];
    }
    let newest =
        world.owned("jobs", target).max_by_key(|job| object::text(job, "/metadata/creationTimestamp").to_owned());
    let Some(newest) = newest else {
        let warning = world.events(target).into_iter().rfind(|event| object::text(event, "/type") == "Warning");
        let schedule = object::text(target, "/spec/schedule");
        let cause = format!("it has not started any Job yet; its schedule is {schedule:?}");
        let finding = Finding::new(Hop::Controller, target, cause);
        return vec![match warning {
            Some(warning) => finding.detail(said(warning)),
            None => finding.underway(),
        }];
    };
    let failed = condition(newest, "Failed").is_some() || standing(newest, "Complete", "True").is_none();
    if failed { job(world, newest) } else { Vec::new() }
}

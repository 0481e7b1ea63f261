//! Jobs that failed, wait or are at work.

use std::collections::HashSet;

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, containers, is_young, plural, pod, said, warning, workload};
use crate::world::{World, event_time, is_true, number, standing, time_at, title};

pub(super) fn findings(world: &World, job: &Value) -> Vec<Finding> {
    if standing(job, "Complete", "True").or_else(|| standing(job, "SuccessCriteriaMet", "True")).is_some() {
        return Vec::new();
    }
    if let Some(failed) = standing(job, "Failed", "True").or_else(|| standing(job, "FailureTarget", "True")) {
        return vec![failed_job(world, job, failed)];
    }
    let (namespace, name) = (object::namespace(job), object::name(job));
    let finding = |reason: Reason, cause: String| Finding::new(reason, job, cause);
    if job.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        let advice = format!("kubectl patch job -n {namespace} {name} -p '{{\"spec\":{{\"suspend\":false}}}}'");
        // Who suspends it takes back what others change.
        if let Some(queue) = queue(job) {
            let cause =
                format!("it is suspended (spec.suspend) until its queue lets it run ({queue}), and so it has no pods");
            let told = warning(world, job).map(said).unwrap_or_default();
            return vec![finding(Reason::JobSuspended, cause).note().detail(told).advise(format!(
                "see what the queue says of it: kubectl get workloads.kueue.x-k8s.io -n {namespace}"
            ))];
        }
        return vec![
            finding(Reason::JobSuspended, "it is suspended (spec.suspend), and so it has no pods".into())
                .note()
                .advise(advice),
        ];
    }
    let manager = object::text(job, "/spec/managedBy");
    if !matches!(manager, "" | "kubernetes.io/job-controller") && number(job, "/status/active") == 0 {
        let cause = format!("it is left to the controller {manager:?} (spec.managedBy), which has started nothing yet");
        let found = finding(Reason::JobManaged, cause).underway_if(is_young(world, job));
        return vec![found.advise(format!("see that {manager} runs"))];
    }
    if job.pointer("/spec/parallelism").and_then(Value::as_i64) == Some(0) {
        let advice = format!("kubectl patch job -n {namespace} {name} -p '{{\"spec\":{{\"parallelism\":1}}}}'");
        return vec![
            finding(Reason::JobSuspended, "its parallelism is 0, and so it has no pods".into()).note().advise(advice),
        ];
    }
    if let Some(refused) = workload::refused(world, job) {
        return vec![refused];
    }
    let pods: Vec<&Value> = world.owned("pods", job).collect();
    let is_over = |pod: &&Value| object::text(pod, "/status/phase") == "Failed";
    // What failed before does not hold up the attempt that runs now.
    let current: Vec<&Value> = pods.iter().copied().filter(|pod| !is_over(pod)).collect();
    let found = workload::of_pods(world, &current);
    let failures = pods.iter().filter(|pod| is_over(pod)).count();
    if !found.is_empty() {
        return found;
    }
    if let Some(failed) = failed_indexes(world, job, &pods) {
        return vec![failed];
    }
    let (active, done) = (number(job, "/status/active"), number(job, "/status/succeeded"));
    let wanted = job.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    let at_work = current.iter().any(|pod| is_true(pod, "Ready") || object::text(pod, "/status/phase") == "Running");
    let cause = format!("{done} of {wanted} are done, {active} at work");
    let mut finding = finding(Reason::JobRunning, cause).underway();
    let mut going = pods.iter().filter(|pod| object::is_being_deleted(pod)).map(|pod| object::name(pod));
    if let Some(going) = going.next().filter(|_| active == 0) {
        finding = finding
            .detail(format!("the next pod is made when pod/{going} has ended"))
            .advise(format!("ferry why -n {namespace} pod/{going}"));
    }
    if let Some(told) = runs_on(&current) {
        finding = finding.detail(told).advise(
            "a helper that must not hold up the end is an init container with restartPolicy: Always (a sidecar)",
        );
    }
    if failures > 0 {
        let limit = match job.pointer("/spec/backoffLimitPerIndex").and_then(Value::as_i64) {
            Some(limit) => format!("backoffLimitPerIndex is {limit}"),
            None => format!("backoffLimit is {}", limit(job)),
        };
        finding = finding.detail(format!("{} so far; {limit}", plural(failures, "failed attempt")));
        let last = pods
            .iter()
            .filter(|pod| is_over(pod))
            .max_by_key(|pod| time_at(pod, "/metadata/creationTimestamp"))
            .and_then(|pod| pod::first(world, pod));
        if let Some(last) = last.filter(|_| !at_work) {
            // One attempt may fail; where each of several did, the next one will too.
            let all = failures > 1 && done == 0;
            if all {
                finding.cause =
                    format!("each of its {failures} pods so far has failed, and the next one waits its turn");
            }
            return vec![Finding { underway: !all, ..finding.because_of(last) }];
        }
    }
    vec![finding]
}

/// An index that has no attempt left: the others go on, and the Job fails when they are done.
fn failed_indexes(world: &World, job: &Value, pods: &[&Value]) -> Option<Finding> {
    let which = object::text(job, "/status/failedIndexes");
    let limit = job.pointer("/spec/backoffLimitPerIndex").and_then(Value::as_i64)?;
    if which.is_empty() {
        return None;
    }
    let cause = format!(
        "its indexes {which} have failed for good (backoffLimitPerIndex is {limit}): the others go on, and the Job fails when they are done"
    );
    let finding = Finding::new(Reason::FailedIndexes, job, cause);
    let is_over = |pod: &&&Value| object::text(pod, "/status/phase") == "Failed";
    let last = pods.iter().filter(is_over).max_by_key(|pod| time_at(pod, "/metadata/creationTimestamp"));
    let finding = match last.and_then(|pod| pod::first(world, pod)) {
        Some(last) => finding.because_of(last),
        None => finding,
    };
    Some(finding.advise(format!(
        "a Job that failed stays so; when the cause is gone, delete it and create it again: kubectl delete -n {} {}",
        object::namespace(job),
        title(job)
    )))
}

/// The queue that suspends a Job and starts it when there is room.
fn queue(job: &Value) -> Option<&'static str> {
    const QUEUE: &str = "kueue.x-k8s.io/queue-name";
    (object::labels(job).contains_key(QUEUE) || object::annotations(job).contains_key(QUEUE)).then_some(QUEUE)
}

/// What Events tell of pods that the controller has deleted: the newest warning about one of them.
fn told_of_gone(world: &World, job: &Value) -> Vec<String> {
    let start = format!("{}-", object::name(job));
    let of = |event: &&Value, field: &str| object::text(event, &format!("/involvedObject/{field}")).to_owned();
    let gone = |event: &&Value| {
        let name = of(event, "name");
        // Made of the Job's name and five characters, with an index before them where it has those.
        let rest = name.strip_prefix(&start).unwrap_or_default();
        let own = rest.rsplit('-').next().is_some_and(|end| end.len() == 5)
            && rest.split('-').rev().skip(1).all(|index| index.parse::<u32>().is_ok());
        of(event, "kind") == "Pod" && own && world.find("pods", &name).is_none()
    };
    let warnings = world.all("events").iter().filter(|event| object::text(event, "/type") == "Warning");
    let since = time_at(job, "/metadata/creationTimestamp");
    let is = |event: &Value, reason: &str| object::text(event, "/reason") == reason;
    // A pod that got a node after all did not end for want of one.
    let scheduled: HashSet<String> =
        world.all("events").iter().filter(|event| is(event, "Scheduled")).map(|event| of(&event, "uid")).collect();
    let placed = |event: &Value| is(event, "FailedScheduling") && scheduled.contains(&of(&event, "uid"));
    // The error itself says more than that it was tried again.
    let newest = warnings
        .filter(gone)
        .filter(|event| event_time(event) >= since && !placed(event))
        .max_by_key(|event| (!is(event, "BackOff"), object::text(event, "/message").len() > 40, event_time(event)));
    newest
        .map(|event| format!("Events tell of its pod {}, which is gone: {}", of(&event, "name"), said(event)))
        .into_iter()
        .collect()
}

/// A container that has done its work beside one that runs on: the pod is over when all have ended.
fn runs_on(pods: &[&Value]) -> Option<String> {
    pods.iter().find_map(|pod| {
        let statuses = object::items(pod, "/status/containerStatuses");
        let name = |status: Option<&Value>| status.map(|status| object::text(status, "/name").to_owned());
        let ended = |status: &&Value| status.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0);
        let runs = |status: &&Value| status.pointer("/state/running").is_some();
        let (ended, runs) = (name(statuses.iter().find(ended))?, name(statuses.iter().find(runs))?);
        Some(format!(
            "container {ended} of pod/{} has done its work, and {runs} still runs: the pod is over when all its containers have ended",
            object::name(pod)
        ))
    })
}

fn limit(job: &Value) -> i64 {
    job.pointer("/spec/backoffLimit").and_then(Value::as_i64).unwrap_or(6)
}

fn failed_job(world: &World, job: &Value, failed: &Value) -> Finding {
    let (reason, cause) = match object::text(failed, "/reason") {
        "BackoffLimitExceeded" => {
            (Reason::BackoffLimit, format!("its pods failed more often than backoffLimit={} allows", limit(job)))
        }
        "DeadlineExceeded" => {
            let seconds = number(job, "/spec/activeDeadlineSeconds");
            (Reason::JobDeadline, format!("it took longer than its activeDeadlineSeconds of {seconds} s"))
        }
        "PodFailurePolicy" => (Reason::PodFailurePolicy, "a rule of its podFailurePolicy ended it".to_owned()),
        "FailedIndexes" | "MaxFailedIndexesExceeded" => {
            let which = object::text(job, "/status/failedIndexes");
            (Reason::FailedIndexes, format!("some of its indexes failed: {which}"))
        }
        other => (Reason::JobFailed, format!("it failed: {other}")),
    };
    let mut finding = Finding::new(reason, job, cause).detail(object::text(failed, "/message"));
    let broken = world.owned("pods", job).filter_map(|pod| pod::first(world, pod)).find(|finding| !finding.underway);
    match broken {
        Some(broken) => finding = finding.because_of(broken),
        None if !told_of_gone(world, job).is_empty() => {
            finding = told_of_gone(world, job).into_iter().fold(finding, Finding::detail);
        }
        None if reason == Reason::JobDeadline => {}
        None if world.seen("pods").is_none() => finding = finding.detail("its pods could not be looked at"),
        None => finding = finding.detail("its pods are gone, and their logs with them"),
    }
    let (namespace, name) = (object::namespace(job), title(job));
    // The next one comes by itself, from the template of then.
    if let Some(cron) = containers::maker(world, job).filter(|maker| maker.starts_with("cronjob/")) {
        return finding.advise(format!(
            "a Job that failed stays so; {cron} makes the next one: correct its template if need be: kubectl edit -n {namespace} {cron}"
        ));
    }
    finding.advise(format!(
        "a Job that failed stays so; when the cause is gone, delete it and create it again: kubectl delete -n {namespace} {name}"
    ))
}

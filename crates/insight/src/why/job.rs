//! Jobs that failed, wait or are at work.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, plural, pod, workload};
use crate::world::{World, is_true, number, standing, title};

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
        return vec![
            finding(Reason::JobSuspended, "it is suspended (spec.suspend), and so it has no pods".into())
                .note()
                .advise(advice),
        ];
    }
    let manager = object::text(job, "/spec/managedBy");
    if !matches!(manager, "" | "kubernetes.io/job-controller") && number(job, "/status/active") == 0 {
        let cause = format!("it is left to the controller {manager:?} (spec.managedBy), which has started nothing yet");
        return vec![finding(Reason::JobManaged, cause).advise(format!("see that {manager} runs"))];
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
    let (active, done) = (number(job, "/status/active"), number(job, "/status/succeeded"));
    let wanted = job.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    let at_work = current.iter().any(|pod| is_true(pod, "Ready") || object::text(pod, "/status/phase") == "Running");
    let cause = format!("{done} of {wanted} are done, {active} at work");
    let mut finding = finding(Reason::JobRunning, cause).underway();
    if failures > 0 {
        let limit = limit(job);
        finding = finding.detail(format!("{} so far; backoffLimit is {limit}", plural(failures, "failed attempt")));
        let last = pods.iter().rfind(|pod| is_over(pod)).and_then(|pod| pod::first(world, pod));
        if let Some(last) = last.filter(|_| !at_work) {
            return vec![finding.because_of(last)];
        }
    }
    vec![finding]
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
        None if reason == Reason::JobDeadline => {}
        None if world.seen("pods").is_none() => finding = finding.detail("its pods could not be looked at"),
        None => finding = finding.detail("its pods are gone, and their logs with them"),
    }
    let (namespace, name) = (object::namespace(job), title(job));
    finding.advise(format!(
        "a Job that failed stays so; when the cause is gone, delete it and create it again: kubectl delete -n {namespace} {name}"
    ))
}

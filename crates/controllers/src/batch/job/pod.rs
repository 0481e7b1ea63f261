//! The pods of a Job.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::policy::{self, PodFailurePolicyAction};
use crate::common::{pod, pod_control};

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

pub(super) fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
}

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

pub(super) fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// Pods that are going are replaced at once, unless the Job wants to know first how they ended.
pub(super) fn replaces_failed_only(job: &Job) -> bool {
    let spec = job.spec.as_ref();
    let policy = spec.and_then(|spec| spec.pod_replacement_policy.as_deref());
    policy.map_or(spec.is_some_and(|spec| spec.pod_failure_policy.is_some()), |policy| policy == "Failed")
}

pub(super) fn has_failed(job: &Job, pod: &Pod) -> bool {
    let going = pod::is_terminating(pod) && pod::phase(pod) != "Succeeded";
    pod::phase(pod) == "Failed" || (going && !replaces_failed_only(job))
}

fn number(pod: &Pod, annotation: &str) -> i32 {
    pod.annotations().get(annotation).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// How often the index had failed before this pod.
pub(super) fn failures_before(pod: &Pod) -> i32 {
    number(pod, FAILURES)
}

/// All failures of the index with this pod's, those ignored too: they count for the back-off.
pub(super) fn attempts(pod: &Pod) -> i32 {
    number(pod, FAILURES).saturating_add(number(pod, IGNORED)).saturating_add(1)
}

/// When the pod ended, as well as it is known.
pub(super) fn ended(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends =
        statuses.map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0));
    let ends: Option<Vec<Timestamp>> = ends.collect();
    let containers = ends.and_then(|ends| ends.into_iter().max());
    let unready = pod::condition(pod, "Ready").filter(|condition| condition.status == "False");
    let unready = unready.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    let deleted = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    containers.or(unready).or(deleted).or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// A new pod; `previous` is the pod of the same index that failed, where failures are counted per index.
pub(super) fn make(job: &Job, index: Option<i32>, previous: Option<&Pod>) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pod_control::pod_from(&template, job);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    let Some(index) = index else { return pod };
    let name = job.name_any();
    let suffix = format!("-{index}-");
    let cut = name.get(..name.len().min(58usize.saturating_sub(suffix.len()))).unwrap_or(&name);
    pod.metadata.generate_name = Some(format!("{cut}{suffix}"));
    pod.annotations_mut().insert(INDEX.into(), index.to_string());
    pod.labels_mut().insert(INDEX.into(), index.to_string());
    if job.spec.as_ref().is_some_and(|spec| spec.backoff_limit_per_index.is_some()) {
        let (mut failures, mut ignored) = (0, 0);
        if let Some(previous) = previous {
            let is_ignored = policy::judge(job, previous) == PodFailurePolicyAction::Ignore;
            failures = number(previous, FAILURES) + i32::from(!is_ignored);
            ignored = number(previous, IGNORED) + i32::from(is_ignored);
        }
        pod.annotations_mut().insert(FAILURES.into(), failures.to_string());
        if ignored > 0 {
            pod.annotations_mut().insert(IGNORED.into(), ignored.to_string());
        }
    }
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{name}-{index}"));
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        let variables = container.env.get_or_insert_default();
        if !variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
            let field = ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
            variables.push(EnvVar {
                name: INDEX_VARIABLE.into(),
                value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
                ..EnvVar::default()
            });
        }
    }
    pod
}

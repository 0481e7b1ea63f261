//! What a failed pod means to its Job, and when some successes are enough.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use super::indexes::Indexes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodFailurePolicyAction {
    Count,
    Ignore,
    FailIndex,
    FailJob(String),
}

/// The first rule of the Job's policy that the pod matches.
pub(super) fn judge(job: &Job, pod: &Pod) -> PodFailurePolicyAction {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    for (index, rule) in policy.into_iter().flat_map(|policy| &policy.rules).enumerate() {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let reason = if let Some(codes) = &rule.on_exit_codes {
            exit_code(pod, codes).map(|(container, code)| {
                format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
            })
        } else {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
            let matching = conditions.into_iter().find(|condition| {
                patterns.iter().any(|pattern| {
                    pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
                })
            });
            matching.map(|condition| format!("Pod {namespace}/{name} has condition {}", condition.type_))
        };
        let Some(reason) = reason else { continue };
        match rule.action.as_str() {
            "Ignore" => return PodFailurePolicyAction::Ignore,
            "FailIndex" => return PodFailurePolicyAction::FailIndex,
            "Count" => return PodFailurePolicyAction::Count,
            "FailJob" => {
                return PodFailurePolicyAction::FailJob(format!(
                    "{reason} matching {} rule at index {index}",
                    rule.action
                ));
            }
            _ => {}
        }
    }
    PodFailurePolicyAction::Count
}

fn exit_code(pod: &Pod, wanted: &PodFailurePolicyOnExitCodesRequirement) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?;
    let mut all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.find_map(|container: &ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        let named = wanted.container_name.as_ref().is_none_or(|name| *name == container.name);
        let matches = match wanted.operator.as_str() {
            "In" => wanted.values.contains(&code),
            "NotIn" => !wanted.values.contains(&code),
            _ => false,
        };
        (code != 0 && named && matches).then(|| (container.name.clone(), code))
    })
}

/// The words for the rule by which the indexes that succeeded are enough.
pub(super) fn success(job: &Job, succeeded: &Indexes) -> Option<String> {
    let spec = job.spec.as_ref()?;
    let completions = spec.completions?;
    let matching = spec.success_policy.as_ref()?.rules.iter().position(|rule| match &rule.succeeded_indexes {
        None => rule.succeeded_count.is_some_and(|count| succeeded.total() >= count),
        Some(text) => {
            let wanted = Indexes::parse(text, completions);
            let shared = wanted.shared(succeeded);
            wanted.total() > 0
                && (shared == wanted.total() || rule.succeeded_count.is_some_and(|count| shared >= count))
        }
    });
    matching.map(|index| format!("Matched rules at index {index}"))
}

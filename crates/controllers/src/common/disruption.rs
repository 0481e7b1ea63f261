//! Says on a pod why it is about to be deleted, so that its owner can tell a disruption from a failure.

use ferry_client::Api;
use ferry_client::write;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::pod;

/// Why a pod is deleted, and since when that is known.
pub(crate) struct Disruption<'a> {
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) since: Time,
}

/// Sets the DisruptionTarget condition, and the phase when one is given. A pod that is gone needs none.
pub(crate) async fn mark(
    api: &Api<Pod>,
    pod: &Pod,
    disruption: Disruption<'_>,
    phase: Option<&str>,
) -> Result<(), kube::Error> {
    let Disruption { reason, message, since } = disruption;
    let known = pod::condition(pod, "DisruptionTarget");
    let says_so = known.is_some_and(|known| known.status == "True" && known.reason.as_deref() == Some(reason));
    if says_so && phase.is_none_or(|phase| pod::phase(pod) == phase) {
        return Ok(());
    }
    let mut status = json!({ "conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": since,
    }] });
    if let Some(phase) = phase {
        status["phase"] = phase.into();
    }
    patch(api, pod, status).await
}

/// Takes the announcement back: the pod was not disrupted after all. Fails when the pod has changed since it was seen.
pub(crate) async fn retract(api: &Api<Pod>, pod: &Pod, now: Time) -> Result<(), kube::Error> {
    let mut kept = pod.clone();
    let conditions = kept.status.get_or_insert_default().conditions.get_or_insert_default();
    for condition in conditions.iter_mut().filter(|condition| condition.type_ == "DisruptionTarget") {
        *condition = PodCondition {
            type_: condition.type_.clone(),
            status: "False".into(),
            observed_generation: condition.observed_generation,
            last_transition_time: Some(now.clone()),
            ..PodCondition::default()
        };
    }
    match api.replace_status(&pod.name_any(), &PostParams::default(), &kept).await {
        Err(error) if !write::is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Sets the phase alone.
pub(crate) async fn set_phase(api: &Api<Pod>, pod: &Pod, phase: &str) -> Result<(), kube::Error> {
    patch(api, pod, json!({ "phase": phase })).await
}

async fn patch(api: &Api<Pod>, pod: &Pod, status: serde_json::Value) -> Result<(), kube::Error> {
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
    match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
        Err(error) if !write::is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

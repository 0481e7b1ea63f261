//! What an autoscaler says of itself.

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::limits::Decision;

const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";
const TO_ZERO: &str = "ScaledToZero";

fn set(status: &mut HorizontalPodAutoscalerStatus, kind: &str, holds: bool, reason: &str, message: impl Into<String>) {
    let state = if holds { "True" } else { "False" };
    let list = status.conditions.get_or_insert_default();
    let known = list.iter().find(|known| known.type_ == kind && known.status == state);
    // What is new gets its time when it is written.
    let since = known.and_then(|known| known.last_transition_time.clone());
    let made = HorizontalPodAutoscalerCondition {
        type_: kind.into(),
        status: state.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: since,
        observed_generation: None,
    };
    match list.iter().position(|known| known.type_ == kind) {
        Some(at) => list[at] = made,
        None => list.push(made),
    }
}

/// Gives those that changed the time since when they hold.
pub(super) fn stamp(status: &mut HorizontalPodAutoscalerStatus, now: &Time) {
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_transition_time.get_or_insert_with(|| now.clone());
    }
}

pub(super) fn able(status: &mut HorizontalPodAutoscalerStatus, holds: bool, reason: &str, message: impl Into<String>) {
    set(status, ABLE, holds, reason, message);
}

pub(super) fn active(
    status: &mut HorizontalPodAutoscalerStatus,
    holds: bool,
    reason: &str,
    message: impl Into<String>,
) {
    set(status, ACTIVE, holds, reason, message);
}

/// What became of a recommendation.
pub(super) fn decided(status: &mut HorizontalPodAutoscalerStatus, decision: &Decision) {
    let (reason, message) = match decision.stabilized {
        Some(true) => (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
        Some(false) => (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        None => ("ReadyForNewScale", "recommended size matches current size"),
    };
    able(status, true, reason, message);
    let (reason, message) =
        decision.limited.unwrap_or(("DesiredWithinRange", "the desired count is within the acceptable range"));
    set(status, LIMITED, decision.limited.is_some(), reason, message);
}

/// Whether there are no replicas because the autoscaler itself took the last: only then it brings them back.
pub(super) fn is_scaled_to_zero(status: &HorizontalPodAutoscalerStatus) -> bool {
    status.conditions.iter().flatten().any(|one| one.type_ == TO_ZERO && one.status == "True")
}

pub(super) fn scaled_to_zero(status: &mut HorizontalPodAutoscalerStatus, holds: bool) {
    if holds {
        set(status, TO_ZERO, true, TO_ZERO, "the HPA controller scaled the workload to zero");
    } else {
        set(status, TO_ZERO, false, "NotScaledToZero", "the HPA controller did not scale the workload to zero");
    }
}

//! Autoscalers that do not scale.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Hop, said};
use crate::world::{World, standing};

pub(super) fn autoscaler(_: &World, target: &Value) -> Vec<Finding> {
    let scaled = format!(
        "{}/{}",
        object::text(target, "/spec/scaleTargetRef/kind").to_lowercase(),
        object::text(target, "/spec/scaleTargetRef/name")
    );
    let finding = |cause: &str, told: &Value| Finding::new(Hop::Autoscaler, target, cause).detail(said(told));
    if let Some(unable) = standing(target, "AbleToScale", "False") {
        let advice = format!("see that {scaled} exists and has a scale subresource");
        return vec![finding("it cannot change the scale of its target", unable).advise(advice)];
    }
    if let Some(inactive) = standing(target, "ScalingActive", "False") {
        let found = finding("it gets no metrics, and so cannot say how many replicas are needed", inactive);
        return vec![match object::text(inactive, "/reason") {
            "ScalingDisabled" => {
                let advice = "scaling is off while the target has 0 replicas: kubectl scale it to 1";
                finding("its target is scaled to 0", inactive).advise(advice)
            }
            "FailedGetResourceMetric" if said(inactive).contains("missing request") => {
                found.advise("name resources.requests for that resource in every container of the template")
            }
            "FailedGetResourceMetric" => {
                found.advise("the resource metrics API must be served: kubectl get apiservice v1beta1.metrics.k8s.io")
            }
            "InvalidSelector" => found.advise("the target names no selector for its pods"),
            _ => found.advise(
                "the API that serves this metric must be there: custom.metrics.k8s.io or external.metrics.k8s.io",
            ),
        }];
    }
    match standing(target, "ScalingLimited", "True") {
        Some(limited) if object::text(limited, "/reason") == "TooManyReplicas" => {
            vec![finding("it wants more replicas than maxReplicas allows", limited).advise("raise maxReplicas")]
        }
        _ => Vec::new(),
    }
}

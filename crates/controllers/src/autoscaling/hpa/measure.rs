//! Each metric of an autoscaler: asked for, computed, and told in its status.

use std::sync::Arc;

use ferry_meta::Quantity;
use ferry_meta::quantity::Format;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricStatus, HorizontalPodAutoscaler, MetricSpec, MetricStatus,
    MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::jiff::Timestamp;

use super::replicas::{self, Asked, Target, Tolerance};
use super::source::{Source, selector_text};
use crate::common::pod;

/// What is scaled, and its pods.
pub(super) struct Scaled<'a> {
    pub(super) namespace: &'a str,
    pub(super) replicas: i32,
    pub(super) selector: &'a str,
    pub(super) pods: &'a [Arc<Pod>],
}

/// What one metric asks for, what its status says, and what it is called in events.
pub(super) struct Measured {
    pub(super) replicas: i32,
    pub(super) status: MetricStatus,
    pub(super) name: String,
}

/// The reason of the condition and what went wrong.
pub(super) type Problem = (&'static str, String);

fn milli(amount: Option<&Amount>) -> Option<i64> {
    Some(Quantity::parse(&amount?.0).ok()?.milli_value())
}

fn amount(milli: i64) -> Amount {
    Amount(Quantity::from_milli(milli, Format::DecimalSi).to_string())
}

pub(super) fn tolerance(autoscaler: &HorizontalPodAutoscaler) -> Tolerance {
    let behavior = autoscaler.spec.behavior.as_ref();
    let of = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
        let given = rules.and_then(|rules| Quantity::parse(&rules.tolerance.as_ref()?.0).ok());
        given.map_or(0.1, |quantity| quantity.as_f64())
    };
    Tolerance {
        up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
    }
}

fn target(target: &MetricTarget) -> Result<Target, String> {
    if let Some(average) = milli(target.average_value.as_ref()) {
        return Ok(Target::Average(average));
    }
    let percent = target.average_utilization.ok_or("neither a utilization nor an average value is asked for")?;
    Ok(Target::Utilization(percent.into()))
}

fn shown(asked: &Asked) -> MetricValueStatus {
    MetricValueStatus {
        average_utilization: asked.utilization,
        average_value: Some(amount(asked.average_milli)),
        value: None,
    }
}

fn ready_pods(pods: &[Arc<Pod>]) -> usize {
    pods.iter().filter(|pod| pod::is_ready(pod)).count()
}

/// A value or an average of something that is no pod's.
fn of_total(
    scaled: &Scaled<'_>,
    shown: i64,
    target: &MetricTarget,
    tolerance: Tolerance,
) -> Result<(i32, MetricValueStatus), String> {
    if let Some(wanted) = milli(target.average_value.as_ref()) {
        let asked = replicas::of_average(scaled.replicas, shown, wanted, tolerance);
        let status =
            MetricValueStatus { average_value: Some(amount(asked.average_milli)), ..MetricValueStatus::default() };
        return Ok((asked.replicas, status));
    }
    let wanted = milli(target.value.as_ref()).ok_or("neither a value nor an average value is asked for")?;
    let asked = replicas::of_value(scaled.replicas, shown, wanted, ready_pods(scaled.pods), tolerance);
    Ok((asked.replicas, MetricValueStatus { value: Some(amount(shown)), ..MetricValueStatus::default() }))
}

pub(super) async fn measure(
    source: &Source,
    scaled: &Scaled<'_>,
    metric: &MetricSpec,
    tolerance: Tolerance,
) -> Result<Measured, Problem> {
    let pods: Vec<&Pod> = scaled.pods.iter().map(|pod| &**pod).collect();
    let now = Timestamp::now();
    let mut status = MetricStatus { type_: metric.type_.clone(), ..MetricStatus::default() };
    let (asked, name) = match metric.type_.as_str() {
        "Resource" | "ContainerResource" => {
            let reason =
                if metric.type_ == "Resource" { "FailedGetResourceMetric" } else { "FailedGetContainerResourceMetric" };
            let (name, container, wanted) = match (&metric.resource, &metric.container_resource) {
                (Some(wanted), _) => (&wanted.name, None, &wanted.target),
                (None, Some(wanted)) => (&wanted.name, Some(wanted.container.as_str()), &wanted.target),
                (None, None) => return Err((reason, "the metric says nothing".into())),
            };
            let compute = async {
                let wanted = target(wanted)?;
                let samples = source.resource(scaled.namespace, scaled.selector, name, container).await?;
                replicas::of_pods(scaled.replicas, &pods, &samples, wanted, Some((name, container)), tolerance, now)
            };
            let asked =
                compute.await.map_err(|problem| (reason, format!("failed to get {name} utilization: {problem}")))?;
            let current = shown(&asked);
            match container {
                None => status.resource = Some(ResourceMetricStatus { name: name.clone(), current }),
                Some(container) => {
                    let container = container.to_owned();
                    status.container_resource =
                        Some(ContainerResourceMetricStatus { name: name.clone(), container, current });
                }
            }
            let kind = if asked.utilization.is_some() { " utilization (percentage of request)" } else { "" };
            (asked.replicas, format!("{name} resource{kind}"))
        }
        "Pods" => {
            let Some(wanted) = &metric.pods else {
                return Err(("FailedGetPodsMetric", "the metric says nothing".into()));
            };
            let compute = async {
                let average = milli(wanted.target.average_value.as_ref()).ok_or("no average value is asked for")?;
                let selector = selector_text(wanted.metric.selector.as_ref());
                let samples = source.of_pods(scaled.namespace, scaled.selector, &wanted.metric.name, &selector).await?;
                replicas::of_pods(scaled.replicas, &pods, &samples, Target::Average(average), None, tolerance, now)
            };
            let asked = compute.await.map_err(|problem: String| {
                ("FailedGetPodsMetric", format!("failed to get pods metric value: {problem}"))
            })?;
            status.pods = Some(PodsMetricStatus { metric: wanted.metric.clone(), current: shown(&asked) });
            (asked.replicas, format!("pods metric {}", wanted.metric.name))
        }
        "Object" => {
            let Some(wanted) = &metric.object else {
                return Err(("FailedGetObjectMetric", "the metric says nothing".into()));
            };
            let object = &wanted.described_object;
            let compute = async {
                let resource =
                    plural(&source.client, object.api_version.as_deref().unwrap_or_default(), &object.kind).await?;
                let selector = selector_text(wanted.metric.selector.as_ref());
                let shown =
                    source.of_object(scaled.namespace, &resource, &object.name, &wanted.metric.name, &selector).await?;
                of_total(scaled, shown, &wanted.target, tolerance)
            };
            let (asked, current) = compute.await.map_err(|problem| {
                ("FailedGetObjectMetric", format!("failed to get object metric value: {problem}"))
            })?;
            status.object =
                Some(ObjectMetricStatus { metric: wanted.metric.clone(), described_object: object.clone(), current });
            (asked, format!("{} metric {}", object.kind, wanted.metric.name))
        }
        "External" => {
            let Some(wanted) = &metric.external else {
                return Err(("FailedGetExternalMetric", "the metric says nothing".into()));
            };
            let compute = async {
                let selector = selector_text(wanted.metric.selector.as_ref());
                let shown = source.external(scaled.namespace, &wanted.metric.name, &selector).await?;
                of_total(scaled, shown, &wanted.target, tolerance)
            };
            let (asked, current) = compute.await.map_err(|problem| {
                ("FailedGetExternalMetric", format!("failed to get external metric value: {problem}"))
            })?;
            status.external = Some(ExternalMetricStatus { metric: wanted.metric.clone(), current });
            (asked, format!("external metric {}", wanted.metric.name))
        }
        other => return Err(("InvalidMetricSourceType", format!("unknown metric source type {other:?}"))),
    };
    Ok(Measured { replicas: asked, status, name })
}

/// `plural.group` of a kind, as the custom metrics API names resources.
async fn plural(client: &kube::Client, api_version: &str, kind: &str) -> Result<String, String> {
    let resource = resource_of(client, api_version, kind).await?;
    Ok(if resource.group.is_empty() { resource.plural } else { format!("{}.{}", resource.plural, resource.group) })
}

/// The resource behind a kind, as the server serves it.
pub(super) async fn resource_of(
    client: &kube::Client,
    api_version: &str,
    kind: &str,
) -> Result<kube::api::ApiResource, String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let wanted = kube::core::GroupVersionKind::gvk(group, version, kind);
    let found = kube::discovery::pinned_kind(client, &wanted).await;
    found.map(|(resource, _)| resource).map_err(|error| ferry_client::write::short(&error))
}

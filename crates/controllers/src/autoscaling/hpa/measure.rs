//! Each metric of an autoscaler: asked for, computed, and told in its status.

use std::sync::Arc;

use ferry_client::Clock;
use ferry_meta::Quantity;
use ferry_meta::quantity::Format;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, HPAScalingRules,
    HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource,
    ObjectMetricStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::Settings;
use super::mapping::{self, Mapping};
use super::replicas::{self, Moment, Target, Tolerance};
use super::source::{Source, selector_shown, selector_text};

/// What is scaled, and its pods.
pub(super) struct Scaled<'a> {
    pub(super) namespace: &'a str,
    /// As many as are wanted so far, and as many as there are.
    pub(super) wanted: i32,
    pub(super) there: i32,
    pub(super) selector: &'a str,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) tolerance: Tolerance,
    pub(super) settings: &'a Settings,
    pub(super) clock: &'a Clock,
}

/// Where figures come from.
pub(super) struct Meter {
    pub(super) source: Source,
    pub(super) mapping: Mapping,
}

/// What one metric asks for, what its status says, and what it is called in events.
pub(super) struct Measured {
    pub(super) replicas: i32,
    pub(super) status: MetricStatus,
    pub(super) name: String,
}

/// Why a metric says nothing: the reason of the condition and the event, what these say, and what stands before that where it
/// is told of all metrics.
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) text: String,
    pub(super) context: String,
}

impl Problem {
    fn new(reason: &'static str, context: impl Into<String>, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), context: context.into() }
    }
}

fn milli(amount: Option<&Amount>) -> Option<i64> {
    Some(Quantity::parse(&amount?.0).ok()?.milli_value())
}

fn amount(milli: i64) -> Amount {
    Amount(Quantity::from_milli(milli, Format::DecimalSi).to_string())
}

/// Memory is told as metrics servers tell it.
fn amount_of(resource: &str, milli: i64) -> Amount {
    if resource != "memory" {
        return amount(milli);
    }
    Amount(Quantity::from_milli(milli, Format::BinarySi).to_string())
}

pub(super) fn tolerance(autoscaler: &HorizontalPodAutoscaler, other: f64) -> Tolerance {
    let behavior = autoscaler.spec.behavior.as_ref();
    let of = |rules: Option<&HPAScalingRules>| {
        let given = rules.and_then(|rules| Quantity::parse(&rules.tolerance.as_ref()?.0).ok());
        given.map_or(other, |quantity| quantity.as_f64())
    };
    Tolerance {
        up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
    }
}

fn average(milli: i64) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(amount(milli)), ..MetricValueStatus::default() }
}

fn value(milli: i64) -> MetricValueStatus {
    MetricValueStatus { value: Some(amount(milli)), ..MetricValueStatus::default() }
}

fn unset(kind: &str) -> String {
    format!("invalid {kind} metric source: neither a value target nor an average value target was set")
}

impl Meter {
    pub(super) async fn measure(&self, scaled: &Scaled<'_>, metric: &MetricSpec) -> Result<Measured, Problem> {
        match (metric.type_.as_str(), metric) {
            ("Resource", MetricSpec { resource: Some(wanted), .. }) => {
                let context = format!("failed to get {} resource metric value: ", wanted.name);
                self.resource(scaled, &wanted.name, None, &wanted.target)
                    .await
                    .map_err(|text| Problem::new("FailedGetResourceMetric", context, text))
            }
            ("ContainerResource", MetricSpec { container_resource: Some(wanted), .. }) => {
                let context = format!("failed to get {} container metric value: ", wanted.container);
                self.resource(scaled, &wanted.name, Some(&wanted.container), &wanted.target)
                    .await
                    .map_err(|text| Problem::new("FailedGetContainerResourceMetric", context, text))
            }
            ("Pods", MetricSpec { pods: Some(wanted), .. }) => {
                let context = "failed to get pods metric value: ";
                let measured = self.pods(scaled, wanted).await;
                measured.map_err(|text| Problem::new("FailedGetPodsMetric", context, text))
            }
            ("Object", MetricSpec { object: Some(wanted), .. }) => self.object(scaled, wanted).await,
            ("External", MetricSpec { external: Some(wanted), .. }) => self.external(scaled, wanted).await,
            (other, _) => {
                Err(Problem::new("InvalidMetricSourceType", "", format!("unknown metric source type {other:?}")))
            }
        }
    }

    async fn resource(
        &self,
        scaled: &Scaled<'_>,
        name: &str,
        container: Option<&str>,
        target: &MetricTarget,
    ) -> Result<Measured, String> {
        let (target, what) = match (milli(target.average_value.as_ref()), target.average_utilization) {
            (Some(average), _) => (Target::Average(average), "usage"),
            (None, Some(percent)) => (Target::Utilization(percent.into()), "utilization"),
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average \
                    value (usage) target was set"
                    .into());
            }
        };
        let compute = async {
            let samples = self.source.resource(scaled.namespace, scaled.selector, name, container).await;
            let samples = samples.map_err(|error| format!("unable to get metrics for resource {name}: {error}"))?;
            let (pods, of, now) = (pods(scaled), Some((name, container)), moment(scaled));
            replicas::of_pods(scaled.wanted, &pods, &samples, target, of, scaled.tolerance, &now)
        };
        let asked = compute.await.map_err(|problem| format!("failed to get {name} {what}: {problem}"))?;
        let current = MetricValueStatus {
            average_utilization: asked.utilization,
            average_value: Some(amount_of(name, asked.average_milli)),
            value: None,
        };
        let mut status = MetricStatus::default();
        let named = name.to_owned();
        if let Some(container) = container {
            status.type_ = "ContainerResource".into();
            let container = container.to_owned();
            status.container_resource = Some(ContainerResourceMetricStatus { name: named, container, current });
        } else {
            status.type_ = "Resource".into();
            status.resource = Some(ResourceMetricStatus { name: named, current });
        }
        let shown = match (target, container) {
            (Target::Average(_), _) => format!("{name} resource"),
            (Target::Utilization(_), None) => format!("{name} resource utilization (percentage of request)"),
            (Target::Utilization(_), Some(_)) => {
                format!("{name} container resource utilization (percentage of request)")
            }
        };
        Ok(Measured { replicas: asked.replicas, status, name: shown })
    }

    async fn pods(&self, scaled: &Scaled<'_>, wanted: &PodsMetricSource) -> Result<Measured, String> {
        let name = &wanted.metric.name;
        let target = milli(wanted.target.average_value.as_ref()).ok_or("no average value is asked for")?;
        let selector = selector_text(wanted.metric.selector.as_ref());
        let samples = self.source.of_pods(scaled.namespace, scaled.selector, name, &selector).await;
        let samples = samples.map_err(|error| format!("unable to get metric {name}: {error}"))?;
        let (pods, target, now) = (pods(scaled), Target::Average(target), moment(scaled));
        let asked = replicas::of_pods(scaled.wanted, &pods, &samples, target, None, scaled.tolerance, &now)?;
        let status = MetricStatus {
            type_: "Pods".into(),
            pods: Some(PodsMetricStatus { metric: wanted.metric.clone(), current: average(asked.average_milli) }),
            ..MetricStatus::default()
        };
        Ok(Measured { replicas: asked.replicas, status, name: format!("pods metric {name}") })
    }

    async fn object(&self, scaled: &Scaled<'_>, wanted: &ObjectMetricSource) -> Result<Measured, Problem> {
        let (object, metric) = (&wanted.described_object, &wanted.metric.name);
        let is_average = wanted.target.average_value.is_some();
        let mut context = "failed to get object metric value: ".to_owned();
        if is_average {
            context += &format!("failed to get {metric} object metric: ");
        }
        let figure = async {
            let (group, _) = mapping::group_version(object.api_version.as_deref().unwrap_or_default())?;
            let resource = self.mapping.resource(group, &object.kind).await?;
            let dot = if resource.group.is_empty() { "" } else { "." };
            let resource = format!("{}{dot}{}", resource.plural, resource.group);
            let selector = selector_text(wanted.metric.selector.as_ref());
            self.source.of_object(scaled.namespace, &resource, &object.name, metric, &selector).await
        };
        let compute = async {
            let shown = figure.await.map_err(|error| {
                let place = format!("{} {}/{}", object.kind, scaled.namespace, object.name);
                format!("unable to get metric {metric} on {place}: {error}")
            })?;
            of_total(scaled, shown, &wanted.target, "object")
        };
        let (replicas, current) = compute.await.map_err(|text| Problem::new("FailedGetObjectMetric", context, text))?;
        let described_object = object.clone();
        let status = MetricStatus {
            type_: "Object".into(),
            object: Some(ObjectMetricStatus { metric: wanted.metric.clone(), described_object, current }),
            ..MetricStatus::default()
        };
        let name = if is_average {
            format!("external metric {metric}({})", selector_shown(wanted.metric.selector.as_ref()))
        } else {
            format!("{} metric {metric}", object.kind)
        };
        Ok(Measured { replicas, status, name })
    }

    async fn external(&self, scaled: &Scaled<'_>, wanted: &ExternalMetricSource) -> Result<Measured, Problem> {
        let metric = &wanted.metric.name;
        let selector = selector_shown(wanted.metric.selector.as_ref());
        let context = if wanted.target.average_value.is_some() {
            format!("failed to get {metric} external metric value: failed to get {metric} external metric: ")
        } else {
            format!("failed to get {metric} external metric value: failed to get external metric {metric}: ")
        };
        let compute = async {
            let text = selector_text(wanted.metric.selector.as_ref());
            let shown = self.source.external(scaled.namespace, metric, &text).await;
            let place = || format!("{}/{metric}/{selector}", scaled.namespace);
            let shown = shown.map_err(|error| format!("unable to get external metric {}: {error}", place()))?;
            of_total(scaled, shown, &wanted.target, "external")
        };
        let (replicas, current) =
            compute.await.map_err(|text| Problem::new("FailedGetExternalMetric", context, text))?;
        let status = MetricStatus {
            type_: "External".into(),
            external: Some(ExternalMetricStatus { metric: wanted.metric.clone(), current }),
            ..MetricStatus::default()
        };
        Ok(Measured { replicas, status, name: format!("external metric {metric}({selector})") })
    }
}

fn moment<'a>(scaled: &Scaled<'a>) -> Moment<'a> {
    Moment { now: scaled.clock.now(), settings: scaled.settings }
}

fn pods<'a>(scaled: &Scaled<'a>) -> Vec<&'a Pod> {
    scaled.pods.iter().map(|pod| &**pod).collect()
}

/// A value or an average of something that is no pod's.
fn of_total(
    scaled: &Scaled<'_>,
    shown: i64,
    target: &MetricTarget,
    kind: &str,
) -> Result<(i32, MetricValueStatus), String> {
    if let Some(wanted) = milli(target.average_value.as_ref()) {
        let asked = replicas::of_average(scaled.there, shown, wanted, scaled.tolerance);
        return Ok((asked.replicas, average(asked.average_milli)));
    }
    let wanted = milli(target.value.as_ref()).ok_or_else(|| unset(kind))?;
    let asked = replicas::of_value(scaled.wanted, shown, wanted, &pods(scaled), scaled.tolerance)?;
    Ok((asked, value(shown)))
}

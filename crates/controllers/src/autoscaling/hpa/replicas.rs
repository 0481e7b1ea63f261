//! How many replicas one metric asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::Settings;
use crate::common::pod;

const NO_PODS: &str = "no pods returned by selector while calculating replica count";

/// One pod's figure, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) milli: i64,
    pub(super) at: Timestamp,
    pub(super) window: Duration,
}

/// By the pod's name.
pub(super) type Samples = BTreeMap<String, Sample>;

/// By how much a ratio may differ from one before anything happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub(super) up: f64,
    pub(super) down: f64,
}

impl Tolerance {
    fn holds(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// When figures are looked at, and how long those of pods that start are not believed.
pub(super) struct Moment<'a> {
    pub(super) now: Timestamp,
    pub(super) settings: &'a Settings,
}

/// What is wanted of each pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Percent of what the pods request.
    Utilization(i64),
    /// Thousandths per pod.
    Average(i64),
}

/// What a metric asks for, and what it showed: percent of requests where that was asked, and thousandths per pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) replicas: i32,
    pub(super) utilization: Option<i32>,
    pub(super) average_milli: i64,
}

/// Who of the pods has no say: those that end, those whose figures are not believed, and those without any.
#[derive(Default)]
struct Groups {
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
    ignored: Vec<String>,
}

fn started(pod: &Pod) -> Option<Timestamp> {
    Some(pod.status.as_ref()?.start_time.as_ref()?.0)
}

/// Whether the pod's processor time says nothing yet.
fn is_warming_up(pod: &Pod, sample: &Sample, moment: &Moment<'_>) -> bool {
    let (Some(condition), Some(start)) = (pod::condition(pod, "Ready"), started(pod)) else { return true };
    let changed = condition.last_transition_time.as_ref().map_or(start, |time| time.0);
    let since = |from: Timestamp, to: Timestamp| Duration::try_from(to.duration_since(from)).unwrap_or_default();
    if since(start, moment.now) < moment.settings.cpu_initialization_period {
        return condition.status == "False" || sample.at < changed + sample.window;
    }
    condition.status == "False" && since(start, changed) < moment.settings.initial_readiness_delay
}

fn group(pods: &[&Pod], samples: &Samples, is_cpu: bool, moment: &Moment<'_>) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = pod.name_any();
        if pod::is_terminating(pod) || pod::phase(pod) == "Failed" {
            groups.ignored.push(name);
            continue;
        }
        match samples.get(&name) {
            _ if pod::phase(pod) == "Pending" => groups.unready.push(name),
            None => groups.missing.push(name),
            Some(sample) if is_cpu && is_warming_up(pod, sample, moment) => groups.unready.push(name),
            Some(_) => groups.ready += 1,
        }
    }
    groups
}

/// What the pod, or one container of it, requests of a resource in thousandths.
fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, String> {
    let spec = pod.spec.as_ref().ok_or_else(|| format!("Pod {} has no spec", pod.name_any()))?;
    if container.is_none() && has_requests_of_its_own(spec) {
        let spec = serde_json::to_value(spec).unwrap_or_default();
        let total = ferry_semantics::quota::amounts::total_with_overhead(&spec, "requests");
        return total
            .get(resource)
            .map(Quantity::milli_value)
            .ok_or_else(|| format!("missing pod-level request for {resource} in Pod {}", pod.name_any()));
    }
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let mut sum = None;
    for part in spec.containers.iter().chain(sidecars).filter(|part| container.is_none_or(|name| part.name == name)) {
        let requests = part.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let amount =
            requests.and_then(|requests| Quantity::parse(&requests.get(resource)?.0).ok()).ok_or_else(|| {
                format!("missing request for {resource} in container {} of Pod {}", part.name, pod.name_any())
            })?;
        sum = Some(sum.unwrap_or(0_i64).saturating_add(amount.milli_value()));
    }
    match (sum, container) {
        (Some(sum), _) => Ok(sum),
        (None, None) => Ok(0),
        (None, Some(container)) => Err(format!("container {container} not found in Pod {}", pod.name_any())),
    }
}

/// Whether requests are given for the pod as a whole.
fn has_requests_of_its_own(spec: &PodSpec) -> bool {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.into_iter().flatten().any(|(name, _)| name == "cpu" || name == "memory" || name.starts_with("hugepages-"))
}

fn share(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn times(ratio: f64, count: usize) -> i32 {
    (ratio * count as f64).ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}

fn mean(sum: i64, count: usize) -> i64 {
    sum / i64::try_from(count.max(1)).unwrap_or(1)
}

/// The share of what is wanted that these figures are, percent of requests where that is asked, and their average.
fn ratio(
    used: &BTreeMap<String, i64>,
    target: Target,
    requests: &BTreeMap<String, i64>,
) -> Result<(f64, Option<i32>, i64), String> {
    match target {
        Target::Utilization(percent) => {
            // What requests nothing that is known is none of the pods meant.
            let (mut sum, mut asked, mut count) = (0_i64, 0_i64, 0);
            for (name, milli) in used {
                let Some(request) = requests.get(name) else { continue };
                (sum, asked, count) = (sum.saturating_add(*milli), asked.saturating_add(*request), count + 1);
            }
            if asked == 0 {
                return Err("no metrics returned matched known pods".into());
            }
            let whole = i32::try_from(i128::from(sum) * 100 / i128::from(asked)).unwrap_or(i32::MAX);
            Ok((share(whole.into(), percent), Some(whole), mean(sum, count)))
        }
        Target::Average(wanted) => {
            let average = mean(used.values().fold(0, |sum, milli| sum.saturating_add(*milli)), used.len());
            Ok((share(average, wanted), None, average))
        }
    }
}

/// For metrics of pods. `resource` names the one whose requests utilization refers to.
pub(super) fn of_pods(
    current: i32,
    pods: &[&Pod],
    samples: &Samples,
    target: Target,
    resource: Option<(&str, Option<&str>)>,
    tolerance: Tolerance,
    moment: &Moment<'_>,
) -> Result<Asked, String> {
    if pods.is_empty() {
        return Err(NO_PODS.into());
    }
    let is_cpu = resource.is_some_and(|(name, _)| name == "cpu");
    let groups = group(pods, samples, is_cpu, moment);
    let mut used: BTreeMap<String, i64> = samples.iter().map(|(name, sample)| (name.clone(), sample.milli)).collect();
    for name in groups.ignored.iter().chain(&groups.unready) {
        used.remove(name);
    }
    if used.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let mut requests = BTreeMap::new();
    if let (Target::Utilization(_), Some((name, container))) = (target, resource) {
        for pod in pods {
            requests.insert(pod.name_any(), request(pod, name, container)?);
        }
    }
    let (first, utilization, average_milli) = ratio(&used, target, &requests)?;
    let asked = |replicas| Asked { replicas, utilization, average_milli };
    let grows_with_unready = !groups.unready.is_empty() && first > 1.0;
    if groups.missing.is_empty() && !grows_with_unready {
        let replicas = if tolerance.holds(first) { current } else { times(first, groups.ready) };
        return Ok(asked(replicas));
    }
    // Doubt speaks against changing anything: going down, the missing are busy; going up, they and the unready are idle.
    if first < 1.0 {
        for name in groups.missing {
            let busy = match target {
                Target::Utilization(percent) => {
                    requests.get(&name).map_or(0, |asked| asked.saturating_mul(percent.max(100)) / 100)
                }
                Target::Average(wanted) => wanted,
            };
            used.insert(name, busy);
        }
    } else if first > 1.0 {
        used.extend(groups.missing.into_iter().chain(groups.unready).map(|name| (name, 0)));
    }
    let (second, ..) = ratio(&used, target, &requests)?;
    if tolerance.holds(second) || (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0) {
        return Ok(asked(current));
    }
    let replicas = times(second, used.len());
    let turned = (second < 1.0 && replicas > current) || (second > 1.0 && replicas < current);
    Ok(asked(if turned { current } else { replicas }))
}

/// For a metric of one object or of something outside: the pods that are ready together carry what it shows.
pub(super) fn of_value(
    current: i32,
    shown_milli: i64,
    wanted_milli: i64,
    pods: &[&Pod],
    tolerance: Tolerance,
) -> Result<i32, String> {
    let ratio = share(shown_milli, wanted_milli);
    // From none, the metric alone decides.
    if current == 0 {
        return Ok(times(ratio, 1));
    }
    if tolerance.holds(ratio) {
        return Ok(current);
    }
    if pods.is_empty() {
        return Err(format!("unable to calculate ready pods: {NO_PODS}"));
    }
    let ready = pods.iter().filter(|pod| pod::phase(pod) == "Running" && pod::is_ready(pod)).count();
    Ok(times(ratio, ready))
}

/// As `of_value`, when the target is an amount for each of the pods that are there.
pub(super) fn of_average(there: i32, shown_milli: i64, wanted_milli: i64, tolerance: Tolerance) -> Asked {
    let ratio = share(shown_milli, wanted_milli.saturating_mul(i64::from(there)));
    let replicas = if there > 0 && tolerance.holds(ratio) { there } else { times(share(shown_milli, wanted_milli), 1) };
    let average_milli = (shown_milli as f64 / f64::from(there.max(1))).ceil() as i64;
    Asked { replicas, utilization: None, average_milli }
}

#[cfg(test)]
mod tests;

//! How many replicas one metric asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use ferry_meta::Quantity;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::common::pod;

/// How long the processor time of a pod that just started is not believed.
const CPU_INITIALIZATION: Duration = Duration::from_secs(300);
const INITIAL_READINESS: Duration = Duration::from_secs(30);

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

#[derive(Default)]
struct Groups<'a> {
    ready: usize,
    unready: Vec<&'a Pod>,
    missing: Vec<&'a Pod>,
    used: BTreeMap<String, i64>,
}

fn started(pod: &Pod) -> Option<Timestamp> {
    Some(pod.status.as_ref()?.start_time.as_ref()?.0)
}

/// Whether the pod's processor time says nothing yet.
fn is_warming_up(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let (Some(condition), Some(start)) = (pod::condition(pod, "Ready"), started(pod)) else { return true };
    let changed = condition.last_transition_time.as_ref().map_or(start, |time| time.0);
    let since = |from: Timestamp, to: Timestamp| Duration::try_from(to.duration_since(from)).unwrap_or_default();
    if since(start, now) < CPU_INITIALIZATION {
        return condition.status == "False" || sample.at < changed + sample.window;
    }
    condition.status == "False" && since(start, changed) < INITIAL_READINESS
}

fn group<'a>(pods: &[&'a Pod], samples: &Samples, is_cpu: bool, now: Timestamp) -> Groups<'a> {
    let mut groups = Groups::default();
    for pod in pods {
        if pod::is_terminating(pod) || pod::phase(pod) == "Failed" {
            continue;
        }
        let name = pod.name_any();
        match samples.get(&name) {
            _ if pod::phase(pod) == "Pending" => groups.unready.push(pod),
            None => groups.missing.push(pod),
            Some(sample) if is_cpu && is_warming_up(pod, sample, now) => groups.unready.push(pod),
            Some(sample) => {
                groups.ready += 1;
                groups.used.insert(name, sample.milli);
            }
        }
    }
    groups
}

/// What the pod, or one container of it, requests of a resource in thousandths.
fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Option<i64> {
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let mut sum = 0_i64;
    for part in spec.containers.iter().chain(sidecars).filter(|part| container.is_none_or(|name| part.name == name)) {
        let amount = part.resources.as_ref()?.requests.as_ref()?.get(resource)?;
        sum = sum.saturating_add(Quantity::parse(&amount.0).ok()?.milli_value());
    }
    Some(sum)
}
fn share(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
fn times(ratio: f64, count: usize) -> i32 {
    (ratio * count as f64).ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}

/// For metrics of pods. `resource` names the one whose requests utilization refers to.
pub(super) fn of_pods(
    current: i32,
    pods: &[&Pod],
    samples: &Samples,
    target: Target,
    resource: Option<(&str, Option<&str>)>,
    tolerance: Tolerance,
    now: Timestamp,
) -> Result<Asked, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".into());
    }
    let is_cpu = resource.is_some_and(|(name, _)| name == "cpu");
    let mut groups = group(pods, samples, is_cpu, now);
    if groups.used.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let mut requests = BTreeMap::new();
    if let (Target::Utilization(_), Some((name, container))) = (target, resource) {
        for pod in pods {
            let asked = request(pod, name, container)
                .ok_or_else(|| format!("missing request for {name} in container of Pod {}", pod.name_any()))?;
            requests.insert(pod.name_any(), asked);
        }
    }
    // The share of what is wanted that these pods use.
    let ratio = |used: &BTreeMap<String, i64>| -> (f64, Option<i32>, i64) {
        let sum: i64 = used.values().fold(0, |sum, milli| sum.saturating_add(*milli));
        let average = sum / i64::try_from(used.len().max(1)).unwrap_or(1);
        match target {
            Target::Utilization(percent) => {
                let asked = used
                    .keys()
                    .filter_map(|name| requests.get(name))
                    .fold(0_i64, |sum, milli| sum.saturating_add(*milli));
                let shown = share(sum, asked) * 100.0;
                let whole = shown as i32;
                (shown / f64::from(i32::try_from(percent).unwrap_or(i32::MAX)), Some(whole), average)
            }
            Target::Average(wanted) => (share(average, wanted), None, average),
        }
    };
    let (first, utilization, average_milli) = ratio(&groups.used);
    let asked = |replicas| Asked { replicas, utilization, average_milli };
    if groups.missing.is_empty() && (groups.unready.is_empty() || first <= 1.0) {
        let replicas = if tolerance.holds(first) { current } else { times(first, groups.ready) };
        return Ok(asked(replicas));
    }
    // Doubt speaks against changing anything: going down, the missing are busy; going up, they and the unready are idle.
    for pod in &groups.missing {
        let busy = match target {
            Target::Utilization(percent) => {
                requests.get(&pod.name_any()).map_or(0, |asked| asked.saturating_mul(percent.max(100)) / 100)
            }
            Target::Average(wanted) => wanted,
        };
        groups.used.insert(pod.name_any(), if first < 1.0 { busy } else { 0 });
    }
    if first > 1.0 {
        for pod in &groups.unready {
            groups.used.insert(pod.name_any(), 0);
        }
    }
    let (second, ..) = ratio(&groups.used);
    if tolerance.holds(second) || (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0) {
        return Ok(asked(current));
    }
    let replicas = times(second, groups.used.len());
    let turned = (second < 1.0 && replicas > current) || (second > 1.0 && replicas < current);
    Ok(asked(if turned { current } else { replicas }))
}

/// For a metric of one object or of something outside: `ready` pods together carry what it shows.
pub(super) fn of_value(current: i32, shown_milli: i64, wanted_milli: i64, ready: usize, tolerance: Tolerance) -> Asked {
    let ratio = share(shown_milli, wanted_milli);
    let replicas = match (current, ready) {
        // From none, the metric alone decides.
        (0, _) => times(ratio, 1),
        _ if tolerance.holds(ratio) => current,
        _ => times(ratio, ready),
    };
    Asked { replicas, utilization: None, average_milli: 0 }
}

/// As `of_value`, when the target is an amount per pod.
pub(super) fn of_average(current: i32, shown_milli: i64, wanted_milli: i64, tolerance: Tolerance) -> Asked {
    let ratio = share(shown_milli, wanted_milli.saturating_mul(i64::from(current)));
    let replicas =
        if current > 0 && tolerance.holds(ratio) { current } else { times(share(shown_milli, wanted_milli), 1) };
    Asked { replicas, utilization: None, average_milli: shown_milli / i64::from(current.max(1)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOLERANCE: Tolerance = Tolerance { up: 0.1, down: 0.1 };

    fn a_pod(name: usize, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": format!("p{name}") },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": phase, "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z" }] },
        }))
        .expect("a pod")
    }

    /// Usage of each pod in thousandths; none is a pod without a figure, a negative one a pod that is pending.
    fn check(target: Target, usage: &[Option<i64>], expected: i32) {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let pods: Vec<Pod> = usage
            .iter()
            .enumerate()
            .map(|(n, used)| a_pod(n, if used.is_some_and(|u| u < 0) { "Pending" } else { "Running" }))
            .collect();
        let samples: Samples = usage
            .iter()
            .enumerate()
            .filter_map(|(n, used)| {
                Some((format!("p{n}"), Sample { milli: (*used)?, at: now, window: Duration::from_secs(30) }))
            })
            .collect();
        let refs: Vec<&Pod> = pods.iter().collect();
        let current = i32::try_from(usage.len()).expect("few");
        let made = of_pods(current, &refs, &samples, target, Some(("cpu", None)), TOLERANCE, now).expect("figures");
        assert_eq!(made.replicas, expected, "{target:?} {usage:?}");
    }

    #[test]
    fn metrics_of_pods() {
        let half = Target::Utilization(50);
        check(half, &[Some(500), Some(500)], 2);
        check(half, &[Some(540), Some(540)], 2);
        check(half, &[Some(1000), Some(1000)], 4);
        check(half, &[Some(100), Some(100), Some(100), Some(100)], 1);
        // Going up, pods without figures and pods that are not ready count as idle.
        check(half, &[Some(900), Some(900), None], 4);
        check(half, &[Some(600), None], 2);
        check(half, &[Some(900), Some(-1)], 2);
        check(half, &[Some(1000), Some(1000), Some(-1)], 4);
        // Going down, pods without figures count as busy.
        check(half, &[Some(100), Some(100), None, None], 4);
        check(half, &[Some(10), Some(10), Some(10), None], 3);
        check(Target::Average(250), &[Some(500), Some(500)], 4);
        check(Target::Average(500), &[Some(100), Some(100), Some(100)], 1);
    }

    #[test]
    fn metrics_of_others() {
        let value = |current, shown, wanted, ready| of_value(current, shown, wanted, ready, TOLERANCE).replicas;
        assert_eq!((value(3, 2000, 1000, 3), value(3, 1050, 1000, 3), value(0, 2500, 1000, 0)), (6, 3, 3));
        let average = |current, shown, wanted| of_average(current, shown, wanted, TOLERANCE).replicas;
        assert_eq!((average(2, 5000, 1000), average(5, 5200, 1000), average(0, 100, 1000)), (5, 5, 1));
        assert_eq!(value(3, i64::MAX, 1, 3), i32::MAX);
    }

    #[test]
    fn without_requests_or_figures_it_is_said_so() {
        let mut bare = a_pod(0, "Running");
        bare.spec.as_mut().expect("a spec").containers[0].resources = None;
        let now = Timestamp::now();
        let samples = Samples::from([("p0".into(), Sample { milli: 1, at: now, window: Duration::ZERO })]);
        let ask = |pods: &[&Pod], samples: &Samples| {
            of_pods(1, pods, samples, Target::Utilization(50), Some(("cpu", None)), TOLERANCE, now)
                .expect_err("a problem")
        };
        assert!(ask(&[&bare], &samples).starts_with("missing request for cpu"));
        assert!(ask(&[], &samples).starts_with("no pods returned"));
        assert!(ask(&[&bare], &Samples::new()).starts_with("did not receive metrics"));
    }
}

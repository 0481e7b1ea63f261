//! Tests of what metrics ask for.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

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

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn moment() -> Moment<'static> {
    const SETTINGS: Settings = Settings {
        sync_period: Duration::from_secs(15),
        downscale_stabilization: Duration::from_secs(300),
        tolerance: 0.1,
        cpu_initialization_period: Duration::from_secs(300),
        initial_readiness_delay: Duration::from_secs(30),
    };
    Moment { now: now(), settings: &SETTINGS }
}

fn sample(milli: i64) -> Sample {
    Sample { milli, at: now(), window: Duration::from_secs(30) }
}

/// Usage of each pod in thousandths; none is a pod without a figure, a negative one a pod that is pending.
fn ask(target: Target, usage: &[Option<i64>]) -> Asked {
    let pods: Vec<Pod> = usage
        .iter()
        .enumerate()
        .map(|(n, used)| a_pod(n, if used.is_some_and(|u| u < 0) { "Pending" } else { "Running" }))
        .collect();
    let samples: Samples =
        usage.iter().enumerate().filter_map(|(n, used)| Some((format!("p{n}"), sample((*used)?)))).collect();
    let refs: Vec<&Pod> = pods.iter().collect();
    let current = i32::try_from(usage.len()).expect("few");
    of_pods(current, &refs, &samples, target, Some(("cpu", None)), TOLERANCE, &moment()).expect("figures")
}

fn check(target: Target, usage: &[Option<i64>], expected: i32) {
    assert_eq!(ask(target, usage).replicas, expected, "{target:?} {usage:?}");
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
    check(half, &[Some(10), Some(10), Some(10), None], 2);
    check(Target::Average(250), &[Some(500), Some(500)], 4);
    check(Target::Average(500), &[Some(100), Some(100), Some(100)], 1);
    // Just right: pods without figures change nothing.
    check(half, &[Some(500), None, None, None], 4);
    // What is compared is whole percent: 55.9 of 50 is within a tenth.
    check(half, &[Some(559), Some(559)], 2);
    check(half, &[Some(560), Some(560)], 3);
}

#[test]
fn averages_are_of_all_figures_that_came() {
    let shown = ask(Target::Average(500), &[Some(101), Some(100)]);
    assert_eq!((shown.average_milli, shown.utilization), (100, None));
    let shown = ask(Target::Utilization(50), &[Some(101), Some(100), Some(-1)]);
    assert_eq!((shown.average_milli, shown.utilization), (100, Some(10)));
    // A figure of a pod that is gone: it has no requests to be compared with, but an average counts it.
    let (pod, samples) =
        (a_pod(0, "Running"), Samples::from([("p0".into(), sample(100)), ("gone".into(), sample(500))]));
    let of =
        |target| of_pods(1, &[&pod], &samples, target, Some(("cpu", None)), TOLERANCE, &moment()).expect("figures");
    assert_eq!(of(Target::Utilization(10)), Asked { replicas: 1, utilization: Some(10), average_milli: 100 });
    assert_eq!(of(Target::Average(100)), Asked { replicas: 3, utilization: None, average_milli: 300 });
}

#[test]
fn metrics_of_others() {
    let mut unready = a_pod(9, "Running");
    unready.status.as_mut().expect("a status").conditions = None;
    let pods = [a_pod(0, "Running"), a_pod(1, "Running"), a_pod(2, "Running"), a_pod(3, "Succeeded"), unready];
    let refs: Vec<&Pod> = pods.iter().collect();
    let value = |current, shown, wanted| of_value(current, shown, wanted, &refs, TOLERANCE);
    assert_eq!((value(3, 2000, 1000), value(3, 1050, 1000), value(0, 2500, 1000)), (Ok(6), Ok(3), Ok(3)));
    assert_eq!(value(3, i64::MAX, 1), Ok(i32::MAX));
    assert_eq!((of_value(3, 1000, 1000, &[], TOLERANCE), of_value(0, 1500, 1000, &[], TOLERANCE)), (Ok(3), Ok(2)));
    let problem = of_value(3, 5000, 1000, &[], TOLERANCE).expect_err("no pods");
    assert_eq!(problem, "unable to calculate ready pods: no pods returned by selector while calculating replica count");
    let average = |there, shown, wanted| {
        let asked = of_average(there, shown, wanted, TOLERANCE);
        (asked.replicas, asked.average_milli)
    };
    assert_eq!((average(2, 5000, 1000), average(5, 5200, 1000)), ((5, 2500), (5, 1040)));
    assert_eq!((average(0, 100, 1000), average(3, 1000, 1000)), ((1, 100), (1, 334)));
}

#[test]
fn without_requests_or_figures_it_is_said_so() {
    let change = |part: &str, value: Value| {
        let mut object = serde_json::to_value(a_pod(0, "Running")).expect("a pod");
        *object.pointer_mut(part).expect("a part") = value;
        serde_json::from_value::<Pod>(object).expect("a pod")
    };
    let samples = Samples::from([("p0".into(), sample(1))]);
    let ask = |pods: &[&Pod], samples: &Samples, container: Option<&str>| {
        let half = Target::Utilization(50);
        of_pods(1, pods, samples, half, Some(("cpu", container)), TOLERANCE, &moment()).expect_err("a problem")
    };
    let bare = change("/spec/containers/0/resources", json!({}));
    assert_eq!(ask(&[&bare], &samples, None), "missing request for cpu in container c of Pod p0");
    assert_eq!(ask(&[&bare], &samples, Some("other")), "container other not found in Pod p0");
    assert!(ask(&[], &samples, None).starts_with("no pods returned"));
    assert!(ask(&[&bare], &Samples::new(), None).starts_with("did not receive metrics"));
    let nothing = change("/spec/containers/0/resources/requests/cpu", json!("0"));
    assert_eq!(ask(&[&nothing], &samples, None), "no metrics returned matched known pods");
}

#[test]
fn requests_of_the_whole_pod_come_first() {
    let pod = |resources: Value| -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": {
            "resources": resources, "overhead": { "cpu": "100m" },
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
            "initContainers": [{ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } }, { "name": "i" }],
        } }))
        .expect("a pod")
    };
    assert_eq!(request(&pod(json!({})), "cpu", None), Ok(2000));
    let whole = pod(json!({ "requests": { "cpu": "5" } }));
    assert_eq!((request(&whole, "cpu", None), request(&whole, "cpu", Some("s"))), (Ok(5100), Ok(1000)));
    assert_eq!(request(&whole, "memory", None), Err("missing pod-level request for memory in Pod p".into()));
}

/// Seconds since the start, those since the last change of readiness, whether it is ready, and how old the figure is: believed or not.
#[test]
fn processor_time_of_pods_that_start_is_not_believed() {
    let check = |started: i64, changed: i64, ready: &str, age: i64, expected: bool| {
        let before = |seconds: i64| (now() - SignedDuration::from_secs(seconds)).to_string();
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": {
            "startTime": before(started), "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": before(changed) }],
        } }))
        .expect("a pod");
        let sample = Sample { at: now() - SignedDuration::from_secs(age), ..sample(1) };
        assert_eq!(!is_warming_up(&pod, &sample, &moment()), expected, "{started} {changed} {ready} {age}");
    };
    // Within the first five minutes: ready for a whole window of the figure.
    check(100, 60, "True", 0, true);
    check(100, 60, "True", 40, false);
    check(100, 10, "True", 0, false);
    check(100, 60, "False", 0, false);
    // Later: unless it never was ready.
    check(400, 60, "False", 0, true);
    check(400, 380, "False", 0, false);
    check(400, 10, "True", 60, true);
}

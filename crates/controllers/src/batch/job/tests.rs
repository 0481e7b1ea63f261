//! A small world in which plans are carried out, interrupted, and pods succeed or fail.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::backoff::Record;
use super::plan::{Observed, plan};
use super::{finished, pod as job_pod, status};

struct World {
    job: Job,
    pods: Vec<Pod>,
    record: Record,
    clock: i64,
    made: usize,
    /// Stops after this many single writes, as a crash would.
    crash_after: usize,
}

impl World {
    fn new(spec: Value) -> Self {
        let mut json = json!({
            "metadata": { "name": "work", "namespace": "a", "uid": "j" },
            "spec": {
                "parallelism": 2, "completions": 4, "backoffLimit": 3,
                "selector": {}, "template": { "spec": { "containers": [{ "name": "c" }], "restartPolicy": "Never" } },
            },
        });
        for (key, value) in spec.as_object().expect("a spec") {
            json["spec"][key] = value.clone();
        }
        let job = serde_json::from_value(json).expect("a job");
        Self { job, pods: Vec::new(), record: Record::default(), clock: 0, made: 0, crash_after: usize::MAX }
    }

    fn step(&mut self) -> bool {
        self.clock += 1;
        let now = Timestamp::from_second(self.clock).expect("a time");
        let pods: Vec<Arc<Pod>> = self.pods.iter().cloned().map(Arc::new).collect();
        let observed = Observed {
            job: &self.job,
            pods: &pods,
            released: &HashSet::new(),
            settled: true,
            record: self.record,
            now,
        };
        let plan = plan(&observed);
        let mut writes = 0;
        let mut crash = |limit: usize| {
            writes += 1;
            writes > limit
        };
        for pod in plan.stop.iter().chain(&plan.discard) {
            self.pods.retain(|known| known.metadata.uid != pod.metadata.uid);
        }
        let created = plan.create.len();
        for mut pod in plan.create {
            self.made += 1;
            pod.metadata.uid = Some(format!("u{}", self.made));
            pod.metadata.name = Some(format!("p{}", self.made));
            pod.status = serde_json::from_value(json!({ "phase": "Running" })).ok();
            self.pods.push(pod);
        }
        if crash(self.crash_after) {
            return true;
        }
        let mut new = plan.status.clone();
        let first = status::normalised(&new) != status::normalised(&self.job.status.clone().unwrap_or_default());
        self.job.status = Some(new.clone());
        self.record = plan.record;
        for pod in &plan.release {
            if crash(self.crash_after) {
                return true;
            }
            self.pods.retain(|known| known.metadata.uid != pod.metadata.uid);
        }
        let tracked = self.pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        status::settle(&mut new, &tracked);
        if let Some(end) = &plan.end {
            new.terminating = None;
            status::finish(&mut new, end, now);
        }
        if crash(self.crash_after) {
            return true;
        }
        self.job.status = Some(new);
        first || created > 0 || !plan.release.is_empty()
    }

    /// Ends every running pod as `outcome` says of its number and index.
    fn run(&mut self, outcome: &dyn Fn(usize, Option<i32>) -> &'static str) {
        for _ in 0..400 {
            let changed = self.step();
            if finished(&self.job).is_some() {
                return;
            }
            let mut ended = false;
            self.clock += 1;
            let at = Timestamp::from_second(self.clock).expect("a time");
            for pod in &mut self.pods {
                let number: usize = pod.name_any()[1..].parse().expect("a number");
                let phase = outcome(number, job_pod::index(pod));
                if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
                    && phase != "Running"
                {
                    let code = i32::from(phase == "Failed") * 7;
                    let state = json!({ "terminated": { "exitCode": code, "finishedAt": at.to_string() } });
                    pod.status = serde_json::from_value(json!({ "phase": phase, "containerStatuses": [{
                        "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
                    }] }))
                    .ok();
                    ended = true;
                }
            }
            if !changed && !ended {
                // Only the back-off holds it up.
                self.clock += 700;
            }
        }
    }

    fn summary(&self) -> String {
        let status = self.job.status.clone().unwrap_or_default();
        let end = finished(&self.job).map(|end| format!("{} {}", end.type_, end.reason.clone().unwrap_or_default()));
        format!(
            "{}: {} succeeded, {} failed, {} made",
            end.unwrap_or_default(),
            status.succeeded.unwrap_or_default(),
            status.failed.unwrap_or_default(),
            self.made
        )
    }
}

fn check(spec: Value, outcome: &dyn Fn(usize, Option<i32>) -> &'static str, expected: &str) {
    // Whatever single write is the last before a crash, the counts come out the same.
    for crash_after in [usize::MAX, 0, 1, 2, 3] {
        let mut world = World::new(spec.clone());
        world.crash_after = crash_after;
        for _ in 0..3 {
            world.step();
        }
        world.crash_after = usize::MAX;
        world.run(outcome);
        assert_eq!(world.summary(), expected, "{spec}, a crash after {crash_after} writes");
    }
}

#[test]
fn pods_are_counted_exactly_once() {
    check(json!({}), &|_, _| "Succeeded", "Complete CompletionsReached: 4 succeeded, 0 failed, 4 made");
    check(
        json!({}),
        &|number, _| if number == 2 { "Failed" } else { "Succeeded" },
        "Complete CompletionsReached: 4 succeeded, 1 failed, 5 made",
    );
    check(json!({ "parallelism": 1 }), &|_, _| "Failed", "Failed BackoffLimitExceeded: 0 succeeded, 4 failed, 4 made");
    check(
        json!({ "completions": null, "parallelism": 3 }),
        &|_, _| "Succeeded",
        "Complete CompletionsReached: 3 succeeded, 0 failed, 3 made",
    );
    check(
        json!({ "completions": 0 }),
        &|_, _| "Succeeded",
        "Complete CompletionsReached: 0 succeeded, 0 failed, 0 made",
    );
}

#[test]
fn indexes_are_counted_by_themselves() {
    let indexed = json!({ "completionMode": "Indexed", "completions": 5, "parallelism": 3 });
    check(indexed.clone(), &|_, _| "Succeeded", "Complete CompletionsReached: 5 succeeded, 0 failed, 5 made");
    let mut world = World::new(indexed);
    world.run(&|_, _| "Succeeded");
    let status = world.job.status.expect("a status");
    assert_eq!(status.completed_indexes.as_deref(), Some("0-4"));

    let per_index = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimit": 1000, "backoffLimitPerIndex": 1,
    });
    let mut world = World::new(per_index);
    world.run(&|_, index| if index == Some(1) { "Failed" } else { "Succeeded" });
    assert_eq!(world.summary(), "Failed FailedIndexes: 2 succeeded, 2 failed, 4 made");
    assert_eq!(world.job.status.expect("a status").failed_indexes.as_deref(), Some("1"));
}

#[test]
fn policies_decide_early() {
    let exit_codes = json!({ "operator": "In", "values": [7] });
    let policy =
        |action: &str| json!({ "podFailurePolicy": { "rules": [{ "action": action, "onExitCodes": exit_codes }] } });
    let mut world = World::new(policy("FailJob"));
    world.run(&|number, _| if number == 1 { "Failed" } else { "Running" });
    assert_eq!(world.summary(), "Failed PodFailurePolicy: 0 succeeded, 2 failed, 2 made");
    let mut world = World::new(policy("Ignore"));
    world.run(&|number, _| if number < 9 { "Failed" } else { "Succeeded" });
    assert_eq!(world.summary(), "Complete CompletionsReached: 4 succeeded, 0 failed, 12 made");
    let mut world = World::new(json!({
        "completionMode": "Indexed", "completions": 5, "parallelism": 5,
        "successPolicy": { "rules": [{ "succeededIndexes": "0", "succeededCount": 1 }] },
    }));
    world.run(&|_, index| if index == Some(0) { "Succeeded" } else { "Running" });
    assert!(world.summary().starts_with("Complete SuccessPolicy: 1 succeeded"), "{}", world.summary());
}

#[test]
fn a_suspended_job_has_no_pods() {
    let mut world = World::new(json!({}));
    world.step();
    assert_eq!(world.pods.len(), 2);
    if let Some(spec) = &mut world.job.spec {
        spec.suspend = Some(true);
    }
    world.step();
    assert!(world.pods.is_empty());
    let status = world.job.status.clone().expect("a status");
    assert_eq!(status.conditions.expect("conditions")[0].type_, "Suspended");
    if let Some(spec) = &mut world.job.spec {
        spec.suspend = Some(false);
    }
    world.run(&|_, _| "Succeeded");
    assert_eq!(world.summary(), "Complete CompletionsReached: 4 succeeded, 0 failed, 6 made");
}

#[test]
fn failures_are_followed_by_a_wait() {
    let mut world = World::new(json!({ "parallelism": 1 }));
    world.step();
    world.pods[0].status = serde_json::from_value(json!({ "phase": "Failed", "conditions": [
        { "type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:02Z" },
    ] }))
    .ok();
    world.clock = 3;
    world.step();
    assert!(world.pods.is_empty());
    let pods: Vec<Arc<Pod>> = Vec::new();
    let now = Timestamp::from_second(5).expect("a time");
    let observed =
        Observed { job: &world.job, pods: &pods, released: &HashSet::new(), settled: true, record: world.record, now };
    let plan = plan(&observed);
    assert!(plan.create.is_empty());
    assert_eq!(plan.again, Some(Duration::from_secs(7)));
}

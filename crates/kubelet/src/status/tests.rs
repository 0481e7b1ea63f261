//! Statuses of pods in the situations of their life.

use serde_json::{Value, json};

use super::*;
use crate::runtime::model::Sandbox;
use crate::runtime::{Record, RunState};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn record(name: &str, state: RunState, exit_code: i32, restart_count: u32) -> Record {
    Record {
        id: format!("{name}-{restart_count}"),
        name: name.into(),
        sandbox: "s".into(),
        state,
        restart_count,
        hash: String::new(),
        image: "web:1".into(),
        image_ref: "web@sha256:1".into(),
        created_at: i64::from(restart_count) + 10,
        started_at: Some(at(50)),
        finished_at: (state == RunState::Exited).then(|| at(60)),
        exit_code,
        reason: if exit_code == 0 { "Completed".into() } else { "Error".into() },
        message: String::new(),
        log_path: String::new(),
    }
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "generation": 1}, "spec": spec}))
        .expect("a pod")
}

struct Case {
    health: HashMap<String, Health>,
    sizes: HashMap<String, Size>,
    resizing: bool,
    reasons: BTreeMap<String, WaitReason>,
    over: bool,
}

fn case() -> Case {
    Case { health: HashMap::new(), sizes: HashMap::new(), resizing: false, reasons: BTreeMap::new(), over: false }
}

impl Case {
    fn of(&self, pod: &Pod, records: Vec<Record>) -> PodStatus {
        let sandbox = Sandbox { id: "s".into(), ready: true, addresses: vec!["10.1.1.1".into()], ..Sandbox::default() };
        let mut state = PodState { sandboxes: vec![sandbox], records };
        state.sort();
        status(&Observed {
            pod,
            state: &state,
            health: &self.health,
            reasons: &self.reasons,
            old: pod::status(pod),
            over: self.over,
            end_reason: None,
            sizes: &self.sizes,
            resizing: self.resizing,
            recursive_read_only: false,
            runtime_name: "containerd",
            host_addresses: &["192.0.2.1".to_owned()],
            now: at(100),
        })
    }
}

fn is(status: &PodStatus, kind: &str) -> String {
    let list = status.conditions.as_deref().unwrap_or_default();
    let found = list.iter().find(|c| c.type_ == kind).expect(kind);
    match (&found.reason, &found.message) {
        (Some(reason), Some(message)) => format!("{} {reason}: {message}", found.status),
        (Some(reason), None) => format!("{} {reason}", found.status),
        _ => found.status.clone(),
    }
}

#[test]
fn a_running_pod_is_ready() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let status = case().of(&pod, vec![record("a", RunState::Running, 0, 0)]);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.1.1"));
    for kind in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled"] {
        assert_eq!(is(&status, kind), "True", "{kind}");
    }
    let container = &status.container_statuses.expect("statuses")[0];
    assert_eq!(container.container_id.as_deref(), Some("containerd://a-0"));
    assert!(container.ready && container.started == Some(true));
}

#[test]
fn failing_readiness_shows_running_and_not_ready() {
    let pod = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    let mut case = case();
    case.health.insert("b-0".into(), Health { ready: false, ..Health::UNPROBED });
    let status = case.of(&pod, vec![record("a", RunState::Running, 0, 0), record("b", RunState::Running, 0, 0)]);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(is(&status, "Ready"), "False ContainersNotReady: containers with unready status: [b]");
}

#[test]
fn a_container_yet_to_be_made_is_waiting() {
    let pod = pod(json!({"containers": [{"name": "a", "image": "web"}], "initContainers": [{"name": "i"}]}));
    let status = case().of(&pod, vec![]);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(is(&status, "Initialized"), "False ContainersNotInitialized: containers with incomplete status: [i]");
    let waiting = status.container_statuses.expect("statuses")[0].state.clone().and_then(|s| s.waiting);
    assert_eq!(waiting.and_then(|w| w.reason).as_deref(), Some("PodInitializing"));
}

#[test]
fn a_crash_loop_shows_why_it_waits_and_how_it_ended() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut case = case();
    let reason = WaitReason { reason: "CrashLoopBackOff".into(), message: "back-off 10s".into() };
    case.reasons.insert("a".into(), reason);
    let status = case.of(&pod, vec![record("a", RunState::Exited, 1, 2), record("a", RunState::Exited, 1, 1)]);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.expect("statuses")[0];
    assert_eq!(container.restart_count, 2);
    let waiting = container.state.clone().and_then(|s| s.waiting).and_then(|w| w.reason);
    assert_eq!(waiting.as_deref(), Some("CrashLoopBackOff"));
    let last = container.last_state.clone().and_then(|s| s.terminated).expect("an end");
    assert_eq!(last.container_id.as_deref(), Some("containerd://a-2"));
}

#[test]
fn phases_follow_the_ends_of_containers() {
    let check = |policy: &str, codes: &[i32], over: bool, phase: &str| {
        let names = ["a", "b"];
        let containers: Vec<Value> = codes.iter().zip(names).map(|(_, n)| json!({"name": n})).collect();
        let pod = pod(json!({"restartPolicy": policy, "containers": containers}));
        let records = codes.iter().zip(names).map(|(code, n)| record(n, RunState::Exited, *code, 0)).collect();
        let mut case = case();
        case.over = over;
        assert_eq!(case.of(&pod, records).phase.as_deref(), Some(phase), "{policy} {codes:?}");
    };
    check("Never", &[0, 0], true, "Succeeded");
    check("Never", &[0, 1], true, "Failed");
    check("OnFailure", &[0, 1], false, "Running");
    check("Always", &[0, 0], false, "Running");
    check("Always", &[0, 0], true, "Succeeded");
    check("Always", &[0, 143], true, "Failed");
}

#[test]
fn the_patch_has_only_what_changed() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut case = case();
    case.health.insert("a-0".into(), Health { ready: false, ..Health::UNPROBED });
    let before = case.of(&pod, vec![record("a", RunState::Running, 0, 0)]);
    assert_eq!(patch(&pod, &before, &before), None);
    case.health.clear();
    let after = case.of(&pod, vec![record("a", RunState::Running, 0, 0)]);
    let patch = patch(&pod, &before, &after).expect("a patch");
    assert_eq!(patch["metadata"], json!({"uid": "u"}));
    let status = patch["status"].as_object().expect("a map");
    assert_eq!(status.keys().collect::<Vec<_>>(), ["conditions", "containerStatuses"]);
    let kinds: Vec<&Value> =
        patch["status"]["conditions"].as_array().expect("a list").iter().map(|c| &c["type"]).collect();
    assert_eq!(kinds, ["Ready", "ContainersReady"]);
    assert_eq!(patch["status"]["conditions"][0]["reason"], Value::Null);
}

#[test]
fn amounts_are_reported_once_they_are_given() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let mut pod = pod(json!({"containers": [{"name": "a", "resources": resources("200m")}]}));
    pod.metadata.generation = Some(2);
    let old = json!({"observedGeneration": 1, "containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "resources": resources("100m"), "allocatedResources": {"cpu": "100m"}}]});
    pod.status = Some(serde_json::from_value(old).expect("a status"));
    let mut case = case();
    for (shares, generation, want) in [(102, 1, "100m"), (204, 2, "200m")] {
        case.resizing = generation == 1;
        case.sizes.insert("a-0".into(), Size { shares, quota: 0, memory: 0, memory_request: 0 });
        let status = case.of(&pod, vec![record("a", RunState::Running, 0, 0)]);
        assert_eq!(status.observed_generation, Some(generation));
        let status = json!(status.container_statuses.expect("statuses")[0]);
        assert_eq!(status["resources"], resources(want));
        assert_eq!(status["allocatedResources"]["cpu"], want);
    }
}

#[test]
fn a_pod_that_ended_has_an_end() {
    let mut over = case();
    over.over = true;
    let plain = pod(json!({"containers": [{"name": "a", "image": "web:1"}, {"name": "b", "image": "web:1"}]}));
    let ends = |statuses: &Option<Vec<k8s_openapi::api::core::v1::ContainerStatus>>| -> Vec<Option<i32>> {
        let code = |state: &k8s_openapi::api::core::v1::ContainerState| state.terminated.as_ref().map(|t| t.exit_code);
        statuses.iter().flatten().map(|s| s.state.as_ref().and_then(code)).collect()
    };
    // Deleted while it was being made: a Job counts it, and its finalizer goes.
    let status = over.of(&plain, vec![]);
    assert_eq!((status.phase.as_deref(), ends(&status.container_statuses)), (Some("Failed"), vec![Some(137); 2]));
    // One container is made and never started, the other has completed.
    let records = vec![record("a", RunState::Exited, 0, 0), record("b", RunState::Created, 0, 0)];
    let status = over.of(&plain, records);
    assert_eq!((status.phase.as_deref(), ends(&status.container_statuses)), (Some("Failed"), vec![Some(0), Some(137)]));
    // Init containers whose turn never came have not failed; neither have the containers behind them.
    let image = "web:1";
    let first = pod(json!({
        "initContainers": [{"name": "one", "image": image}, {"name": "two", "image": image}],
        "containers": [{"name": "a", "image": image}],
    }));
    let status = over.of(&first, vec![]);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(
        (ends(&status.init_container_statuses), ends(&status.container_statuses)),
        (vec![None, None], vec![None])
    );
    let status = over.of(&first, vec![record("one", RunState::Exited, 3, 0)]);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(ends(&status.init_container_statuses), [Some(3), None]);
}

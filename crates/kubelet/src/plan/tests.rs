//! The planner's decisions, one situation after the other.

use serde_json::json;

use super::*;
use crate::runtime::model::Sandbox;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}))
        .expect("a pod")
}

fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
    let addresses = if ready { vec!["10.0.0.1".to_owned()] } else { Vec::new() };
    Sandbox { id: id.into(), attempt, ready, created_at: i64::from(attempt) + 1, addresses }
}

fn record(name: &str, sandbox: &str, state: RunState, exit_code: i32, restart_count: u32) -> Record {
    Record {
        id: format!("{name}-{restart_count}"),
        name: name.into(),
        sandbox: sandbox.into(),
        state,
        restart_count,
        hash: String::new(),
        image: "i".into(),
        image_ref: "i@1".into(),
        created_at: i64::from(restart_count) + 10,
        started_at: Some(at(50)),
        finished_at: (state == RunState::Exited).then(|| at(100)),
        exit_code,
        reason: String::new(),
        message: String::new(),
        log_path: String::new(),
    }
}

#[derive(Default)]
struct Situation {
    health: HashMap<String, Health>,
    restarts: HashMap<String, Backoff>,
    not_before: BTreeMap<String, Timestamp>,
    sizes: HashMap<String, Size>,
}

impl Situation {
    fn plan(&self, pod: &Pod, sandboxes: Vec<Sandbox>, records: Vec<Record>) -> Step {
        let mut state = PodState { sandboxes, records };
        state.sort();
        plan(&Observed {
            pod,
            state: &state,
            health: &self.health,
            restarts: &self.restarts,
            not_before: &self.not_before,
            sandbox_not_before: None,
            sizes: &self.sizes,
            reported: pod::status(pod),
            now: at(105),
        })
    }
}

fn actions(pod: &Pod, sandboxes: Vec<Sandbox>, records: Vec<Record>) -> Vec<Action> {
    match Situation::default().plan(pod, sandboxes, records) {
        Step::Run { actions, .. } => actions,
        Step::Terminate => panic!("terminated"),
    }
}

fn start(name: &str, role: Role, restart_count: u32) -> Action {
    Action::Start { name: name.into(), role, restart_count }
}

fn two() -> Pod {
    pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}))
}

#[test]
fn a_new_pod_gets_a_sandbox_then_its_containers() {
    assert_eq!(actions(&two(), vec![], vec![]), [Action::CreateSandbox { attempt: 0 }]);
    assert_eq!(
        actions(&two(), vec![sandbox("s", 0, true)], vec![]),
        [start("a", Role::Regular, 0), start("b", Role::Regular, 0)]
    );
    let running = vec![record("a", "s", RunState::Running, 0, 0), record("b", "s", RunState::Running, 0, 0)];
    assert_eq!(actions(&two(), vec![sandbox("s", 0, true)], running), []);
}

#[test]
fn a_dead_sandbox_is_replaced_and_what_runs_in_it_stopped_first() {
    let running = vec![record("a", "s", RunState::Running, 0, 0)];
    assert_eq!(actions(&two(), vec![sandbox("s", 0, false)], running), [Action::StopSandbox { id: "s".into() }]);
    let dead = vec![record("a", "s", RunState::Exited, 137, 0)];
    assert_eq!(actions(&two(), vec![sandbox("s", 0, false)], dead), [Action::CreateSandbox { attempt: 1 }]);
}

#[test]
fn init_containers_run_one_after_the_other_and_sidecars_stay() {
    let pod = pod(json!({"containers": [{"name": "a"}], "initContainers": [
        {"name": "one"}, {"name": "side", "restartPolicy": "Always"}, {"name": "two"}]}));
    let sandboxes = || vec![sandbox("s", 0, true)];
    let one = || record("one", "s", RunState::Exited, 0, 0);
    let side = || record("side", "s", RunState::Running, 0, 0);
    let done = || record("two", "s", RunState::Exited, 0, 0);
    assert_eq!(actions(&pod, sandboxes(), vec![]), [start("one", Role::Init, 0)]);
    assert_eq!(actions(&pod, sandboxes(), vec![record("one", "s", RunState::Running, 0, 0)]), []);
    assert_eq!(actions(&pod, sandboxes(), vec![one()]), [start("side", Role::Sidecar, 0)]);
    assert_eq!(actions(&pod, sandboxes(), vec![one(), side()]), [start("two", Role::Init, 0)]);
    assert_eq!(actions(&pod, sandboxes(), vec![one(), side(), done()]), [start("a", Role::Regular, 0)]);
    // Once initialised, a sidecar that ends comes back and init containers are not run again.
    let records = vec![record("side", "s", RunState::Exited, 1, 0), record("a", "s", RunState::Running, 0, 0)];
    assert_eq!(actions(&pod, sandboxes(), records), [start("side", Role::Sidecar, 1)]);
    // In a new sandbox they are.
    let sandboxes = vec![sandbox("s", 0, false), sandbox("t", 1, true)];
    let records = vec![one(), record("side", "s", RunState::Exited, 137, 0)];
    assert_eq!(actions(&pod, sandboxes, records), [start("one", Role::Init, 1)]);
}

#[test]
fn a_sidecar_holds_the_others_back_until_its_startup_probe_passed() {
    let pod =
        pod(json!({"containers": [{"name": "a"}], "initContainers": [{"name": "side", "restartPolicy": "Always"}]}));
    let mut situation = Situation::default();
    let waiting = Health { started: false, ..Health::UNPROBED };
    situation.health.insert("side-0".into(), waiting);
    let records = || vec![record("side", "s", RunState::Running, 0, 0)];
    let step = situation.plan(&pod, vec![sandbox("s", 0, true)], records());
    assert_eq!(step, Step::Run { actions: vec![], waiting: vec![], wake_at: None });
    situation.health.clear();
    let Step::Run { actions, .. } = situation.plan(&pod, vec![sandbox("s", 0, true)], records()) else {
        panic!("over")
    };
    assert_eq!(actions, [start("a", Role::Regular, 0)]);
}

#[test]
fn a_crashed_container_waits_for_its_back_off() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let crashed = || vec![record("a", "s", RunState::Exited, 1, 3)];
    let mut situation = Situation::default();
    let Step::Run { actions, .. } = situation.plan(&pod, vec![sandbox("s", 0, true)], crashed()) else {
        panic!("over")
    };
    assert_eq!(actions, [start("a", Role::Regular, 4)]);
    situation.restarts.insert("a".into(), Backoff::next(None, at(100), at(100), crate::RestartDelays::default()));
    assert_eq!(
        situation.plan(&pod, vec![sandbox("s", 0, true)], crashed()),
        Step::Run {
            actions: vec![],
            waiting: vec![Waiting { name: "a".into(), delay: Duration::from_secs(10) }],
            wake_at: Some(at(110))
        }
    );
}

#[test]
fn a_failed_start_is_tried_again_later() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut situation = Situation::default();
    situation.not_before.insert("a".into(), at(200));
    assert_eq!(
        situation.plan(&pod, vec![sandbox("s", 0, true)], vec![]),
        Step::Run { actions: vec![], waiting: vec![], wake_at: Some(at(200)) }
    );
}

#[test]
fn failed_probes_kill() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut situation = Situation::default();
    situation.health.insert("a-0".into(), Health { liveness_failed: true, ..Health::UNPROBED });
    let running = vec![record("a", "s", RunState::Running, 0, 0)];
    let Step::Run { actions, .. } = situation.plan(&pod, vec![sandbox("s", 0, true)], running) else { panic!("over") };
    let why = KillReason::Liveness { restarts: true };
    assert_eq!(why.message("a", Role::Regular), "Container a failed liveness probe, will be restarted");
    assert_eq!(actions, [Action::Kill { id: "a-0".into(), name: "a".into(), why }]);
}

#[test]
fn a_pod_is_over_when_its_policy_says_so() {
    let check = |policy: &str, code: i32, over: bool| {
        let pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}));
        let records = vec![record("a", "s", RunState::Exited, code, 0)];
        let step = Situation::default().plan(&pod, vec![sandbox("s", 0, true)], records);
        assert_eq!(step == Step::Terminate, over, "{policy} {code}");
    };
    check("Never", 0, true);
    check("Never", 1, true);
    check("OnFailure", 0, true);
    check("OnFailure", 1, false);
    check("Always", 0, false);
    let with_init =
        pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}));
    let failed = vec![record("i", "s", RunState::Exited, 1, 0)];
    assert_eq!(Situation::default().plan(&with_init, vec![sandbox("s", 0, true)], failed), Step::Terminate);
}

#[test]
fn containers_left_of_an_interrupted_start_are_replaced() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let created = vec![record("a", "s", RunState::Created, 0, 2)];
    assert_eq!(
        actions(&pod, vec![sandbox("s", 0, true)], created),
        [Action::Remove { id: "a-2".into(), name: "a".into() }, start("a", Role::Regular, 2)]
    );
}

#[test]
fn only_the_last_two_records_are_kept() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let records = vec![
        record("a", "s", RunState::Running, 0, 2),
        record("a", "s", RunState::Exited, 1, 1),
        record("a", "s", RunState::Exited, 1, 0),
    ];
    assert_eq!(
        actions(&pod, vec![sandbox("s", 0, true)], records),
        [Action::Remove { id: "a-0".into(), name: "a".into() }]
    );
}

#[test]
fn sidecars_end_after_the_regular_containers_in_reverse_order() {
    let pod = pod(json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [
        {"name": "one", "restartPolicy": "Always"}, {"name": "two", "restartPolicy": "Always"}]}));
    let mut state = PodState {
        sandboxes: vec![sandbox("s", 0, true)],
        records: ["one", "two", "a", "b"].map(|n| record(n, "s", RunState::Running, 0, 0)).to_vec(),
    };
    state.sort();
    let names: Vec<Vec<String>> =
        termination_order(&pod, &state).into_iter().map(|g| g.into_iter().map(|r| r.name).collect()).collect();
    assert_eq!(names, [vec!["a", "b"], vec!["two"], vec!["one"]]);
}

#[test]
fn a_running_container_is_resized_in_place_unless_it_wants_a_restart() {
    let given = Size { shares: 102, quota: 0, memory: 64 << 20, memory_request: 64 << 20 };
    let running = || vec![record("c", "s", RunState::Running, 0, 0)];
    let sandboxes = || vec![sandbox("s", 0, true)];
    let check = |resources: serde_json::Value, policy: serde_json::Value, want: Vec<Action>| {
        let pod = pod(json!({"containers": [{"name": "c", "resources": resources, "resizePolicy": policy}]}));
        let situation = Situation { sizes: [("c-0".to_owned(), given)].into(), ..Situation::default() };
        let step = situation.plan(&pod, sandboxes(), running());
        assert_eq!(step, Step::Run { actions: want, waiting: Vec::new(), wake_at: None }, "{resources}");
    };
    let resize = || vec![Action::Resize { id: "c-0".into(), name: "c".into() }];
    let restart = || vec![Action::Kill { id: "c-0".into(), name: "c".into(), why: KillReason::Resized }];
    let memory_restarts = || json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    check(json!({"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}), json!([]), vec![]);
    check(json!({"requests": {"cpu": "200m"}, "limits": {"memory": "64Mi"}}), memory_restarts(), resize());
    check(json!({"requests": {"cpu": "100m"}, "limits": {"memory": "65Mi"}}), json!([]), resize());
    check(json!({"requests": {"cpu": "100m"}, "limits": {"memory": "65Mi"}}), memory_restarts(), restart());
    let asks_more = || json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}});
    check(asks_more(), json!([]), resize());
    check(asks_more(), memory_restarts(), restart());
    // Nothing is known of a container that was not looked at yet.
    let pod = pod(json!({"containers": [{"name": "c"}]}));
    assert_eq!(actions(&pod, sandboxes(), running()), vec![]);
}

#[test]
fn one_exit_may_start_the_whole_pod_anew() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let pod = pod(json!({"restartPolicy": "Never", "initContainers": [{"name": "first"}], "containers": [
        {"name": "cause", "restartPolicy": "Never", "restartPolicyRules": rules}, {"name": "other"}]}));
    let records = |exit_code: i32, other: RunState| {
        vec![
            record("first", "s", RunState::Exited, 0, 0),
            record("cause", "s", RunState::Exited, exit_code, 0),
            record("other", "s", other, 137, 0),
        ]
    };
    let forget = |name: &str| Action::Forget { id: format!("{name}-0"), name: name.into() };
    let kill = Action::Kill { id: "other-0".into(), name: "other".into(), why: KillReason::RestartAll };
    let ready = || vec![sandbox("s", 0, true)];
    assert_eq!(actions(&pod, ready(), records(42, RunState::Running)), [kill]);
    let planned = actions(&pod, ready(), records(42, RunState::Exited));
    assert_eq!(planned.last(), Some(&forget("cause")), "{planned:?}");
    assert!(planned.contains(&forget("first")) && planned.contains(&forget("other")) && planned.len() == 3);
    // Any other exit is the container's own affair.
    assert_eq!(actions(&pod, ready(), records(1, RunState::Running)), []);
    // Afterwards all begins with the first.
    assert_eq!(actions(&pod, ready(), vec![]), [start("first", Role::Init, 0)]);
    // Again and again takes longer and longer.
    let mut situation = Situation::default();
    situation.restarts.insert("cause".into(), Backoff::next(None, at(95), at(95), crate::RestartDelays::default()));
    let Step::Run { actions, wake_at, .. } = situation.plan(&pod, ready(), records(42, RunState::Running)) else {
        panic!("terminated")
    };
    assert_eq!((actions, wake_at), (vec![], Some(at(110))));
}

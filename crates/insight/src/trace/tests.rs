//! Hops from what the recorder tells, and without it.

use serde_json::{Value, json};

use super::story::Story;
use super::{Shown, State, hops, lines, state, summary, waits};
use crate::why;
use crate::world::World;

fn at(millis: i64) -> String {
    let start = ferry_meta::time::parse("2026-01-01T12:00:00Z").unwrap().as_microsecond();
    ferry_meta::time::micro_time(jiff::Timestamp::from_microsecond(start + millis * 1000).unwrap())
}

fn write(revision: u64, millis: i64, who: &str, verb: &str, subresource: &str, uid: &str, changes: Value) -> Value {
    json!({
        "revision": revision, "received": at(millis), "handed": at(millis + 1), "user": who, "agent": "", "verb": verb,
        "subresource": subresource, "uid": uid, "changes": changes, "complete": true,
        "stages": { "authentication": 100, "authorization": 50, "mutate": 200, "validate": 150, "commit": 400, "fan-out": 100 },
        "webhooks": [{ "name": "inject.example.com", "took": 150 }],
    })
}

fn objects() -> World {
    let owner = |uid: &str| json!([{ "uid": uid, "controller": true }]);
    let conditions: Value = ["PodReadyToStartContainers", "PodScheduled", "Ready"]
        .iter()
        .map(|name| json!({ "type": name, "status": "True", "lastTransitionTime": "2026-01-01T12:00:02Z" }))
        .collect();
    let created = "2026-01-01T12:00:00Z";
    let target = json!({
        "kind": "Deployment", "spec": { "replicas": 1 },
        "metadata": { "name": "web", "namespace": "d", "uid": "d", "creationTimestamp": created },
    });
    let set = json!({ "kind": "ReplicaSet", "metadata": { "name": "web-1", "uid": "r", "ownerReferences": owner("d"), "creationTimestamp": created } });
    let pod = json!({
        "kind": "Pod", "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img" }] },
        "metadata": { "name": "web-1-x", "uid": "p", "labels": { "app": "web" }, "ownerReferences": owner("r"), "creationTimestamp": created },
        "status": { "phase": "Running", "podIP": "10.0.0.9", "conditions": conditions },
    });
    let service = json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" } } });
    let slice = json!({
        "kind": "EndpointSlice", "metadata": { "name": "web-s", "uid": "s", "labels": { "kubernetes.io/service-name": "web" } },
        "endpoints": [{ "addresses": ["10.0.0.9"], "targetRef": { "uid": "p", "name": "web-1-x" }, "conditions": { "ready": true } }],
    });
    let pulled = json!({
        "reason": "Pulled", "lastTimestamp": created, "involvedObject": { "uid": "p" },
        "message": "Successfully pulled image \"img\" in 800ms (800ms including waiting). Image size: 1 bytes.",
    });
    let mut world = World::new(target, ferry_meta::time::parse("2026-01-01T12:01:00Z").unwrap());
    for (plural, item) in
        [("replicasets", set), ("pods", pod), ("services", service), ("endpointslices", slice), ("events", pulled)]
    {
        world.put(plural, vec![item]);
    }
    world
}

#[test]
fn the_recorder_tells_every_hop() {
    let spec = json!([{ "what": "spec", "to": 1 }]);
    let condition = |name: &str| json!({ "what": "condition", "name": name, "to": "True" });
    let deployment = json!({ "writes": [
        write(10, 0, "alice", "create", "", "d", spec.clone()),
        write(20, 1900, "deployment-controller", "update", "status", "d", json!([])),
    ] });
    let set = json!({ "writes": [write(11, 5, "deployment-controller", "create", "", "r", spec)] });
    let pod = json!({ "writes": [
        write(12, 10, "replicaset-controller", "create", "", "p", json!([])),
        write(13, 20, "system:kube-scheduler", "create", "binding", "p", json!([{ "what": "node", "to": "n" }, condition("PodScheduled")])),
        write(14, 520, "system:node:n", "patch", "status", "p", json!([condition("PodReadyToStartContainers")])),
        write(15, 1520, "system:node:n", "patch", "status", "p", json!([{ "what": "container", "name": "c", "to": "running", "init": false }])),
        write(16, 1820, "system:node:n", "patch", "status", "p", json!([condition("Ready")])),
    ] });
    let slice = json!({ "writes": [
        write(17, 1840, "endpointslice-controller", "update", "", "s", json!([{ "what": "endpoint", "name": "web-1-x", "to": "ready" }])),
    ] });
    let story = Story::of(objects(), &[("d", &deployment), ("r", &set), ("p", &pod), ("s", &slice)]);
    let trace = hops(&story);
    assert!(trace.finished);
    assert_eq!(trace.total, 1_841_000);
    let told: Vec<(u8, i64, &str)> = trace.hops.iter().map(|hop| (hop.number, hop.took, hop.component)).collect();
    assert_eq!(
        told,
        [
            (1, 0, "client"),
            (2, 100, "API server"),
            (3, 50, "API server"),
            (4, 200, "API server"),
            (5, 0, "API server"),
            (6, 150, "API server"),
            (7, 400, "API server"),
            (8, 100, "API server"),
            (9, 4_000, "controllers"),
            (9, 4_000, "controllers"),
            (10, 9_000, "scheduler"),
            (11, 499_000, "kubelet"),
            (11, 800_000, "image pull"),
            (11, 200_000, "kubelet"),
            (12, 300_000, "readiness probes"),
            (12, 19_000, "endpoints"),
        ]
    );
    let shown = lines(&trace).join("\n");
    for text in [
        "request: create it",
        "inject.example.com 150 µs",
        "revision 10",
        "Deployment controller: ReplicaSet web-1",
        "ReplicaSet controller: Pod web-1-x",
        "binds it to n",
        "service web: EndpointSlice lists it",
    ] {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    let (head, tail) = summary(&story, &trace);
    assert_eq!(head, "it in d: ready after 1.84 s");
    assert!(tail.contains("image pull"), "{tail}");
}

#[test]
fn watchers_that_are_faster_than_the_answer_come_after_it() {
    let spec = json!([{ "what": "spec", "to": 1 }]);
    let mut first = write(10, 0, "alice", "create", "", "d", spec.clone());
    first["stages"]["commit"] = 9_000.into();
    let set = json!({ "writes": [write(11, 5, "deployment-controller", "create", "", "r", spec)] });
    let trace = hops(&Story::of(objects(), &[("d", &json!({ "writes": [first] })), ("r", &set)]));
    assert!(trace.hops.is_sorted_by_key(|hop| hop.at), "{:#?}", trace.hops);
    let took: Vec<i64> = trace.hops[6..9].iter().map(|hop| hop.took).collect();
    assert_eq!(took, [4_500, 0, 0]);
}

#[test]
fn without_the_recorder_the_objects_tell() {
    let story = Story::of(objects(), &[]);
    let trace = hops(&story);
    assert!(trace.finished && trace.hops.iter().all(|hop| !hop.exact));
    let numbers: Vec<u8> = trace.hops.iter().map(|hop| hop.number).collect();
    assert_eq!(numbers, [1, 9, 9, 10, 11, 12, 12]);
    assert_eq!(trace.total, 2_000_000);
    assert!(trace.notes.iter().any(|note| note.contains("whole seconds")));
}

#[test]
fn what_is_not_there_yet_is_not_finished() {
    let mut world = objects();
    world.put("endpointslices", Vec::new());
    assert!(!hops(&Story::of(world, &[])).finished);
    let mut world = objects();
    world.put("pods", Vec::new());
    let trace = hops(&Story::of(world, &[]));
    assert!(!trace.finished && trace.hops.len() == 2);
}

#[test]
fn a_followed_trace_shows_every_hop_once() {
    let mut early = objects();
    early.put("endpointslices", Vec::new());
    let mut shown = Shown::default();
    let first = shown.news(&hops(&Story::of(early, &[])));
    assert_eq!(first.len(), 6, "{first:#?}");
    let trace = hops(&Story::of(objects(), &[]));
    let second = shown.news(&trace);
    assert_eq!(second.len(), 1, "{second:#?}");
    assert!(second[0].contains("EndpointSlice lists it"), "{second:#?}");
    assert_eq!(shown.news(&trace), Vec::<String>::new());
    let wait = |age: &str| vec![format!(" {age:>9}       stuck  10  scheduler")];
    assert_eq!(shown.waits(&wait("1 s")).len(), 1);
    assert!(shown.waits(&wait("5 s")).is_empty(), "its age is no news");
}

#[test]
fn the_hop_that_waits_is_shown_with_its_cause() {
    let mut world = objects();
    let mut pod = world.all("pods")[0].clone();
    pod["spec"]["nodeName"] = "".into();
    pod["status"] = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu." }] });
    world.put("pods", vec![pod]);
    let findings = why::findings(&world);
    let mut story = Story::of(world, &[]);
    assert_eq!(state(&story, &hops(&story)), State::OnItsWay);
    story.held = findings;
    let trace = hops(&story);
    assert_eq!(state(&story, &trace), State::Stuck);
    let shown = waits(&story, &trace).join("\n");
    for text in ["stuck  10  scheduler", "pod/web-1-x: no node can take it", "Insufficient cpu"] {
        assert!(shown.contains(text), "{text:?} is not in {shown}");
    }
    assert_eq!(state(&Story::of(objects(), &[]), &hops(&Story::of(objects(), &[]))), State::Done);
}

#[test]
fn what_goes_no_further_because_somebody_wants_it_so_is_not_stuck() {
    let mut world = objects();
    world.target["spec"]["paused"] = true.into();
    world.put("replicasets", Vec::new());
    let findings = why::findings(&world);
    let mut story = Story::of(world, &[]);
    assert_eq!(state(&story, &hops(&story)), State::OnItsWay);
    story.held = findings;
    let trace = hops(&story);
    assert_eq!(state(&story, &trace), State::Done);
    let shown = waits(&story, &trace).join("\n");
    assert!(shown.contains("note") && shown.contains("to change: kubectl rollout resume"), "{shown}");
}

fn of_kind(kind: &str, parts: Value, jobs: Value, pods: Value) -> Story {
    let mut target = json!({ "kind": kind, "metadata": { "name": "j", "namespace": "d", "uid": "j", "creationTimestamp": "2026-01-01T12:00:00Z" } });
    for (key, part) in parts.as_object().unwrap() {
        target[key] = part.clone();
    }
    let mut world = World::new(target, ferry_meta::time::parse("2026-01-01T12:01:00Z").unwrap());
    world.put("jobs", jobs.as_array().unwrap().clone());
    world.put("pods", pods.as_array().unwrap().clone());
    Story::of(world, &[])
}

#[test]
fn a_cron_job_that_waits_for_its_time_is_not_said_to_be_late() {
    let story = of_kind("CronJob", json!({ "spec": { "schedule": "30 12 * * *" } }), json!([]), json!([]));
    let trace = hops(&story);
    assert_eq!(state(&story, &trace), State::Done);
    let (head, tail) = summary(&story, &trace);
    assert!(head.ends_with("it has started no Job so far"), "{head}");
    assert!(tail.contains("its next Job is due at 2026-01-01T12:30:00Z"), "{tail}");
}

#[test]
fn a_job_is_over_when_its_controller_says_so() {
    let owner = json!([{ "uid": "j", "controller": true }]);
    let failed = json!([{ "kind": "Pod", "metadata": { "name": "p", "uid": "p", "ownerReferences": owner }, "spec": { "nodeName": "n" }, "status": { "phase": "Failed" } }]);
    let with = |condition: &str| json!({ "status": { "conditions": [{ "type": condition, "status": "True" }] } });
    for (parts, pods, want) in [
        (json!({}), failed.clone(), false),
        (with("Failed"), failed, true),
        // Its pods may be gone by then.
        (with("Complete"), json!([]), true),
        (with("Suspended"), json!([]), false),
    ] {
        let trace = hops(&of_kind("Job", parts.clone(), json!([]), pods));
        assert_eq!(trace.finished, want, "{parts}");
    }
}

#[test]
fn what_is_stuck_is_not_said_to_be_ready() {
    let parts = json!({ "metadata": { "name": "j", "namespace": "d", "uid": "j", "creationTimestamp": "2026-01-01T12:00:00Z" }, "status": { "desiredNumberScheduled": 0 } });
    let mut story = of_kind("DaemonSet", parts, json!([]), json!([]));
    story.world.put("nodes", vec![json!({ "metadata": { "name": "n" } })]);
    story.held = why::findings(&story.world);
    let trace = hops(&story);
    assert_eq!(state(&story, &trace), State::Stuck);
    let (head, _) = summary(&story, &trace);
    assert!(head.contains("stuck 1 min 0 s after it was asked for"), "{head}");
}

//! The loop against an API that does as it is told and writes down what it was asked.

mod bad_input;
mod extenders;
mod falls;
mod several;
mod waiting;

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::framework::Plugin;
use crate::plugins::binding_profile;
use crate::testing::{node, pod_with};

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Api {
    pods: Informer<Pod>,
    log: Arc<watch::Sender<Vec<String>>>,
    /// Bindings to refuse before the first that works.
    refusals: Arc<std::sync::atomic::AtomicUsize>,
    /// Deletions to refuse before the first that works.
    undeletable: Arc<std::sync::atomic::AtomicUsize>,
    /// Bindings are answered only while this is false.
    held: Arc<watch::Sender<bool>>,
    /// The informer does not hear of a pod of this name.
    unheard: &'static str,
}

impl Api {
    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        let (status, answer) = match (parts.method, path.as_slice()) {
            (Method::POST, [.., name, "binding"]) => {
                self.note(format!("{name} is on its way"));
                let _ = self.held.subscribe().wait_for(|held| !held).await;
                self.bind(name, body["target"]["name"].as_str().unwrap_or_default())
            }
            (Method::POST, [.., "events"]) => {
                self.note(format!(
                    "{} {}: {}",
                    body["type"].as_str().unwrap_or_default(),
                    body["reason"].as_str().unwrap_or_default(),
                    body["message"].as_str().unwrap_or_default()
                ));
                (StatusCode::CREATED, body)
            }
            (Method::PATCH, [.., "pods", name, "status"]) => {
                for condition in body["status"]["conditions"].as_array().into_iter().flatten() {
                    self.note(format!(
                        "{name} {}={} {}: {}",
                        condition["type"].as_str().unwrap_or_default(),
                        condition["status"].as_str().unwrap_or_default(),
                        condition["reason"].as_str().unwrap_or_default(),
                        condition["message"].as_str().unwrap_or_default()
                    ));
                }
                match body["status"].get("nominatedNodeName") {
                    Some(Value::String(node)) => self.note(format!("{name} nominated to {node}")),
                    Some(_) => self.note(format!("{name} is nominated no more")),
                    None => {}
                }
                (StatusCode::OK, serde_json::to_value(self.pod(name)).unwrap_or_default())
            }
            (Method::DELETE, [.., "pods", _]) if one_less(&self.undeletable) => {
                let message = "the store is unavailable";
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "ServiceUnavailable", "code": 503}),
                )
            }
            (Method::DELETE, [.., "pods", name]) => {
                self.note(format!("{name} deleted"));
                if let Some(pod) = self.pod(name) {
                    self.pods.remove(pod);
                }
                (StatusCode::OK, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (method, path) => panic!("unexpected {method} {path:?}"),
        };
        let response = Response::builder().status(status).header("content-type", "application/json");
        Ok(response.body(Body::from(serde_json::to_vec(&answer).unwrap_or_default())).expect("a response"))
    }

    fn bind(&self, name: &str, node: &str) -> (StatusCode, Value) {
        if one_less(&self.refusals) {
            let message = "the object has been modified";
            return (
                StatusCode::CONFLICT,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Conflict", "code": 409}),
            );
        }
        let Some(mut pod) = self.pod(name) else {
            let message = format!("pods \"{name}\" not found");
            return (
                StatusCode::NOT_FOUND,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "NotFound", "code": 404}),
            );
        };
        let spec = pod.spec.get_or_insert_default();
        if let Some(node) = &spec.node_name {
            let message = format!("pod {name} is already assigned to node {node:?}");
            return (
                StatusCode::CONFLICT,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "Conflict", "code": 409}),
            );
        }
        spec.node_name = Some(node.to_owned());
        self.note(format!("{name} bound to {node}"));
        if name != self.unheard {
            self.pods.apply(pod);
        }
        (StatusCode::CREATED, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn pod(&self, name: &str) -> Option<Pod> {
        self.pods.get("default", name).map(|pod| pod.as_ref().clone())
    }

    fn note(&self, line: String) {
        self.log.send_modify(|log| log.push(line));
    }
}

/// Whether there was one left.
fn one_less(left: &std::sync::atomic::AtomicUsize) -> bool {
    let order = std::sync::atomic::Ordering::SeqCst;
    left.fetch_update(order, order, |left| left.checked_sub(1)).is_ok()
}

/// A scheduler of its own on this API.
fn start_on(
    api: &Api,
    nodes: &Informer<Node>,
    extenders: Vec<Extender>,
    plugins: Vec<Arc<dyn Plugin>>,
    longest_assumption: Duration,
) -> (Scheduler, Tasks) {
    let (listers, tasks) = (Listers::detached(), Tasks::new("test"));
    listers.namespaces.mark_synced();
    let serving = api.clone();
    let client = Client::new(tower::service_fn(move |request| serving.clone().serve(request)), "default");
    let profile = plugins.into_iter().fold(binding_profile("default-scheduler", &client), Profile::with);
    let settings = Settings {
        profiles: Arc::new([("default-scheduler".to_owned(), profile)].into()),
        initial_backoff: Duration::from_secs(1),
        longest_backoff: Duration::from_secs(10),
        extenders: extenders.into(),
        longest_assumption,
    };
    let scheduler = start_with(settings, client, api.pods.clone(), nodes.clone(), listers, &tasks);
    (scheduler, tasks)
}

struct World {
    api: Api,
    nodes: Informer<Node>,
    scheduler: Scheduler,
    tasks: Tasks,
}

impl World {
    fn new() -> Self {
        Self::with(Vec::new())
    }

    fn with(extenders: Vec<Extender>) -> Self {
        Self::custom(extenders, Vec::new(), Duration::from_secs(900))
    }

    fn custom(extenders: Vec<Extender>, plugins: Vec<Arc<dyn Plugin>>, longest_assumption: Duration) -> Self {
        let api = Api {
            pods: Informer::detached(),
            log: Arc::new(watch::Sender::default()),
            refusals: Arc::default(),
            undeletable: Arc::default(),
            held: Arc::default(),
            unheard: "unheard-of",
        };
        let nodes = Informer::detached();
        api.pods.mark_synced();
        nodes.mark_synced();
        let (scheduler, tasks) = start_on(&api, &nodes, extenders, plugins, longest_assumption);
        Self { api, nodes, scheduler, tasks }
    }

    fn add_node(&self, name: &str, overlay: Value) {
        self.nodes.apply(node(name, overlay).as_ref().clone());
    }

    fn add(&self, name: &str, spec: Value) {
        self.api.pods.apply(pod_with(name, json!({"spec": spec})).pod.as_ref().clone());
    }

    fn add_pod(&self, name: &str, cpu: &str, priority: i32, node: Option<&str>) {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        let pod = pod_with(name, json!({"spec": {"containers": containers, "priority": priority, "nodeName": node}}));
        self.api.pods.apply(pod.pod.as_ref().clone());
    }

    /// Waits until all of these have been written down.
    async fn sees(&self, expected: &[&str]) {
        let mut log = self.api.log.subscribe();
        let all = |log: &Vec<String>| expected.iter().all(|line| log.iter().any(|seen| seen == line));
        let seen = tokio::time::timeout(PATIENCE, log.wait_for(all)).await.is_ok();
        assert!(seen, "expected {expected:#?} in {:#?}", self.api.log.borrow());
    }

    async fn end(self) {
        assert!(self.tasks.stop(PATIENCE).await);
    }
}

#[tokio::test]
async fn a_pod_is_bound_and_told_of() {
    let world = World::new();
    world.add_node("a", json!({}));
    world.add_pod("web", "1", 0, None);
    world.sees(&["web bound to a", "Normal Scheduled: Successfully assigned default/web to a"]).await;
    world.end().await;
}

#[tokio::test]
async fn a_pod_without_a_place_says_why_and_waits_for_one() {
    let world = World::new();
    world.add_pod("web", "6", 0, None);
    world.sees(&["web PodScheduled=False Unschedulable: no nodes available to schedule pods"]).await;
    world.add_node("small", json!({}));
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

    world.add_pod("other", "6", 0, None);
    world
        .sees(&[
            &format!("other PodScheduled=False Unschedulable: {message}"),
            &format!("Warning FailedScheduling: {message}"),
        ])
        .await;
    let verdict = world.scheduler.verdicts().of("default", "other").expect("a verdict");
    assert_eq!((&*verdict.nodes[0].node, verdict.nodes[0].plugin), ("small", "NodeResourcesFit"));
    world.add_node("large", json!({"status": {"allocatable": {"cpu": "16"}}}));
    world.sees(&["web bound to large", "other bound to large"]).await;
    assert!(world.scheduler.verdicts().of("default", "other").is_none());
    world.end().await;
}

#[tokio::test]
async fn room_is_taken_back_when_a_binding_fails() {
    let world = World::new();
    world.api.refusals.store(1, std::sync::atomic::Ordering::SeqCst);
    world.add_node("a", json!({}));
    world.add_pod("web", "3", 0, None);
    world
        .sees(&[
            "web PodScheduled=False SchedulerError: binding rejected: the object has been modified",
            "web bound to a",
        ])
        .await;
    world.end().await;
}

#[tokio::test]
async fn an_important_pod_takes_the_place_of_another() {
    let world = World::new();
    world.add_node("a", json!({}));
    world.add_pod("humble", "3", 0, Some("a"));
    world.add_pod("proud", "3", 1000, None);
    world
        .sees(&[
            "proud nominated to a",
            "humble DisruptionTarget=True PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod",
            "humble deleted",
            "Normal Preempted: Preempted by pod proud on node a",
            "proud bound to a",
        ])
        .await;
    world.end().await;
}

/// Nobody else tells of a victim that stays: the pod that was to have its place would wait for minutes.
#[tokio::test]
async fn a_preemption_that_fails_is_tried_again() {
    let world = World::new();
    world.api.undeletable.store(1, std::sync::atomic::Ordering::SeqCst);
    world.add_node("a", json!({}));
    world.add_pod("humble", "3", 0, Some("a"));
    world.add_pod("proud", "3", 1000, None);
    world.sees(&["proud nominated to a", "proud is nominated no more", "humble deleted", "proud bound to a"]).await;
    world.end().await;
}

/// The zone with the fewest pods goes with its only node.
#[tokio::test]
async fn a_pod_that_spreads_is_tried_again_when_a_node_goes() {
    let world = World::new();
    let zone = |zone: &str, cpu: &str| json!({"metadata": {"labels": {"zone": zone}}, "status": {"allocatable": {"cpu": cpu}}});
    world.add_node("a", zone("1", "8"));
    world.add_node("b", zone("2", "1"));
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let pod = |name: &str, node: Value| {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "2"}}}]);
        let metadata = json!({"labels": {"app": "web"}});
        let spec = json!({"containers": containers, "nodeName": node, "topologySpreadConstraints": spread});
        pod_with(name, json!({"metadata": metadata, "spec": spec})).pod.as_ref().clone()
    };
    world.api.pods.apply(pod("first", json!("a")));
    world.api.pods.apply(pod("second", Value::Null));
    let mut log = world.api.log.subscribe();
    let waits = |log: &Vec<String>| log.iter().any(|line| line.starts_with("second PodScheduled=False"));
    tokio::time::timeout(PATIENCE, log.wait_for(waits)).await.expect("it waits").expect("the log");
    world.nodes.remove(node("b", zone("2", "1")).as_ref().clone());
    world.sees(&["second bound to a"]).await;
    world.end().await;
}

#[tokio::test]
async fn many_pods_fill_the_nodes_and_no_more() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.add_node(name, json!({}));
    }
    for number in 0..15 {
        world.add_pod(&format!("p{number}"), "1", 0, None);
    }
    let mut log = world.api.log.subscribe();
    let settled = |log: &Vec<String>| {
        let count = |part: &str| log.iter().filter(|line| line.contains(part)).count();
        count(" bound to ") == 12 && count("PodScheduled=False Unschedulable") >= 3
    };
    tokio::time::timeout(PATIENCE, log.wait_for(settled)).await.expect("settled").expect("the log");
    for name in ["a", "b", "c"] {
        let bound = log.borrow().iter().filter(|line| line.ends_with(&format!(" bound to {name}"))).count();
        assert_eq!(bound, 4, "the pods of node {name}");
    }
    world.end().await;
}

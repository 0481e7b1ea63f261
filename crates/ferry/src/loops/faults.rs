//! A rollout while everything fails: requests refused, conflicts, watches cut, and the controllers killed and started again
//! after any number of writes. The end state is the same, and no pod is created twice.
//!
//! Prints its seed; `FERRY_SEED=<seed>` replays it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferry_client::{Change, Informer, Informers, Selection};
use ferry_meta::UserInfo;
use ferry_tasks::Tasks;
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::sync::Notify;

use super::{Kit, deployment, is_ready};

/// What goes wrong, decided by one seed.
struct Faults {
    random: Mutex<StdRng>,
    on: AtomicBool,
    /// Writes that may pass until the controllers are killed.
    until_death: AtomicUsize,
    death: Notify,
}

enum Fault {
    None,
    Refuse(u16, &'static str),
    /// The watch ends after so many frames.
    Cut(usize),
}

impl Faults {
    fn next(&self, request: &http::Request<Body>) -> Fault {
        if !self.on.load(Ordering::SeqCst) {
            return Fault::None;
        }
        let mut random = self.random.lock();
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if watch {
            return if random.random_ratio(1, 2) { Fault::Cut(random.random_range(1..12)) } else { Fault::None };
        }
        let write = request.method() != http::Method::GET;
        let refused = random.random_range(0..100);
        match refused {
            0..4 => Fault::Refuse(500, "InternalError"),
            4..6 => Fault::Refuse(429, "TooManyRequests"),
            6..10 if write && request.method() != http::Method::POST => Fault::Refuse(409, "Conflict"),
            _ => Fault::None,
        }
    }

    /// Counts a write; true when the controllers die with it.
    fn dies(&self, request: &http::Request<Body>) -> bool {
        let writes = request.method() != http::Method::GET && !request.uri().path().contains("/events");
        if !writes || !self.on.load(Ordering::SeqCst) {
            return false;
        }
        let left = self.until_death.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left == Ok(1) {
            self.death.notify_one();
            return self.random.lock().random();
        }
        false
    }
}

fn refusal(code: u16, reason: &str) -> http::Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "injected" });
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    http::Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

/// A client whose requests suffer.
fn suffering(inner: Client, faults: Arc<Faults>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, faults) = (inner.clone(), faults.clone());
        let cut =
            |body: Body, frames: usize| BodyExt::boxed_unsync(StreamBody::new(BodyStream::new(body).take(frames)));
        async move {
            let fault = faults.next(&request);
            let frames = match fault {
                Fault::Refuse(code, reason) => {
                    return Ok::<_, kube::Error>(refusal(code, reason).map(|body| cut(body, usize::MAX)));
                }
                Fault::Cut(frames) => frames,
                Fault::None => usize::MAX,
            };
            // Dead before the server hears of it, or after: the answer is lost either way.
            if faults.dies(&request) {
                std::future::pending::<()>().await;
            }
            let response = inner.send(request).await?;
            Ok(response.map(|body| cut(body, frames)))
        }
    });
    Client::new(service, "default")
}

fn start(kit: &Kit, faults: &Arc<Faults>) -> Tasks {
    let tasks = kit.tasks.child("mortal");
    let clients = kit.door.clients();
    let shared = suffering(clients(UserInfo::new("system:kube-controller-manager", &[])), faults.clone());
    let informers = Informers::new(shared, tasks.clone());
    let own = faults.clone();
    let account = move |name: &str| suffering(clients(UserInfo::service_account("kube-system", name, "")), own.clone());
    ferry_controllers::start(&informers, account, &tasks, kit.config());
    tasks
}

/// Starts controllers again whenever they die, until the group stops.
async fn live_and_die(kit: &Kit, faults: &Arc<Faults>, done: &Notify) -> usize {
    let mut lives = 0;
    loop {
        lives += 1;
        let writes = faults.random.lock().random_range(1..25);
        faults.until_death.store(writes, Ordering::SeqCst);
        let tasks = start(kit, faults);
        let died = tokio::select! {
            () = faults.death.notified() => true,
            () = done.notified() => false,
        };
        tasks.stop(Duration::from_secs(20)).await;
        if !died {
            return lives;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_survives_everything() {
    let seed = std::env::var("FERRY_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("FERRY_SEED={seed}");
    let faults = Arc::new(Faults {
        random: Mutex::new(StdRng::seed_from_u64(seed)),
        on: AtomicBool::new(false),
        until_death: AtomicUsize::new(usize::MAX),
        death: Notify::new(),
    });
    let kit = Kit::new().await;
    let informers = Informers::new(kit.client.clone(), kit.tasks.clone());
    let scheduler = kit.door.client(UserInfo::new("system:kube-scheduler", &[]));
    ferry_scheduler::start(ferry_scheduler::Config::new(&scheduler), scheduler, &informers, &kit.tasks).await.unwrap();

    // Sees every pod that ever is, by an untroubled watch.
    let created: Arc<Mutex<BTreeMap<String, HashSet<String>>>> = Arc::default();
    let pods: Informer<Pod> = Informer::over(kit.api(), &kit.tasks, Selection::default());
    let seen = created.clone();
    pods.on_change(move |change| {
        if let Change::Added(pod) = change {
            let hash = pod.labels().get("pod-template-hash").or_else(|| pod.labels().get("controller-revision-hash"));
            let mut seen = seen.lock();
            seen.entry(hash.cloned().unwrap_or_default()).or_default().insert(pod.uid().unwrap_or_default());
        }
    });
    pods.synced().await;

    let done = Notify::new();
    let work = async {
        kit.simulate(3).await;
        kit.until(kit.api::<k8s_openapi::api::core::v1::ServiceAccount>(), "the default account", |all| {
            !all.is_empty()
        })
        .await;
        faults.on.store(true, Ordering::SeqCst);
        kit.create::<Deployment>(deployment("web", 5, "v1")).await;
        let mut set = deployment("db", 3, "v1");
        set["spec"]["serviceName"] = "db".into();
        kit.create::<StatefulSet>(set).await;
        for image in ["v1", "v2"] {
            if image == "v2" {
                let change =
                    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } });
                let patch = kube::api::Patch::Strategic(change);
                kit.api::<Deployment>().patch("web", &Default::default(), &patch).await.unwrap();
                kit.api::<StatefulSet>().patch("db", &Default::default(), &patch).await.unwrap();
            }
            kit.until_pods("all pods of the rollout", |pods| {
                let of = |app: &str| {
                    let all: Vec<_> =
                        pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|a| a == app)).collect();
                    let right = all.iter().all(|pod| {
                        is_ready(pod) && pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some(image)
                    });
                    if right { all.len() } else { 0 }
                };
                of("web") == 5 && of("db") == 3
            })
            .await;
        }
        done.notify_one();
    };
    let (lives, ()) = tokio::join!(live_and_die(&kit, &faults, &done), work);
    println!("the controllers lived {lives} times");
    let created = created.lock().clone();
    let numbers: Vec<usize> = created.values().map(HashSet::len).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [3, 3, 5, 5], "FERRY_SEED={seed}: pods by template {created:#?}");
    kit.stop().await;
}

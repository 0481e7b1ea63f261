//! One scheduler follows another: what the first had under way is not decided anew, and no device is given twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::UserInfo;
use ferry_tasks::Tasks;
use ferry_testbed::Kit;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;

use super::allocation::{class, has, node_of, slice, template, templated, why};

/// Twelve pods that ask for one of eight devices each.
async fn twelve_for_eight() -> Kit {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    kit.simulate(2).await;
    class(&kit, serde_json::json!({})).await;
    let names: Vec<String> = (0..8).map(|number| format!("large-{number}")).collect();
    slice(&kit, "node-0", &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    template(&kit, "large").await;
    kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
    for number in 0..12 {
        kit.create::<Pod>(templated(&format!("p{number}"))).await;
    }
    kit
}

async fn each_device_is_given_once(kit: &Kit) {
    kit.until(kit.api::<Pod>(), "eight pods with a node", |all| {
        all.iter().filter(|pod| !node_of(pod).is_empty()).count() == 8
            && all.iter().filter(|pod| why(pod).contains("2 cannot allocate all claims")).count() == 4
    })
    .await;
    let claims = kit
        .until(kit.api::<ResourceClaim>(), "eight claims with devices", |all| {
            all.iter().filter(|claim| !has(claim).0.is_empty()).count() == 8
        })
        .await;
    let given: Vec<String> = claims.iter().flat_map(|claim| has(claim).0).collect();
    assert_eq!(given.len(), 8);
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 8, "{given:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_starts_again_gives_nothing_twice() {
    let kit = twelve_for_eight().await;
    // Each of them is stopped somewhere on the way of a pod.
    for placed in [1, 3, 5] {
        let tasks = kit.tasks.child("scheduler");
        kit.scheduler(&tasks).await;
        kit.until(kit.api::<Pod>(), "some pods with a node", |all| {
            all.iter().filter(|pod| !node_of(pod).is_empty()).count() >= placed
        })
        .await;
        tasks.stop(Duration::from_secs(20)).await;
    }
    kit.scheduler(&kit.tasks).await;
    each_device_is_given_once(&kit).await;
    kit.stop().await;
}

/// Writes of claims' statuses that take as long as they are told to.
#[derive(Clone)]
struct Slow {
    open: Arc<watch::Sender<bool>>,
    /// What the server has heard of and not done.
    under_way: Arc<watch::Sender<usize>>,
}

impl Slow {
    fn new() -> Self {
        Self { open: Arc::new(watch::Sender::new(false)), under_way: Arc::new(watch::Sender::new(0)) }
    }

    /// `server` does what it was sent, whether the sender still waits or not.
    fn client(&self, inner: Client, server: Tasks) -> Client {
        let slow = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, server, slow) = (inner.clone(), server.clone(), slow.clone());
            let path = request.uri().path();
            let held =
                request.method() == http::Method::PUT && path.contains("/resourceclaims/") && path.ends_with("/status");
            async move {
                if !held {
                    return inner.send(request).await;
                }
                slow.under_way.send_modify(|number| *number += 1);
                let (answer, answered) = tokio::sync::oneshot::channel();
                server.spawn("request", async move {
                    let _ = slow.open.subscribe().wait_for(|open| *open).await;
                    let outcome = inner.send(request).await;
                    slow.under_way.send_modify(|number| *number -= 1);
                    // Nobody may be left to hear it.
                    drop(answer.send(outcome));
                });
                answered.await.map_err(|gone| kube::Error::Service(gone.into()))?
            }
        });
        Client::new(service, "default")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_under_way_are_heard_out_before_another_scheduler_begins() {
    let kit = twelve_for_eight().await;
    let slow = Slow::new();
    let tasks = kit.tasks.child("scheduler");
    let client = kit.door.client(UserInfo::new("system:kube-scheduler", &[]));
    kit.scheduler_with(slow.client(client, kit.tasks.clone()), &tasks).await;
    let all_on_their_way = slow.under_way.subscribe().wait_for(|number| *number == 8).await.map(|number| *number);
    assert_eq!(all_on_their_way.ok(), Some(8));
    // They are done only after the scheduler was told to stop.
    let (stopping, open) = (tasks.stopping(), slow.open.clone());
    kit.tasks.spawn("done late", async move {
        stopping.cancelled().await;
        open.send_replace(true);
    });
    assert!(tasks.stop(Duration::from_secs(20)).await);
    assert_eq!(*slow.under_way.borrow(), 0, "a write that arrives later is unknown to whoever follows");
    kit.scheduler(&kit.tasks).await;
    each_device_is_given_once(&kit).await;
    kit.stop().await;
}

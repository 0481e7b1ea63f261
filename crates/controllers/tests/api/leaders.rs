//! Leaders by Lease: one that stops is followed at once, one that falls silent when its lease ends, and what is left of it
//! writes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferry_client::leader::{self, Fence, HEADER};
use ferry_tasks::Tasks;
use ferry_testbed::{Kit, NAMESPACE, PATIENCE};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::json;
use tokio::sync::mpsc;

fn config(identity: &str) -> leader::Config {
    leader::Config {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1500),
        retry_period: Duration::from_millis(200),
        ..leader::Config::new("test-leader", identity)
    }
}

/// A client whose requests wait for ever while it is told to be silent, as those of a process that is stopped.
fn muted(client: Client, silent: Arc<AtomicBool>) -> Client {
    let muted = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, silent) = (client.clone(), silent.clone());
        async move {
            if silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            client.send(request).await
        }
    });
    Client::new(muted, "default")
}

struct Candidate {
    tasks: Tasks,
    terms: mpsc::UnboundedReceiver<Fence>,
}

fn stand(client: Client, identity: &'static str) -> Candidate {
    let tasks = Tasks::new("candidate");
    let (told, terms) = mpsc::unbounded_channel();
    let group = tasks.clone();
    tasks.spawn("election", async move {
        leader::run(client, config(identity), &group, |_, fence| drop(told.send(fence))).await;
    });
    Candidate { tasks, terms }
}

impl Candidate {
    async fn leads(&mut self) -> Fence {
        tokio::time::timeout(PATIENCE, self.terms.recv()).await.expect("a leader in time").expect("a leader")
    }
}

async fn write(client: &Client, name: &str) -> Result<(), kube::Error> {
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client.clone(), NAMESPACE);
    maps.create(&Default::default(), &map).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_followed_and_writes_nothing_afterwards() {
    let kit = Kit::new().await;
    let silent = Arc::new(AtomicBool::new(false));
    let mut first = stand(muted(kit.client.clone(), silent.clone()), "first");
    let old = first.leads().await.client(kit.client.clone());
    write(&old, "by-the-first").await.unwrap();
    let mut second = stand(kit.client.clone(), "second");

    // As if it were stopped: its lease ends, and the other one leads.
    silent.store(true, Ordering::SeqCst);
    let new = second.leads().await.client(kit.client.clone());
    write(&new, "by-the-second").await.unwrap();
    let refused = write(&old, "too-late").await.unwrap_err().to_string();
    assert!(refused.contains("lease has ended"), "{refused}");

    // What was on its way already is refused by the server, whatever its sender believes.
    let named = |holder: &str| {
        let lease = format!("kube-system/test-leader/{holder}").parse::<http::HeaderValue>().unwrap();
        let client = kit.client.clone();
        let named = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            request.headers_mut().insert(HEADER, lease.clone());
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(named, "default")
    };
    for nobody in ["first", "", "nobody"] {
        match write(&named(nobody), "late").await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 409, "{nobody}: {status:?}"),
            other => panic!("{nobody}: {other:?}"),
        }
    }
    write(&named("second"), "in-time").await.unwrap();
    let maps = kube::Api::<ConfigMap>::namespaced(kit.client.clone(), NAMESPACE);
    assert!(maps.get_opt("late").await.unwrap().is_none() && maps.get_opt("too-late").await.unwrap().is_none());

    // The first one notices when it is heard again, and leads no more.
    silent.store(false, Ordering::SeqCst);
    let third = stand(kit.client.clone(), "third");
    assert!(second.tasks.stop(PATIENCE).await, "it gives the lease up");
    let mut third = third;
    third.leads().await;
    let lease = kube::Api::<Lease>::namespaced(kit.client.clone(), "kube-system").get("test-leader").await.unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("third"), Some(2)));
    for candidate in [first, third] {
        assert!(candidate.tasks.stop(PATIENCE).await);
    }
    kit.stop().await;
}

//! Schedulers and controller managers in pairs: when those that lead are killed in the middle of a rollout, the others
//! finish it, and nothing is done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use ferry_client::{Api, Informer, Selection, informer};
use ferry_tasks::Tasks;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::PostParams;

use crate::alone::{Apiserver, runtime};
use crate::cluster::PATIENCE;
use crate::components::Program;

const LEASES: [&str; 2] = ["kube-scheduler", "kube-controller-manager"];

/// A scheduler and a controller manager that stand for election.
fn candidates(kubeconfig: &Path) -> [Program; 2] {
    ["scheduler", "controller-manager"].map(|program| {
        // Long enough for a busy machine: who cannot renew in time ends, and nobody starts it again here.
        let election = [
            "--leader-elect=true",
            "--leader-elect-lease-duration=10s",
            "--leader-elect-renew-deadline=8s",
            "--leader-elect-retry-period=500ms",
        ];
        let port = ["--secure-port=0", "--bind-address=127.0.0.1"];
        Program::start(kubeconfig, &[&[program], &election[..], &port[..]].concat())
    })
}

/// Who leads, once it is somebody else than `before`.
async fn leader(client: &Client, lease: &str, before: Option<String>) -> Option<String> {
    fn holder(lease: &Lease) -> Option<String> {
        lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
    }
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let changed = informer::until(api, lease, |lease| {
        lease.and_then(holder).is_some_and(|holder| Some(&holder) != before.as_ref())
    });
    let lease = tokio::time::timeout(PATIENCE, changed).await.expect("somebody leads");
    lease.as_deref().and_then(holder)
}

async fn leaders(client: &Client, before: [Option<String>; 2]) -> [Option<String>; 2] {
    let [scheduler, manager] = before;
    [leader(client, LEASES[0], scheduler).await, leader(client, LEASES[1], manager).await]
}

async fn deploy(client: &Client, name: &str, replicas: i32) {
    let deployment = serde_json::from_value(serde_json::json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "example.test/none" }] },
            },
        },
    }));
    let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &deployment.unwrap()).await.expect("a deployment");
}

/// The nodes that each pod there ever was has been seen on, by the pod's uid.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Seen {
    fn note(&self, pod: &Pod) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.0.lock().unwrap().entry(uid).or_default().extend(node);
    }
}

async fn wait_for(pods: &Informer<Pod>, what: &str, enough: impl Fn(&[Arc<Pod>]) -> bool) {
    let mut changes = pods.subscribe();
    let seen = tokio::time::timeout(PATIENCE, async {
        while !enough(&pods.list()) {
            changes.next().await;
        }
    });
    assert!(seen.await.is_ok(), "never seen: {what}; there are {} pods", pods.len());
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
}

pub fn killed_leaders_are_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let client = server.client().await;
        server.write_kubeconfig(&kubeconfig);
        let _nodes = Program::start(&kubeconfig, &["node", "simulate", "--nodes=3"]);
        let first = candidates(&kubeconfig);
        let before = leaders(&client, [None, None]).await;
        let _second = candidates(&kubeconfig);

        let tasks = Tasks::new("test");
        let seen = Seen::default();
        let pods = Informer::<Pod>::with(client.clone(), &tasks, Selection::default());
        let noting = seen.clone();
        pods.on_change(move |change| noting.note(change.object()));
        pods.synced().await;
        deploy(&client, "rollout", 100).await;
        wait_for(&pods, "the rollout is under way", |pods| pods.iter().any(|pod| is_bound(pod))).await;
        drop(first);

        wait_for(&pods, "all pods run", |pods| pods.iter().filter(|pod| is_running(pod)).count() == 100).await;
        let after = leaders(&client, before.clone()).await;
        for (before, after) in before.iter().zip(&after) {
            assert_ne!(before, after);
        }
        deploy(&client, "another", 10).await;
        wait_for(&pods, "more pods run", |pods| pods.iter().filter(|pod| is_running(pod)).count() == 110).await;

        let seen = seen.0.lock().unwrap().clone();
        assert_eq!(seen.len(), 110, "every pod was made once");
        assert!(seen.values().all(|nodes| nodes.len() == 1), "every pod had one node: {seen:?}");
        assert!(tasks.stop(PATIENCE).await);
    });
}

/// A scheduler that is stopped for longer than its lease, and goes on when another leads: it notices, ends, and has bound
/// nothing in between.
pub fn a_stopped_leader_is_succeeded_and_gives_way() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let client = server.client().await;
        server.write_kubeconfig(&kubeconfig);
        let _nodes = Program::start(&kubeconfig, &["node", "simulate", "--nodes=3"]);
        let [scheduler, _manager] = candidates(&kubeconfig);
        let before = leaders(&client, [None, None]).await;
        let _second = candidates(&kubeconfig);
        let tasks = Tasks::new("test");
        let seen = Seen::default();
        let pods = Informer::<Pod>::with(client.clone(), &tasks, Selection::default());
        let noting = seen.clone();
        pods.on_change(move |change| noting.note(change.object()));
        pods.synced().await;

        let process = rustix::process::Pid::from_child(&scheduler.0);
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        // Pods that the stopped one would bind first of all when it goes on.
        deploy(&client, "meanwhile", 50).await;
        leader(&client, LEASES[0], before[0].clone()).await;
        rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
        wait_for(&pods, "all pods run", |pods| pods.iter().filter(|pod| is_running(pod)).count() == 50).await;
        let ended = tokio::task::spawn_blocking(move || {
            let mut scheduler = scheduler;
            scheduler.0.wait().unwrap()
        });
        let ended = tokio::time::timeout(PATIENCE, ended).await.expect("it ends").unwrap();
        assert!(!ended.success(), "it lost its lease: {ended}");
        let seen = seen.0.lock().unwrap().clone();
        assert!(seen.values().all(|nodes| nodes.len() == 1), "every pod had one node: {seen:?}");
        assert!(tasks.stop(PATIENCE).await);
    });
}

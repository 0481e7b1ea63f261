//! Figures of the control plane for `make bench`, as JSON lines: run it against a cluster with simulated nodes.
//!
//! `loops --kubeconfig K [--rounds 50] [--pods 5000] [--crowd 10000] [--keep 1000]`; leaves a Deployment of `--keep` pods behind, whose idle
//! cost the caller measures.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use ferry_client::{Api, Change, Informer, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;

#[derive(Parser)]
struct Options {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    #[arg(long, default_value_t = 5000)]
    pods: usize,
    /// So many pods in one selector, at last.
    #[arg(long, default_value_t = 10_000)]
    crowd: usize,
    #[arg(long, default_value_t = 1000)]
    keep: usize,
}

const NAMESPACE: &str = "loops";
const PATIENCE: Duration = Duration::from_secs(300);

/// What happened to a pod, and when this process heard of it.
enum Heard {
    Created(String, Instant),
    Ready,
    Gone,
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn deployment(name: &str, replicas: usize) -> Result<Deployment> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": { "node.kubernetes.io/instance-type": "simulated" },
                "containers": [{ "name": "c", "image": "simulated", "resources": { "requests": { "cpu": "10m", "memory": "10Mi" } } }],
            } },
        },
    }))?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(&options.kubeconfig)?;
    let client = Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
    // There already when it is run a second time.
    let _ = namespaces.create(&PostParams::default(), &namespace).await;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);

    let tasks = Tasks::new("loops");
    let pods: Informer<Pod> = Informer::over(Api::namespaced(client.clone(), NAMESPACE), &tasks, Selection::default());
    let (sender, mut heard) = mpsc::unbounded_channel();
    pods.synced().await;
    pods.on_change(move |change| {
        let told = match change {
            Change::Added(pod) => Heard::Created(pod.labels().get("app").cloned().unwrap_or_default(), Instant::now()),
            Change::Modified { old, new } if !is_ready(old) && is_ready(new) => Heard::Ready,
            Change::Deleted(_) => Heard::Gone,
            Change::Modified { .. } => return,
        };
        let _ = sender.send(told);
    });
    warm_up(&deployments, &mut heard).await?;

    let mut times = Vec::new();
    for round in 0..options.rounds {
        let name = format!("round-{round}");
        deployments.create(&PostParams::default(), &deployment(&name, 1)?).await?;
        let answered = Instant::now();
        times.push(created(&mut heard, &name).await?.saturating_duration_since(answered));
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1000.0;
    println!(r#"{{"what":"Deployment to Pod object","p50_ms":{:.1},"p99_ms":{:.1}}}"#, at(50), at(99));
    for round in 0..options.rounds {
        deployments.delete(&format!("round-{round}"), &DeleteParams::background()).await?;
    }
    until(&pods, 0).await?;
    while heard.try_recv().is_ok() {}
    replace(&deployments, &client, &pods, &mut heard, options.rounds).await?;

    deployments.create(&PostParams::default(), &deployment("many", 0)?).await?;
    let slices = Slices::of(&client, "many", &tasks).await?;
    let scale = |replicas: usize| Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let begin = Instant::now();
    deployments.patch("many", &PatchParams::default(), &scale(options.pods)).await?;
    let (mut made, mut ready) = (0, 0);
    while ready < options.pods {
        match tokio::time::timeout(PATIENCE, heard.recv()).await?.context("the watch ended")? {
            Heard::Created(_, at) => {
                made += 1;
                if made == options.pods {
                    let seconds = at.saturating_duration_since(begin).as_secs_f64();
                    println!(r#"{{"what":"Deployment from 0 to {}, created","seconds":{seconds:.2}}}"#, options.pods);
                }
            }
            Heard::Ready => ready += 1,
            Heard::Gone => {}
        }
    }
    println!(
        r#"{{"what":"Deployment from 0 to {}, ready","seconds":{:.2}}}"#,
        options.pods,
        begin.elapsed().as_secs_f64()
    );
    slices.figures(&client, &pods).await?;
    while heard.try_recv().is_ok() {}
    deployments.patch("many", &PatchParams::default(), &scale(options.crowd)).await?;
    crowd(&client, &pods, &slices, &mut heard, &options).await?;
    deployments.patch("many", &PatchParams::default(), &scale(options.keep)).await?;
    until(&pods, options.keep).await?;
    tasks.stop(Duration::from_secs(5)).await;
    Ok(())
}

/// What one pod costs among very many: from its deletion to its replacement, and how many slices were written for both.
async fn crowd(
    client: &Client,
    pods: &Informer<Pod>,
    slices: &Slices,
    heard: &mut mpsc::UnboundedReceiver<Heard>,
    options: &Options,
) -> Result<()> {
    let begin = Instant::now();
    let mut changes = pods.subscribe();
    let all_ready = async {
        while pods.list().iter().filter(|pod| is_ready(pod)).count() < options.crowd {
            for _ in 0..100 {
                let _: Change<Pod> = changes.next().await;
                if pods.len() >= options.crowd {
                    break;
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, all_ready).await.context("they do not become ready")?;
    let seconds = begin.elapsed().as_secs_f64();
    let before = slices.settled().await;
    while heard.try_recv().is_ok() {}
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        let there = pods.list().into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
        let name = there.context("a pod")?.name_any();
        let begin = Instant::now();
        api.delete(&name, &DeleteParams::default()).await?;
        times.push(created(heard, "many").await?.saturating_duration_since(begin));
    }
    times.sort();
    let middle = times[times.len() / 2].as_secs_f64() * 1000.0;
    let writes = slices.settled().await - before;
    println!(
        r#"{{"what":"{} pods in one selector","seconds_to_ready":{seconds:.2},"replaced":{},"replacement_p50_ms":{middle:.1},"slice_writes":{writes}}}"#,
        options.crowd, options.rounds
    );
    Ok(())
}

/// The first Deployment pays for connections and caches.
async fn warm_up(deployments: &Api<Deployment>, heard: &mut mpsc::UnboundedReceiver<Heard>) -> Result<()> {
    deployments.create(&PostParams::default(), &deployment("first", 1)?).await?;
    created(heard, "first").await?;
    deployments.delete("first", &DeleteParams::background()).await?;
    Ok(())
}

/// A pod is deleted: how long until another is there in its place.
async fn replace(
    deployments: &Api<Deployment>,
    client: &Client,
    pods: &Informer<Pod>,
    heard: &mut mpsc::UnboundedReceiver<Heard>,
    rounds: usize,
) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    deployments.create(&PostParams::default(), &deployment("healed", 1)?).await?;
    created(heard, "healed").await?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let there = pods.list().into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
        let name = there.context("a pod")?.name_any();
        let begin = Instant::now();
        api.delete(&name, &DeleteParams::default()).await?;
        times.push(created(heard, "healed").await?.saturating_duration_since(begin));
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_secs_f64() * 1000.0;
    println!(r#"{{"what":"deleted pod to its replacement","p50_ms":{:.1},"p99_ms":{:.1}}}"#, at(50), at(99));
    deployments.delete("healed", &DeleteParams::background()).await?;
    until(pods, 0).await?;
    while heard.try_recv().is_ok() {}
    Ok(())
}

/// The slices of a Service, and how often they were written.
struct Slices {
    informer: Informer<EndpointSlice>,
    writes: Arc<AtomicUsize>,
}

impl Slices {
    async fn of(client: &Client, app: &str, tasks: &Tasks) -> Result<Self> {
        let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
        let service =
            json!({ "metadata": { "name": app }, "spec": { "selector": { "app": app }, "ports": [{ "port": 80 }] } });
        // There already when it is run a second time.
        let _ = services.create(&PostParams::default(), &serde_json::from_value(service)?).await;
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
        let informer = Informer::over(api, tasks, Selection::default());
        informer.synced().await;
        let writes = Arc::new(AtomicUsize::new(0));
        let count = writes.clone();
        informer.on_change(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        Ok(Self { informer, writes })
    }

    /// Waits until nothing is written any more.
    async fn settled(&self) -> usize {
        loop {
            let before = self.writes.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(2)).await;
            if self.writes.load(Ordering::SeqCst) == before {
                return before;
            }
        }
    }

    async fn figures(&self, client: &Client, pods: &Informer<Pod>) -> Result<()> {
        const CHANGES: usize = 5;
        let before = self.settled().await;
        let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let unready = Patch::Strategic(json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }));
        for pod in pods.list().iter().take(CHANGES) {
            api.patch_status(&pod.name_any(), &PatchParams::default(), &unready).await?;
            self.settled().await;
        }
        let writes = self.settled().await - before;
        let (slices, ready) = (self.informer.len(), pods.list().iter().filter(|pod| is_ready(pod)).count());
        println!(
            r#"{{"what":"EndpointSlices","slices":{slices},"writes_while_scaling":{before},"pods_made_unready":{CHANGES},"writes":{writes},"ready_after":{ready}}}"#
        );
        Ok(())
    }
}

async fn created(heard: &mut mpsc::UnboundedReceiver<Heard>, app: &str) -> Result<Instant> {
    loop {
        let told = tokio::time::timeout(PATIENCE, heard.recv()).await.context("no pod was created")?;
        if let Some(Heard::Created(name, at)) = told
            && name == app
        {
            return Ok(at);
        }
    }
}

async fn until(pods: &Informer<Pod>, count: usize) -> Result<()> {
    let mut changes = pods.subscribe();
    let wait = async {
        while pods.len() != count {
            let _: Change<Pod> = changes.next().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("there are {} pods, not {count}", pods.len()))
}

//! Figures of the control plane for `make bench`, as JSON lines: run it against a cluster with simulated nodes.
//!
//! `loops --kubeconfig K [--rounds 50] [--pods 5000] [--keep 1000]`; leaves a Deployment of `--keep` pods behind, whose idle
//! cost the caller measures.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use ferry_client::{Change, Informer, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
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

    deployments.create(&PostParams::default(), &deployment("many", 0)?).await?;
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
    deployments.patch("many", &PatchParams::default(), &scale(options.keep)).await?;
    until(&pods, options.keep).await?;
    tasks.stop(Duration::from_secs(5)).await;
    Ok(())
}

/// The first Deployment pays for connections and caches.
async fn warm_up(deployments: &Api<Deployment>, heard: &mut mpsc::UnboundedReceiver<Heard>) -> Result<()> {
    deployments.create(&PostParams::default(), &deployment("first", 1)?).await?;
    created(heard, "first").await?;
    deployments.delete("first", &DeleteParams::background()).await?;
    Ok(())
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

//! The workloads of upstream's scheduler_perf, with its sizes, through the real API server and store; JSON lines.
//!
//! `cargo bench -p ferry --bench scheduler -- [--only NAME] [--nodes N] [--folder PATH]`. Pods are created while they are
//! measured, as upstream does; the rate counts from the first creation to the last binding. `floor` is upstream's
//! threshold on six cores. `--only Memory` tells what the scheduler's own view of a large cluster takes.

mod memory;
mod workloads;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ferry_apiserver::Kubelets;
use ferry_client::{Change, Informers};
use ferry_meta::UserInfo;
use ferry_meta::user::MASTERS;
use ferry_server::certificate_rotation::Renewals;
use ferry_server::front_door::{FrontDoor, Options};
use ferry_server::pki::Pki;
use ferry_server::reload::Reloads;
use ferry_server::server_options::{Authorities, CaSource, ServerOptions, ServiceAccountOptions};
use ferry_server::state::StorageBackend;
use ferry_server::{encryption, front_proxy};
use ferry_tasks::Tasks;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::watch;

use workloads::{Churn, Workload};

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Requests of the load under way at once.
const AT_ONCE: usize = 96;

struct Arguments {
    only: Option<String>,
    nodes: Option<usize>,
    folder: PathBuf,
}

fn arguments() -> Arguments {
    let mut arguments = Arguments { only: None, nodes: None, folder: std::env::temp_dir() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut next = || words.next().expect("a value");
        match word.as_str() {
            "--only" => arguments.only = Some(next()),
            "--nodes" => arguments.nodes = Some(next().parse().expect("a number")),
            "--folder" => arguments.folder = next().into(),
            // Given by cargo.
            "--bench" => {}
            other => panic!("unknown argument {other}"),
        }
    }
    arguments
}

fn main() -> Result<()> {
    let arguments = arguments();
    // First, while the process is small.
    if arguments.only.as_deref().is_none_or(|only| only == "Memory") {
        println!("{}", memory::measure()?);
    }
    for mut workload in workloads::all() {
        if arguments.only.as_ref().is_some_and(|only| only != workload.name) {
            continue;
        }
        workload.nodes = arguments.nodes.unwrap_or(workload.nodes);
        let folder = tempfile::tempdir_in(&arguments.folder)?;
        tokio::runtime::Runtime::new()?.block_on(run(&workload, folder.path()))?;
    }
    Ok(())
}

async fn run(workload: &Workload, folder: &std::path::Path) -> Result<()> {
    let tasks = Tasks::new("bench");
    let key = rcgen::KeyPair::generate()?.serialize_pem();
    let pki = Arc::new(Pki::open(&folder.join("pki"))?);
    let server = ServerOptions::default();
    let (renewals, reloads) = (Renewals::new(pki.clone()), Reloads::new());
    let front_proxy = front_proxy::open(&pki, &server.authentication, &renewals)?;
    let client_ca = CaSource::Pem(pki.ca_certificate().to_owned());
    let authorities = Authorities::open(&server.authentication, client_ca, front_proxy.known_by, &reloads)?;
    let door = FrontDoor::open(
        Options {
            state: &StorageBackend::Embedded { data_dir: folder.to_owned(), sync: true },
            key_dir: &encryption::folder(folder)?,
            service_accounts: ServiceAccountOptions::default().keys(&key)?,
            service_cidr: "10.96.0.0/16",
            advertise: [127, 0, 0, 1].into(),
            port: 6443,
            authorities,
            reloads: &reloads,
            static_tokens: None,
            kubelets: Kubelets { tls: None },
            front_proxy: front_proxy.identity,
            server: &server,
            flags: Vec::new(),
            cbor: false,
            resource_metrics: false,
            lacks_policies: false,
        },
        &tasks,
    )
    .await?;
    let load = Load { client: door.client(UserInfo::new("admin", &[MASTERS])) };
    load.prepare(workload).await?;

    let informers = Informers::new(door.client(UserInfo::new("system:kube-controller-manager", &[])), tasks.clone());
    let client = door.client(UserInfo::new("system:kube-scheduler", &[]));
    let config = ferry_scheduler::Config::new(&client);
    let scheduler = ferry_scheduler::start(config, client, &informers, &tasks).await?;
    let bound = Arc::new(watch::Sender::new(0_usize));
    let counter = bound.clone();
    let counted = [workload.initial.name_prefix(), workload.measured.name_prefix()];
    informers.of::<Pod>().on_change(move |change| {
        let node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let newly = match change {
            Change::Added(new) => node(new),
            Change::Modified { old, new } => node(new) && !node(old),
            Change::Deleted(_) => false,
        };
        let name = change.object().metadata.name.as_deref().unwrap_or_default();
        if newly && counted.iter().any(|prefix| name.starts_with(prefix)) {
            counter.send_modify(|count| *count += 1);
        }
    });
    load.create_pods(&workload.initial).await?;
    reached(&bound, workload.initial.count).await.context("the initial pods")?;

    let churn = workload.churn.map(|churn| {
        let load = load.clone();
        tasks.spawn_until_stopped("churn", async move { load.churn(churn).await })
    });
    let before = scheduler.metrics().decisions();
    let (begin, worked) = (Instant::now(), processor_time());
    let all = workload.initial.count + workload.measured.count;
    let (created, finished) = tokio::join!(
        async {
            load.create_pods(&workload.measured).await?;
            Ok::<_, anyhow::Error>(begin.elapsed())
        },
        reached(&bound, all)
    );
    finished.context("the measured pods")?;
    let elapsed = begin.elapsed();
    let created = created?;
    let after = scheduler.metrics().decisions();
    let rate = workload.measured.count as f64 / elapsed.as_secs_f64();
    let decision = after.since(&before);
    println!(
        "{}",
        json!({
            "what": workload.name, "nodes": workload.nodes, "initial": workload.initial.count,
            "pods": workload.measured.count, "seconds": round(elapsed.as_secs_f64()), "pods_per_second": rate.round(),
            "floor": workload.floor, "times_floor": round(rate / workload.floor),
            "creation_per_second": (workload.measured.count as f64 / created.as_secs_f64()).round(),
            "decision_mean_us": round(decision.mean() * 1e6), "decision_p99_ms": round(decision.quantile(0.99) * 1e3),
            "attempts": decision.count(), "rss_mb": resident(),
            // Of everything: the load, the API server, the store and the scheduler. Says more than the rate when the
            // machine is not idle.
            "cpu_us_per_pod": ((processor_time() - worked).as_micros() as f64 / workload.measured.count as f64).round(),
        })
    );
    if let Some(churn) = churn {
        churn.abort();
    }
    tasks.stop(Duration::from_secs(10)).await;
    Ok(())
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// What this process has used of all cores.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before it may hold spaces; user and system time are the 12th and 13th field behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}

async fn reached(bound: &watch::Sender<usize>, count: usize) -> Result<()> {
    let mut receiver = bound.subscribe();
    loop {
        let so_far = *receiver.borrow_and_update();
        if so_far >= count {
            return Ok(());
        }
        tokio::time::timeout(Duration::from_secs(60), receiver.changed())
            .await
            .with_context(|| format!("{so_far} of {count} are bound, and nothing happened for a minute"))??;
    }
}

#[derive(Clone)]
struct Load {
    client: kube::Client,
}

impl Load {
    async fn post(&self, path: &str, body: &Value) -> Result<()> {
        self.send("POST", path, serde_json::to_vec(body)?).await
    }

    async fn send(&self, method: &str, path: &str, body: Vec<u8>) -> Result<()> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(kube::client::Body::from(body))?;
        let response = self.client.send(request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect_bytes().await?;
            ensure!(status.as_u16() == 409, "{method} {path}: {status} {}", String::from_utf8_lossy(&body));
        }
        Ok(())
    }

    async fn prepare(&self, workload: &Workload) -> Result<()> {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10});
        self.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
        for namespace in ["init", "sched-0", "sched-1"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.post("/api/v1/namespaces", &object).await?;
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            self.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await?;
        }
        each(workload.nodes, |number| async move {
            self.create_node(
                &format!("node-{number}"),
                workload.zones.get(number % workload.zones.len().max(1)).copied(),
            )
            .await
        })
        .await
    }

    /// A new node gets a taint until it is ready, which here it is at once.
    async fn create_node(&self, name: &str, zone: Option<&str>) -> Result<()> {
        let mut node = workloads::node(name, zone);
        self.post("/api/v1/nodes", &node).await?;
        node["spec"] = json!({});
        self.send("PUT", &format!("/api/v1/nodes/{name}"), serde_json::to_vec(&node)?).await?;
        self.send("PUT", &format!("/api/v1/nodes/{name}/status"), serde_json::to_vec(&node)?).await
    }

    async fn create_pods(&self, pods: &workloads::Pods) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}/pods", pods.namespace);
        let (path, text) = (path.as_str(), pods.template.to_string());
        let text = text.as_str();
        each(pods.count, |number| async move {
            let name = format!("{}{number}", pods.name_prefix());
            self.send("POST", path, text.replace("@name@", &name).into_bytes()).await
        })
        .await
    }

    async fn churn(&self, churn: Churn) {
        let number = AtomicUsize::new(0);
        loop {
            let n = number.fetch_add(1, Ordering::Relaxed);
            let done = match churn {
                Churn::Create { template, every } => {
                    tokio::time::sleep(every).await;
                    let text = template().to_string().replace("@name@", &format!("churn-{n}"));
                    self.send("POST", "/api/v1/namespaces/sched-0/pods", text.into_bytes()).await
                }
                Churn::Mixed { every } => self.recreate(every).await,
            };
            if let Err(error) = done {
                eprintln!("churn: {error:#}");
            }
        }
    }

    async fn recreate(&self, every: Duration) -> Result<()> {
        let pod = workloads::large_pod().to_string().replace("@name@", "churn");
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "churn"}, "spec": {"selector": {"app": "foo"}, "ports": [{"port": 8080}]}});
        self.create_node("churn", None).await?;
        self.send("POST", "/api/v1/namespaces/sched-0/pods", pod.into_bytes()).await?;
        self.post("/api/v1/namespaces/sched-0/services", &service).await?;
        tokio::time::sleep(every).await;
        self.send("DELETE", "/api/v1/nodes/churn", Vec::new()).await?;
        self.send("DELETE", "/api/v1/namespaces/sched-0/pods/churn", Vec::new()).await?;
        self.send("DELETE", "/api/v1/namespaces/sched-0/services/churn", Vec::new()).await?;
        tokio::time::sleep(every).await;
        Ok(())
    }
}

async fn each<F, Fut>(count: usize, make: F) -> Result<()>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let mut running = futures::stream::iter(0..count).map(make).buffer_unordered(AT_ONCE);
    while let Some(done) = running.next().await {
        done?;
    }
    Ok(())
}

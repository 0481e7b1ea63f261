//! What the store can do on this machine, as JSON lines.
//!
//! `cargo bench -p ferry-store -- [--seconds N] [--objects N] [--folder PATH] [--no-etcd]`. Raw append+fdatasync and
//! etcd run on the same disk in the same run: figures mean something only beside them.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ferry_store::{EmbeddedStore, EtcdOptions, EtcdStore, Op, Options, Store, Transaction, WatchRequest};
use ferry_tasks::Tasks;
use futures::StreamExt;
use serde_json::json;

const WRITERS: [usize; 4] = [1, 8, 64, 256];
const VALUE: usize = 2048;

struct Arguments {
    seconds: f64,
    objects: usize,
    folder: PathBuf,
    etcd: bool,
}

fn arguments() -> Arguments {
    let mut arguments = Arguments { seconds: 3.0, objects: 100_000, folder: std::env::temp_dir(), etcd: true };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
        match word.as_str() {
            "--seconds" => arguments.seconds = number(),
            "--objects" => arguments.objects = number() as usize,
            "--folder" => arguments.folder = words.next().expect("a folder").into(),
            "--no-etcd" => arguments.etcd = false,
            // Given by cargo.
            "--bench" => {}
            other => panic!("unknown argument {other}"),
        }
    }
    arguments
}

fn value(number: u64) -> Bytes {
    let text = format!("{{\"kind\":\"Thing\",\"number\":{number},\"padding\":\"");
    let mut bytes = text.into_bytes();
    let mut noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < VALUE - 2 {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        bytes.push(b'a' + (noise % 26) as u8);
    }
    bytes.extend_from_slice(b"\"}");
    Bytes::from(bytes)
}

fn report(what: &str, engine: &str, writers: usize, elapsed: Duration, mut latencies: Vec<Duration>) -> f64 {
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    };
    let rate = latencies.len() as f64 / elapsed.as_secs_f64();
    println!(
        "{}",
        json!({
            "bench": what, "engine": engine, "writers": writers, "operations": latencies.len(),
            "per_second": rate.round(), "p50_ms": at(0.5), "p99_ms": at(0.99),
        })
    );
    rate
}

/// One writer, one file, a record and an fdatasync at a time.
fn raw(folder: &Path, seconds: f64) -> f64 {
    let path = folder.join("raw");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("open");
    let (started, mut latencies, mut number) = (Instant::now(), Vec::new(), 0);
    while started.elapsed().as_secs_f64() < seconds {
        let record = value(number);
        let begin = Instant::now();
        file.write_all(&record).and_then(|()| file.sync_data()).expect("append");
        latencies.push(begin.elapsed());
        number += 1;
    }
    std::fs::remove_file(path).expect("remove");
    report("append+fdatasync", "raw", 1, started.elapsed(), latencies)
}

async fn writer(store: Arc<dyn Store>, name: String, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let op = Op::Create { key: format!("/registry/bench/{name}/{number}"), value: value(number), lease: None };
        let begin = Instant::now();
        store.commit(Transaction::one(op)).await.expect("commit");
        latencies.push(begin.elapsed());
        number += 1;
    }
    latencies
}

async fn puts(store: &Arc<dyn Store>, engine: &str, writers: usize, seconds: f64) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let tasks = Tasks::new("writers");
    let (sender, mut results) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..writers {
        let running = writer(store.clone(), format!("{engine}-{writers}-{number}"), stop.clone());
        let sender = sender.clone();
        tasks.spawn("writer", async move {
            let _ = sender.send(running.await);
        });
    }
    drop(sender);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    while let Some(mut some) = results.recv().await {
        latencies.append(&mut some);
    }
    report("durable puts", engine, writers, started.elapsed(), latencies)
}

/// From the acknowledgement of one write to its arrival at the last of a thousand watchers.
async fn fan_out(store: &Arc<dyn Store>, watchers: usize) {
    let after = store.revision().await.expect("revision");
    let mut watches = Vec::new();
    for _ in 0..watchers {
        let mut watch = store.watch(WatchRequest { prefix: "/registry/fan/".into(), after }).await.expect("watch");
        watch.next().await.expect("a mark").expect("a mark");
        watches.push(watch);
    }
    let mut latencies = Vec::new();
    let started = Instant::now();
    for number in 0..50 {
        let key = format!("/registry/fan/{watchers}-{number}");
        let op = Op::Create { key, value: value(number), lease: None };
        let begin = Instant::now();
        store.commit(Transaction::one(op)).await.expect("commit");
        let seen = watches
            .iter_mut()
            .map(|watch| async { while watch.next().await.expect("a batch").expect("a batch").events.is_empty() {} });
        futures::future::join_all(seen).await;
        latencies.push(begin.elapsed());
    }
    report("write to last of N watchers", "embedded", watchers, started.elapsed(), latencies);
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

async fn restart(folder: &Path, objects: usize) {
    let path = folder.join("restart");
    let store = EmbeddedStore::open(&path, Options::default()).expect("open");
    let started = Instant::now();
    for chunk in 0..objects.div_ceil(256) {
        let commits = (chunk * 256..(chunk * 256 + 256).min(objects)).map(|number| {
            let key = format!("/registry/things/ns-{}/object-{number}", number % 50);
            store.commit(Transaction::one(Op::Create { key, value: value(number as u64), lease: None }))
        });
        for outcome in futures::future::join_all(commits).await {
            outcome.expect("commit");
        }
    }
    let filled = started.elapsed();
    drop(store);
    let before = resident_kilobytes();
    let started = Instant::now();
    let store = EmbeddedStore::open(&path, Options::default()).expect("open");
    let opened = started.elapsed();
    let after = resident_kilobytes();
    println!(
        "{}",
        json!({
            "bench": "restart", "engine": "embedded", "objects": objects, "fill_seconds": filled.as_secs_f64(),
            "open_ms": opened.as_secs_f64() * 1e3, "resident_kb_before": before, "resident_kb": after,
        })
    );
    drop(store);
}

struct Etcd(Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn etcd(folder: &Path) -> Option<(Etcd, Arc<dyn Store>)> {
    let ports = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [client, peer] = ports.map(|port| format!("http://{}", port.local_addr().expect("an address")));
    let process = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--quota-backend-bytes", "8000000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let process = Etcd(process.ok()?);
    let options = EtcdOptions { compaction_interval: None, ..EtcdOptions::new(vec![client]) };
    let store = EtcdStore::connect(options, &Tasks::new("bench")).await.ok()?;
    while store.health().await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Some((process, store))
}

#[tokio::main]
async fn main() {
    let arguments = arguments();
    let folder = arguments.folder.join(format!("ferry-store-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let raw_rate = raw(&folder, arguments.seconds);
    let embedded: Arc<dyn Store> = EmbeddedStore::open(&folder.join("embedded"), Options::default()).expect("open");
    let mut rates = Vec::new();
    for writers in WRITERS {
        rates.push(puts(&embedded, "embedded", writers, arguments.seconds).await);
    }
    for watchers in [1, 100, 1000] {
        fan_out(&embedded, watchers).await;
    }
    drop(embedded);
    let mut ratios = json!({"bench": "ratios", "embedded_1_to_raw": rates[0] / raw_rate});
    if arguments.etcd {
        match etcd(&folder).await {
            None => {
                println!("{}", json!({"bench": "durable puts", "engine": "etcd", "skipped": "etcd does not start"}))
            }
            Some((_process, store)) => {
                let mut beside = Vec::new();
                for writers in WRITERS {
                    beside.push(puts(&store, "etcd", writers, arguments.seconds).await);
                }
                ratios["embedded_1_to_etcd"] = json!(rates[0] / beside[0]);
                ratios["embedded_256_to_etcd"] = json!(rates[3] / beside[3]);
            }
        }
    }
    println!("{ratios}");
    restart(&folder, arguments.objects).await;
    std::fs::remove_dir_all(&folder).expect("remove");
}

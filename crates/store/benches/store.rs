//! What the store can do on this machine, as JSON lines and a table at the end.
//!
//! `cargo bench -p ferry-store -- [--seconds N] [--objects N] [--folder PATH] [--no-etcd]`. Raw append+fdatasync and
//! etcd run on the same disk in the same run: figures mean something only beside them. `--open PATH` opens a store and
//! tells what that took; the benchmark calls itself with it, for a process has the memory of all it ever did.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ferry_store::{EmbeddedStore, EtcdOptions, EtcdStore, Op, Options, Range, Store, Transaction, WatchRequest};
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
    open: Option<PathBuf>,
}

/// One row of the table: rates and latencies in milliseconds.
struct Row {
    what: String,
    engine: String,
    writers: usize,
    per_second: f64,
    p50: f64,
    p99: f64,
}

fn arguments() -> Arguments {
    let mut arguments =
        Arguments { seconds: 3.0, objects: 100_000, folder: std::env::temp_dir(), etcd: true, open: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
        match word.as_str() {
            "--seconds" => arguments.seconds = number(),
            "--objects" => arguments.objects = number() as usize,
            "--folder" => arguments.folder = words.next().expect("a folder").into(),
            "--no-etcd" => arguments.etcd = false,
            "--open" => arguments.open = Some(words.next().expect("a folder").into()),
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

fn report(what: &str, engine: &str, writers: usize, elapsed: Duration, mut latencies: Vec<Duration>) -> Row {
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
    Row { what: what.into(), engine: engine.into(), writers, per_second: rate, p50: at(0.5), p99: at(0.99) }
}

fn table(rows: &[Row]) {
    println!("\n{:<28} {:<9} {:>6} {:>12} {:>10} {:>10}", "", "", "", "per second", "p50 ms", "p99 ms");
    for Row { what, engine, writers, per_second, p50, p99 } in rows {
        println!("{what:<28} {engine:<9} {writers:>6} {per_second:>12.0} {p50:>10.3} {p99:>10.3}");
    }
}

/// One writer, one file, a record and an fdatasync at a time.
fn raw(folder: &Path, seconds: f64) -> Row {
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

async fn puts(store: &Arc<dyn Store>, engine: &str, writers: usize, seconds: f64) -> Row {
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
async fn fan_out(store: &Arc<dyn Store>, watchers: usize) -> Row {
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
    report("write to last of N watchers", "embedded", watchers, started.elapsed(), latencies)
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Fills a store, then opens it in a process of its own: a cold one's time and memory.
async fn restart(folder: &Path, objects: usize) -> String {
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
    let filled = started.elapsed().as_secs_f64();
    drop(store);
    let program = std::env::current_exe().expect("the benchmark itself");
    let output = Command::new(program).arg("--open").arg(&path).output().expect("it runs again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    figures["fill_seconds"] = json!(filled);
    println!("{figures}");
    format!(
        "{} objects of {VALUE} bytes: open in {:.0} ms, {:.0} MB resident",
        figures["objects"],
        figures["open_ms"].as_f64().unwrap_or_default(),
        figures["resident_kb"].as_f64().unwrap_or_default() / 1024.0
    )
}

async fn open_only(path: &Path) {
    let before = resident_kilobytes();
    let started = Instant::now();
    let store = EmbeddedStore::open(path, Options::default()).expect("open");
    let opened = started.elapsed();
    let range = Range { prefix: "/registry/".into(), limit: 1, ..Range::default() };
    let objects = store.range(range).await.expect("range").remaining + 1;
    println!(
        "{}",
        json!({
            "bench": "restart", "engine": "embedded", "objects": objects, "open_ms": opened.as_secs_f64() * 1e3,
            "resident_kb_before": before, "resident_kb": resident_kilobytes(),
        })
    );
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
    if let Some(path) = arguments.open {
        return open_only(&path).await;
    }
    let folder = arguments.folder.join(format!("ferry-store-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut rows = vec![raw(&folder, arguments.seconds)];
    let embedded: Arc<dyn Store> = EmbeddedStore::open(&folder.join("embedded"), Options::default()).expect("open");
    for writers in WRITERS {
        rows.push(puts(&embedded, "embedded", writers, arguments.seconds).await);
    }
    // Once more: a disk's mood changes within a run, and the ratio is to what it can do beside these.
    rows.push(raw(&folder, arguments.seconds));
    let raw_rate = f64::midpoint(rows[0].per_second, rows[5].per_second);
    let (one, many) = (rows[1].per_second, rows[4].per_second);
    let mut ratios = json!({"bench": "ratios", "embedded_1_to_raw": one / raw_rate});
    for watchers in [1, 10, 100, 1000] {
        rows.push(fan_out(&embedded, watchers).await);
    }
    drop(embedded);
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
                ratios["embedded_1_to_etcd"] = json!(one / beside[0].per_second);
                ratios["embedded_256_to_etcd"] = json!(many / beside[3].per_second);
                rows.extend(beside);
            }
        }
    }
    println!("{ratios}");
    let restarted = restart(&folder, arguments.objects).await;
    std::fs::remove_dir_all(&folder).expect("remove");
    table(&rows);
    let ratio = |name: &str| ratios[name].as_f64().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    println!(
        "{restarted}\n1 writer to raw {}, to etcd {}; 256 writers to etcd {}",
        ratio("embedded_1_to_raw"),
        ratio("embedded_1_to_etcd"),
        ratio("embedded_256_to_etcd")
    );
}

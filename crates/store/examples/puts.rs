//! What etcd itself gives, for `make bench PART=quorum`: durable creations of about a kilobyte by many writers at once, as a line of JSON.
//!
//! `puts http://127.0.0.1:2379[,…] [WRITERS] [COUNT]`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ferry_store::{EtcdOptions, EtcdStore, Op, Store, Transaction};
use ferry_tasks::Tasks;

/// About what a ConfigMap with 900 bytes of data takes in the store.
const VALUE: usize = 1100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let endpoints = words.next().ok_or("puts ENDPOINTS [WRITERS] [COUNT]")?.split(',').map(str::to_owned).collect();
    let writers = words.next().map_or(Ok(32), |word| word.parse::<usize>())?;
    let count = words.next().map_or(Ok(5000), |word| word.parse::<u64>())?;
    let options = EtcdOptions { compaction_interval: None, ..EtcdOptions::new(endpoints) };
    let store = EtcdStore::connect(options, &Tasks::new("puts")).await?;
    let (next, value) = (AtomicU64::new(0), Bytes::from(vec![b'x'; VALUE]));
    // Another run's keys are still there.
    let folder = format!("/registry/puts-{}", std::process::id());
    let begin = Instant::now();
    let running = (0..writers).map(|_| write(store.clone(), &folder, &next, count, &value));
    let mut times: Vec<Duration> = futures::future::try_join_all(running).await?.concat();
    let elapsed = begin.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!(
        r#"{{"what":"etcd itself, create","connections":{writers},"count":{count},"per_second":{:.0},"p50_ms":{:.3},"p99_ms":{:.3}}}"#,
        count as f64 / elapsed,
        at(0.5),
        at(0.99),
    );
    Ok(())
}

async fn write(
    store: Arc<dyn Store>,
    folder: &str,
    next: &AtomicU64,
    count: u64,
    value: &Bytes,
) -> Result<Vec<Duration>, ferry_store::StoreError> {
    let mut times = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(times);
        }
        let op = Op::Create { key: format!("{folder}/{number}"), value: value.clone(), lease: None };
        let start = Instant::now();
        store.commit(Transaction::one(op)).await?;
        times.push(start.elapsed());
    }
}

//! One write to many watchers: how long until all have it, and what it costs where the index leaves most of them alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::kit::{Kit, config_map, cpu_micros, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCHERS: usize = 1000;
const WRITES: usize = 100;
const SELECTED_WRITES: usize = 2000;

pub async fn run() {
    let kit = Arc::new(Kit::new().await);
    let (sender, mut seen) = mpsc::unbounded_channel();
    for _ in 0..WATCHERS {
        let sender = sender.clone();
        watch(
            &kit,
            format!("{MAPS}?watch=1&resourceVersion=0&fieldSelector=metadata.namespace%3Ddefault"),
            move || {
                let _ = sender.send(Instant::now());
            },
        )
        .await;
    }
    // What was there before comes first.
    while tokio::time::timeout(Duration::from_millis(500), seen.recv()).await.is_ok() {}
    let mut times = Vec::new();
    for n in 0..WRITES {
        let begin = Instant::now();
        kit.call("POST", MAPS, "application/json", config_map(&format!("seen-{n}"))).await;
        for _ in 0..WATCHERS {
            if let Some(at) = seen.recv().await {
                times.push(at - begin);
            }
        }
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!(r#"{{"what":"handler: one write to 1,000 watchers","p50_ms":{:.2},"p99_ms":{:.2}}}"#, at(0.5), at(0.99));
    for count in [10, 10_000] {
        let kit = Arc::new(Kit::new().await);
        for n in 0..count {
            watch(&kit, format!("/api/v1/pods?watch=1&resourceVersion=0&fieldSelector=spec.nodeName%3Dn{n}"), || {})
                .await;
        }
        let before = cpu_micros();
        for n in 0..SELECTED_WRITES {
            kit.call("POST", PODS, "application/json", pod(&format!("p-{n}"), &format!("n{}", n % 10))).await;
        }
        let cost = (cpu_micros() - before) / SELECTED_WRITES as f64;
        println!(r#"{{"what":"handler: a write beside {count} watchers of nodes","cpu_us":{cost:.1}}}"#);
    }
}

async fn watch(kit: &Arc<Kit>, path: String, seen: impl Fn() + Send + 'static) {
    let mut body = kit.open("GET", &path, "", String::new()).await.into_body();
    kit.tasks.spawn("watcher", async move {
        while let Some(Ok(frame)) = body.frame().await {
            if frame.is_data() {
                seen();
            }
        }
    });
}

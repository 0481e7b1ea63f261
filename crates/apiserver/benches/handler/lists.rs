//! Lists of 10,000 pods of 3 KB: bytes per second, and what eight of them at once take in memory.

use std::sync::Arc;
use std::time::Instant;

use http_body_util::BodyExt;

use crate::kit::{Kit, cpu_micros, forget_peak, memory, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const COUNT: usize = 10_000;
const ROUNDS: usize = 20;
const AT_ONCE: usize = 8;

pub async fn run() {
    let kit = Arc::new(Kit::new().await);
    kit.measure("pods to be listed", COUNT, |n| ("POST", PODS.into(), "application/json", pod(&format!("p-{n}"), "n")))
        .await;
    let size = kit.drain(PODS).await;
    let (begin, before) = (Instant::now(), cpu_micros());
    for _ in 0..ROUNDS {
        kit.drain(PODS).await;
    }
    let total = (size * ROUNDS) as f64;
    println!(
        r#"{{"what":"handler: list of 10,000 pods","megabytes":{:.1},"gigabytes_per_second":{:.2},"gigabytes_per_cpu_second":{:.2}}}"#,
        size as f64 / 1e6,
        total / begin.elapsed().as_secs_f64() / 1e9,
        total / (cpu_micros() - before) / 1e3,
    );
    forget_peak();
    let before = memory("VmRSS:");
    // Held at once, as slow clients hold them: first all answers, then what is in them.
    let mut answers = Vec::new();
    for _ in 0..AT_ONCE {
        answers.push(kit.open("GET", PODS, "", String::new()).await);
    }
    let mut total = 0;
    for answer in answers {
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            total += frame.expect("a frame").into_data().map_or(0, |data| data.len());
        }
    }
    assert_eq!(total, size * AT_ONCE);
    let grown = memory("VmHWM:") - before;
    println!(
        r#"{{"what":"handler: eight lists at once","grown_mb":{grown:.1},"per_answer":{:.2}}}"#,
        grown * 1024.0 * 1024.0 / total as f64
    );
}

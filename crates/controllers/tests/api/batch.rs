//! Jobs of many indexes, and schedules with a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferry_client::{Api, Clock};
use ferry_testbed::Kit;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

fn template(run_for: &str) -> serde_json::Value {
    json!({
        "metadata": { "annotations": { ferry_simulator::annotation::RUN_FOR: run_for } },
        "spec": { "restartPolicy": "Never", "nodeName": "node-0", "containers": [{ "name": "c", "image": "i" }] },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_a_thousand_indexes_counts_each_once() {
    let kit = Kit::cluster(1).await;
    let spec =
        json!({ "completionMode": "Indexed", "completions": 1000, "parallelism": 250, "template": template("0") });
    kit.create::<Job>(json!({ "metadata": { "name": "many" }, "spec": spec })).await;
    let done = kit
        .until(kit.api::<Job>(), "a complete job", |all| {
            let conditions = all.iter().filter_map(|job| job.status.as_ref()?.conditions.as_ref()).flatten();
            conditions.into_iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
        })
        .await;
    let status = done[0].status.clone().unwrap();
    assert_eq!(
        (status.succeeded, status.failed.unwrap_or_default(), status.active.unwrap_or_default()),
        (Some(1000), 0, 0)
    );
    assert_eq!(status.completed_indexes.as_deref(), Some("0-999"));
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_follow_the_clock() {
    const HOUR: i64 = 3600;
    let kit = Kit::new().await;
    let seconds = Arc::new(AtomicI64::new(Timestamp::now().as_second()));
    let hand = seconds.clone();
    let clock = Clock::new(move || Timestamp::from_second(hand.load(Ordering::SeqCst)).unwrap());
    kit.controllers(ferry_controllers::Config { clock, ..kit.config() });
    let job = json!({ "spec": { "template": template("1h") } });
    let cron = |name: &str, schedule: &str| {
        json!({ "metadata": { "name": name }, "spec": {
            "schedule": schedule, "timeZone": "Asia/Tokyo", "concurrencyPolicy": "Forbid", "jobTemplate": job,
        } })
    };
    let made = kit.create::<CronJob>(cron("hourly", "0 * * * *")).await.metadata.creation_timestamp.unwrap();
    // Schedules count from when the server says that they were made: in each hour from then on falls one time.
    seconds.store(made.0.as_second(), Ordering::SeqCst);
    // Never due: the thirty-first of February.
    kit.create::<CronJob>(cron("never", "0 0 31 2 *")).await;

    // The queue sleeps by the machine's clock; a change of the object wakes it.
    let touch = async |change: serde_json::Value| {
        for name in ["hourly", "never"] {
            let patch = Patch::Merge(change.clone());
            kit.api::<CronJob>().patch(name, &PatchParams::default(), &patch).await.unwrap();
        }
    };
    let jobs = async || kit.api::<Job>().list(&Default::default()).await.unwrap().items;
    seconds.fetch_add(HOUR, Ordering::SeqCst);
    touch(json!({ "metadata": { "annotations": { "touched": "1" } } })).await;
    let first = kit.until(kit.api::<Job>(), "a job", |all| all.len() == 1).await;
    assert!(first[0].name_any().starts_with("hourly-"));

    // An hour later the first still runs, and nothing may run beside it.
    seconds.fetch_add(HOUR, Ordering::SeqCst);
    touch(json!({ "metadata": { "annotations": { "touched": "2" } } })).await;
    let events: Api<Event> = kit.api();
    kit.until(events, "JobAlreadyActive", |all| all.iter().any(|e| e.reason.as_deref() == Some("JobAlreadyActive")))
        .await;
    assert_eq!(jobs().await.len(), 1);

    touch(json!({ "spec": { "concurrencyPolicy": "Replace" } })).await;
    let second = kit.until(kit.api::<Job>(), "another job", |all| {
        let alive: Vec<_> = all.iter().filter(|job| job.metadata.deletion_timestamp.is_none()).collect();
        alive.len() == 1 && alive[0].uid() != first[0].uid()
    });
    second.await;
    kit.stop().await;
}

/// Each of these passed validation and was then never followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_schedule_that_the_api_accepts_is_followed() {
    const SCHEDULES: [&str; 5] = ["@every 1.5h", "@every .5h", "@every 1h0m0.5s", "@every 90000ms", "1,,31 +0 * * ?"];
    let kit = Kit::new().await;
    let seconds = Arc::new(AtomicI64::new(Timestamp::now().as_second()));
    let hand = seconds.clone();
    let clock = Clock::new(move || Timestamp::from_second(hand.load(Ordering::SeqCst)).unwrap());
    kit.controllers(ferry_controllers::Config { clock, ..kit.config() });
    let job = json!({ "spec": { "template": template("1h") } });
    for (number, schedule) in SCHEDULES.iter().enumerate() {
        let name = format!("cron-{number}");
        let spec = json!({ "schedule": schedule, "jobTemplate": job });
        kit.create::<CronJob>(json!({ "metadata": { "name": name }, "spec": spec })).await;
    }
    // A day has every hour in it, the one after midnight too.
    seconds.fetch_add(24 * 3600, Ordering::SeqCst);
    for number in 0..SCHEDULES.len() {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": "1" } } }));
        kit.api::<CronJob>().patch(&format!("cron-{number}"), &PatchParams::default(), &patch).await.unwrap();
    }
    for (number, schedule) in SCHEDULES.iter().enumerate() {
        let prefix = format!("cron-{number}-");
        let made = |all: &[Arc<Job>]| all.iter().any(|job| job.name_any().starts_with(&prefix));
        kit.until(kit.api::<Job>(), schedule, made).await;
    }
    kit.stop().await;
}

//! Rollouts, Jobs and schedules while everything fails: requests refused, conflicts, watches cut, and the controllers killed
//! and started again after any number of writes. The end state is the same, and no pod is created twice.
//!
//! Prints its seed; `FERRY_SEED=<seed>` replays it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferry_client::informer::Cached;
use ferry_client::{Api, Change, Clock, Informer, Informers, Selection};
use ferry_meta::UserInfo;
use ferry_tasks::Tasks;
use ferry_testbed::{Faults, Kit, deployment, is_ready};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

/// By what they belong to, the uids of all that ever were.
type Created = watch::Receiver<BTreeMap<String, HashSet<String>>>;

/// Sees every object that ever is, by an untroubled watch.
async fn witness<K: Cached>(kit: &Kit, api: Api<K>, of: impl Fn(&K) -> String + Send + Sync + 'static) -> Created {
    let (seen, created) = watch::channel(BTreeMap::<String, HashSet<String>>::new());
    let informer: Informer<K> = Informer::over(api, &kit.tasks, Selection::default());
    informer.on_change(move |change| {
        if let Change::Added(object) = change {
            let uid = object.meta().uid.clone().unwrap_or_default();
            seen.send_modify(|all| {
                all.entry(of(object)).or_default().insert(uid);
            });
        }
    });
    informer.synced().await;
    created
}

/// How many there were of each, in order, once as many as expected have been seen: the watch may lag.
async fn numbers(mut created: Created, expected: usize) -> Vec<usize> {
    let sum = |all: &BTreeMap<String, HashSet<String>>| all.values().map(HashSet::len).sum::<usize>();
    let all = created.wait_for(|all| sum(all) >= expected).await.unwrap();
    let mut numbers: Vec<usize> = all.values().map(HashSet::len).collect();
    numbers.sort_unstable();
    numbers
}

async fn scheduler(kit: &Kit) {
    let informers = Informers::new(kit.client.clone(), kit.tasks.clone());
    let client = kit.door.client(UserInfo::new("system:kube-scheduler", &[]));
    ferry_scheduler::start(ferry_scheduler::Config::new(&client), client, &informers, &kit.tasks).await.unwrap();
}

/// Nodes and the account that pods need, before anything fails.
async fn prepare(kit: &Kit, faults: &Faults) {
    kit.simulate(3).await;
    kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
    faults.switch_on();
}

fn start(kit: &Kit, faults: &Arc<Faults>, clock: &Clock) -> Tasks {
    let tasks = kit.tasks.child("mortal");
    let clients = kit.door.clients();
    let server = kit.tasks.clone();
    let shared = clients(UserInfo::new("system:kube-controller-manager", &[]));
    let shared = faults.client(shared, server.clone());
    let informers = Informers::new(shared, tasks.clone());
    let own = faults.clone();
    let account =
        move |name: &str| own.client(clients(UserInfo::service_account("kube-system", name, "")), server.clone());
    let config = ferry_controllers::Config { clock: clock.clone(), ..kit.config() };
    ferry_controllers::start(&informers, account, &tasks, config);
    tasks
}

/// Starts controllers again whenever they die, until the group stops.
async fn live_and_die(kit: &Kit, faults: &Arc<Faults>, clock: &Clock, done: &Notify) -> usize {
    let mut lives = 0;
    loop {
        lives += 1;
        faults.next_life();
        let tasks = start(kit, faults, clock);
        let died = tokio::select! {
            () = faults.death() => true,
            () = done.notified() => false,
        };
        tasks.stop(Duration::from_secs(20)).await;
        // Who comes next starts from what is there: what was asked for before must not come true after its first look.
        faults.answered().await;
        if !died {
            return lives;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_survives_everything() {
    let (faults, seed) = Faults::new();
    let kit = Kit::new().await;
    scheduler(&kit).await;
    let created = witness(&kit, kit.api(), |pod: &Pod| {
        let hash = pod.labels().get("pod-template-hash").or_else(|| pod.labels().get("controller-revision-hash"));
        hash.cloned().unwrap_or_default()
    })
    .await;

    let done = Notify::new();
    let work = async {
        prepare(&kit, &faults).await;
        kit.create::<Deployment>(deployment("web", 5, "v1")).await;
        let mut set = deployment("db", 3, "v1");
        set["spec"]["serviceName"] = "db".into();
        kit.create::<StatefulSet>(set).await;
        for image in ["v1", "v2"] {
            if image == "v2" {
                let change =
                    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } });
                let patch = kube::api::Patch::Strategic(change);
                kit.api::<Deployment>().patch("web", &Default::default(), &patch).await.unwrap();
                kit.api::<StatefulSet>().patch("db", &Default::default(), &patch).await.unwrap();
            }
            kit.until_pods("all pods of the rollout", |pods| {
                let of = |app: &str| {
                    let all: Vec<_> =
                        pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|a| a == app)).collect();
                    let right = all.iter().all(|pod| {
                        is_ready(pod) && pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some(image)
                    });
                    if right { all.len() } else { 0 }
                };
                of("web") == 5 && of("db") == 3
            })
            .await;
        }
        done.notify_one();
    };
    let clock = Clock::default();
    let (lives, ()) = tokio::join!(live_and_die(&kit, &faults, &clock, &done), work);
    println!("the controllers lived {lives} times");
    let made = numbers(created.clone(), 16).await;
    assert_eq!(made, [3, 3, 5, 5], "FERRY_SEED={seed}: pods by template {:#?}", created.borrow());
    kit.stop().await;
}

fn task(run_for: &str) -> Value {
    json!({
        "metadata": { "annotations": { ferry_simulator::annotation::RUN_FOR: run_for } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_jobs_and_schedules_survive_everything() {
    const HOUR: i64 = 3600;
    let (faults, seed) = Faults::new();
    let kit = Kit::new().await;
    scheduler(&kit).await;
    let pods = witness(&kit, kit.api(), |pod: &Pod| {
        let labels = ["controller-revision-hash", "batch.kubernetes.io/job-name"];
        labels.iter().find_map(|label| pod.labels().get(*label)).cloned().unwrap_or_default()
    })
    .await;
    let jobs = witness(&kit, kit.api(), |job: &Job| job.name_any()).await;
    let seconds = Arc::new(AtomicI64::new(Timestamp::now().as_second()));
    let hand = seconds.clone();
    let clock = Clock::new(move || Timestamp::from_second(hand.load(Ordering::SeqCst)).unwrap());

    let done = Notify::new();
    let work = async {
        prepare(&kit, &faults).await;
        let mut daemon = deployment("agent", 1, "v1");
        daemon["spec"].as_object_mut().unwrap().remove("replicas");
        kit.create::<DaemonSet>(daemon).await;
        let spec = json!({ "completions": 6, "parallelism": 3, "template": task("0s") });
        kit.create::<Job>(json!({ "metadata": { "name": "work" }, "spec": spec.clone() })).await;
        let mut indexed = spec;
        indexed["completionMode"] = "Indexed".into();
        kit.create::<Job>(json!({ "metadata": { "name": "indexed" }, "spec": indexed })).await;
        // What has ended goes at once: nothing but the status tells what was started.
        let cron = json!({ "metadata": { "name": "hourly" }, "spec": {
            "schedule": "0 * * * *", "successfulJobsHistoryLimit": 0,
            "jobTemplate": { "spec": { "template": task("0s") } },
        } });
        // Schedules count from when the server says that they were made: in each hour from then on falls one time.
        let made = kit.create::<CronJob>(cron).await.metadata.creation_timestamp.unwrap();
        seconds.store(made.0.as_second(), Ordering::SeqCst);
        for turn in 1..=3 {
            seconds.fetch_add(HOUR, Ordering::SeqCst);
            let touch = json!({ "metadata": { "annotations": { "turn": turn.to_string() } } });
            let touch = kube::api::Patch::Merge(touch);
            kit.api::<CronJob>().patch("hourly", &Default::default(), &touch).await.unwrap();
            kit.until(kit.api::<CronJob>(), "the time's job come and gone", |all| {
                let status = all[0].status.clone().unwrap_or_default();
                let last = status.last_schedule_time.map_or(0, |time| time.0.as_second());
                let now = seconds.load(Ordering::SeqCst);
                last > now - HOUR && last <= now && status.active.unwrap_or_default().is_empty()
            })
            .await;
        }
        let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "v2" }] } } } });
        let image = kube::api::Patch::Strategic(image);
        kit.until_pods("daemons on all nodes", |pods| {
            pods.iter().filter(|pod| pod.labels().contains_key("app") && is_ready(pod)).count() == 3
        })
        .await;
        kit.api::<DaemonSet>().patch("agent", &Default::default(), &image).await.unwrap();
        kit.until_pods("new daemons on all nodes", |pods| {
            let daemons: Vec<_> = pods.iter().filter(|pod| pod.labels().contains_key("app")).collect();
            let new = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("v2");
            daemons.len() == 3 && daemons.iter().all(|pod| is_ready(pod) && new(pod))
        })
        .await;
        let ended = kit
            .until(kit.api::<Job>(), "complete jobs, and none of the schedule", |all| {
                let complete = |job: &Job| {
                    let conditions = job.status.as_ref().and_then(|status| status.conditions.clone());
                    conditions.unwrap_or_default().iter().any(|one| one.type_ == "Complete" && one.status == "True")
                };
                all.len() == 2 && all.iter().all(|job| complete(job))
            })
            .await;
        for job in ended {
            let status = job.status.clone().unwrap();
            let counts = (status.succeeded, status.failed.unwrap_or_default(), status.active.unwrap_or_default());
            assert_eq!(counts, (Some(6), 0, 0), "FERRY_SEED={seed}: {}", job.name_any());
        }
        done.notify_one();
    };
    let (lives, ()) = tokio::join!(live_and_die(&kit, &faults, &clock, &done), work);
    println!("the controllers lived {lives} times");
    // Three jobs of the schedule with a pod each, daemons before and after, and the jobs of six.
    let made = numbers(pods.clone(), 21).await;
    assert_eq!(made, [1, 1, 1, 3, 3, 6, 6], "FERRY_SEED={seed}: pods {:#?} jobs {:#?}", pods.borrow(), jobs.borrow());
    let made = numbers(jobs.clone(), 5).await;
    assert_eq!(made, [1; 5], "FERRY_SEED={seed}: jobs {:#?}", jobs.borrow());
    kit.stop().await;
}

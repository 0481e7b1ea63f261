use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn failures(tasks: &Tasks) -> Vec<String> {
    tasks.health().into_iter().filter(|health| health.failure.is_some()).map(|health| health.name).collect()
}

#[tokio::test]
async fn what_panics_starts_again_until_it_ends_by_itself() {
    let tasks = Tasks::new("test");
    let lives = Arc::new(AtomicUsize::new(0));
    let count = lives.clone();
    let ended = tasks.spawn_restarted("mortal", move || {
        let life = count.fetch_add(1, Ordering::SeqCst);
        async move { assert!(life >= 1, "life {life} ends in a panic") }
    });
    assert!(ended.await.is_ok());
    assert_eq!(lives.load(Ordering::SeqCst), 2);
    assert!(tasks.health().is_empty(), "one of many is not missed");
    assert!(tasks.stop(LONG).await);
}

#[tokio::test]
async fn what_starts_again_stops_with_its_group() {
    let tasks = Tasks::new("test");
    tasks.spawn_restarted("for ever", std::future::pending);
    tasks.spawn_restarted("never well", || async { panic!("always") });
    tasks.spawn_critical("never made", || -> std::future::Ready<()> { panic!("always") });
    assert!(tasks.stop(LONG).await);
    assert!(tasks.health().is_empty());
}

#[tokio::test]
async fn a_panic_ends_its_own_task_only() {
    let tasks = Tasks::new("tests");
    let (heard, hears) = tokio::sync::oneshot::channel();
    tasks.spawn("falls", async { panic!("on purpose") }).await.expect("the panic stays inside");
    tasks.spawn("stands", async move { heard.send(()).expect("heard") });
    hears.await.expect("the other task ran");
    assert!(tasks.stop(LONG).await);
}

/// Tells when it ends, which takes a while.
fn slow(tasks: &Tasks, name: &'static str, order: &Arc<Mutex<Vec<&'static str>>>) {
    let (stopping, order) = (tasks.stopping(), order.clone());
    tasks.spawn(name, async move {
        stopping.cancelled().await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        order.lock().push(name);
    });
}

#[tokio::test]
async fn who_stops_waits_for_all_below_the_newest_first() {
    let root = Tasks::new("root");
    let order = Arc::default();
    slow(&root, "root", &order);
    let first = root.child("first");
    slow(&first, "first", &order);
    // Nobody holds a handle to these: their tasks do.
    slow(&first.child("below"), "grandchild", &order);
    slow(&first.child("below").child("further below"), "great-grandchild", &order);
    slow(&root.child("second"), "second", &order);
    drop(first);
    assert!(root.stop(LONG).await);
    assert_eq!(*order.lock(), ["second", "great-grandchild", "grandchild", "first", "root"]);
}

#[tokio::test]
async fn who_does_not_stop_in_time_is_told_of_and_the_rest_is_told_to_stop() {
    let root = Tasks::new("root");
    let (first, second) = (root.child("first"), root.child("second"));
    second.spawn("stubborn", std::future::pending());
    assert!(!root.stop(Duration::from_millis(10)).await);
    assert!(first.stopping().is_cancelled() && root.stopping().is_cancelled());
}

#[tokio::test]
async fn groups_that_are_gone_are_not_kept() {
    let root = Tasks::new("root");
    for _ in 0..1000 {
        drop(root.child("short"));
    }
    let kept = root.child("kept");
    assert_eq!(root.children().len(), 1);
    assert!(root.0.children_known() < 100);
    drop(kept);
    assert!(root.stop(LONG).await);
}

#[tokio::test]
async fn critical_tasks_are_started_again_and_missed_until_they_run() {
    let root = Tasks::new("root");
    let group = root.child("group");
    let (falls, lives) = (Arc::new(tokio::sync::Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (notified, count) = (falls.clone(), lives.clone());
    group.spawn_critical("loop", move || {
        let (notified, life) = (notified.clone(), count.fetch_add(1, Ordering::SeqCst));
        async move {
            notified.notified().await;
            // An end by itself is not expected either.
            assert!(life % 2 == 1, "on purpose");
        }
    });
    let until = async |expected: &[&str]| {
        while failures(&root) != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    for life in 1..3 {
        until(&[]).await;
        assert_eq!(root.health(), [Health { name: "task/group/loop".into(), failure: None }]);
        falls.notify_one();
        until(&["task/group/loop"]).await;
        assert_eq!(lives.load(Ordering::SeqCst), life);
        assert!(root.failure().is_some_and(|why| why.starts_with("task/group/loop: it ")), "{:?}", root.failure());
    }
    let begin = tokio::time::Instant::now();
    until(&[]).await;
    assert!(begin.elapsed() > Duration::from_millis(1500), "the pauses become longer");
    assert!(root.stop(LONG).await);
}

#[tokio::test]
async fn what_cannot_be_made_again_is_missed_for_good() {
    let root = Tasks::new("root");
    let group = root.child("group");
    group.spawn_critical_once("listener", async { panic!("on purpose") });
    group.spawn_critical_once("other", std::future::pending());
    while failures(&root).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(failures(&root), ["task/group/listener"]);
    assert_eq!(root.failure().as_deref(), Some("task/group/listener: it panicked: on purpose"));
    assert!(root.stop(LONG).await, "what failed does not hold up the end");
}

fn other_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("other")
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn groups_run_on_the_runtime_they_were_given() {
    let (here, there) = (other_runtime(), other_runtime());
    let id = there.handle().id();
    here.block_on(async {
        let root = Tasks::new("root");
        let group = root.child_on("other", there.handle().clone()).child("below");
        let found = group.run("look", async { tokio::runtime::Handle::current().id() }).await;
        assert_eq!(found, Ok(id));
        assert_eq!(group.run("falls", async { panic!("on purpose") }).await, Err::<(), _>(Ended));
        assert!(root.stop(LONG).await);
        assert_eq!(group.run("late", std::future::pending::<()>()).await, Err(Ended));
    });
}

#[test]
fn the_watchdog_names_a_runtime_whose_worker_stands_still() {
    let (here, there) = (other_runtime(), other_runtime());
    let (goes_on, waits) = std::sync::mpsc::channel::<()>();
    here.block_on(async {
        let root = Tasks::new("root");
        root.watch_runtime("here", here.handle());
        root.watch_runtime("there", there.handle());
        let until = async |expected: &[&str]| {
            let wait = async {
                while failures(&root) != expected {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{:?}", root.health()));
        };
        // One that is busy all the time gets on; one that is blocked does not.
        let busy = root.child("busy");
        busy.spawn_until_stopped("busy", async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        root.child_on("there", there.handle().clone()).spawn("blocks", async move {
            let _ = waits.recv();
        });
        until(&["runtime/there"]).await;
        let text = root.runtime_metrics();
        assert!(text.contains("ferry_runtime_stalled_workers{runtime=\"there\"} 1\n"), "{text}");
        assert!(text.contains("ferry_runtime_stalled_workers{runtime=\"here\"} 0\n"), "{text}");
        drop(goes_on);
        until(&[]).await;
        assert!(root.runtime_metrics().contains("ferry_runtime_stalls_total{runtime=\"there\"} 1\n"));
        assert!(root.stop(LONG).await);
    });
}

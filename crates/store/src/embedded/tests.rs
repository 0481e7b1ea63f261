//! The embedded engine beyond the suite: restarts, damaged and foreign folders, slow watchers.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use proptest::test_runner::{Config, TestRunner};

use super::backup::AHEAD;
use super::{EmbeddedStore, Options};
use crate::conformance::{self, Corner, model};
use crate::{Op, Range, Store, StoreError, Transaction, WatchRequest};

fn open(path: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(path, Options::default()).expect("open")
}

async fn create(store: &EmbeddedStore, name: &str) -> u64 {
    let key = format!("/registry/things/{name}");
    let op = Op::Create { key, value: Bytes::from_static(b"{}"), lease: None };
    store.commit(Transaction::one(op)).await.expect("create").revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    let folder = tempfile::tempdir().expect("folder");
    let options = Options { progress_interval: std::time::Duration::from_millis(50), ..Options::default() };
    conformance::run(EmbeddedStore::open(folder.path(), options).expect("open")).await;
}

#[test]
fn agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&crate::steps::steps(40, true), |steps| {
        let folder = tempfile::tempdir().expect("folder");
        let corner = Corner::new(open(folder.path()), "model");
        let path = folder.path().to_owned();
        runtime.block_on(model::check(corner, &steps, |store| {
            drop(store);
            let opened: Arc<dyn Store> = open(&path);
            std::future::ready(opened)
        }));
        Ok(())
    });
    outcome.expect("the engine and the model differ");
}

#[tokio::test]
async fn a_restart_keeps_state_history_and_leases() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    let first = create(&store, "a").await;
    let lease = store.grant_lease(1000).await.expect("lease");
    let leased = Op::Create { key: "/registry/things/leased".into(), value: Bytes::new(), lease: Some(lease) };
    store.commit(Transaction::one(leased)).await.expect("create");
    let delete = Op::Delete { key: "/registry/things/a".into(), expected: first };
    let last = store.commit(Transaction::one(delete)).await.expect("delete").revision;
    drop(store);

    let store = open(folder.path());
    assert_eq!(store.revision().await.expect("revision"), last);
    let range = Range { prefix: "/registry/things/".into(), revision: Some(first), ..Range::default() };
    assert_eq!(store.range(range).await.expect("range").entries.len(), 1);
    let request = WatchRequest { prefix: "/registry/".into(), after: first - 1 };
    let mut watch = store.watch(request).await.expect("watch");
    for revision in first..=last {
        assert_eq!(conformance::next(&mut watch).await.expect("batch").revision, revision);
    }
    store.revoke_lease(lease).await.expect("revoke");
    assert!(store.get("/registry/things/leased").await.expect("get").entry.is_none());
    store.compact(last + 1).await.expect("compact");
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.revision().await.expect("revision"), last + 1);
    assert!(matches!(store.compact(last).await, Err(StoreError::Compacted { .. })));
}

/// A crash behind the mark of a compaction leaves what it was to forget: the next one does.
#[tokio::test]
async fn what_an_interrupted_compaction_left_is_forgotten_by_the_next() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    create(&store, "a").await;
    for step in 0..10 {
        let expected = store.revision().await.expect("revision");
        let value = Bytes::from(step.to_string());
        let op = Op::Update { key: "/registry/things/a".into(), value, lease: None, expected };
        store.commit(Transaction::one(op)).await.expect("update");
    }
    let marked = store.revision().await.expect("revision") - 1;
    let disk = store.shared.disk().expect("tables");
    let mut mark = disk.batch();
    mark.compacted(marked);
    disk.write(mark).expect("the mark");
    drop(disk);
    drop(store);

    let store = open(folder.path());
    assert!(matches!(store.compact(marked).await, Err(StoreError::Compacted { .. })), "the mark counts");
    let newest = create(&store, "b").await;
    store.compact(newest).await.expect("compact");
    drop(store);
    let found = EmbeddedStore::check(folder.path()).expect("check");
    assert_eq!((found.objects, found.records, found.compacted), (2, 2, newest));
}

#[tokio::test]
async fn a_slow_watcher_is_dropped() {
    let folder = tempfile::tempdir().expect("folder");
    let options = Options { watch_buffer: 4, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).expect("open");
    let after = store.revision().await.expect("revision");
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after }).await.expect("watch");
    for step in 0..6 {
        create(&store, &step.to_string()).await;
    }
    // The mark, the four that fit, and the end.
    for _ in 0..5 {
        conformance::next(&mut watch).await.expect("what fitted");
    }
    assert!(matches!(conformance::next(&mut watch).await, Err(StoreError::SlowWatcher)));
    assert!(futures::StreamExt::next(&mut watch).await.is_none());
}

#[tokio::test]
async fn folders_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("data");
    let store = open(&path);
    create(&store, "a").await;
    assert!(matches!(EmbeddedStore::open(&path, Options::default()).err(), Some(StoreError::Locked(_))));
    drop(store);

    std::fs::write(path.join("FORMAT"), "ferry-store 9\n").expect("write");
    let error = EmbeddedStore::open(&path, Options::default()).err().expect("refused").to_string();
    assert!(error.contains("ferry-store 9"), "{error}");
    std::fs::write(path.join("FORMAT"), "ferry-store 1\n").expect("write");

    std::fs::rename(path.join("tables"), folder.path().join("aside")).expect("rename");
    let error = EmbeddedStore::open(&path, Options::default()).err().expect("refused");
    assert!(matches!(&error, StoreError::Corrupt(text) if text.contains("tables")), "{error}");
    std::fs::rename(folder.path().join("aside"), path.join("tables")).expect("rename");
    assert!(open(&path).get("/registry/things/a").await.expect("get").entry.is_some());

    let foreign = folder.path().join("foreign");
    std::fs::create_dir(&foreign).expect("create");
    std::fs::write(foreign.join("photo.jpg"), "x").expect("write");
    let error = EmbeddedStore::open(&foreign, Options::default()).err().expect("refused");
    assert!(matches!(error, StoreError::Incompatible { .. }), "{error}");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_serves_reads() {
    let folder = tempfile::tempdir().expect("folder");
    create(&open(folder.path()), "a").await;
    let options = Options { minimum_free_bytes: u64::MAX / 2, ..Options::default() };
    let store = EmbeddedStore::open(folder.path(), options).expect("open");
    let op = Op::Create { key: "/registry/things/b".into(), value: Bytes::new(), lease: None };
    let refused = store.commit(Transaction::one(op)).await;
    assert!(matches!(&refused, Err(error @ StoreError::Unavailable(_)) if error.is_retryable()), "{refused:?}");
    assert!(store.health().await.is_err());
    assert!(store.get("/registry/things/a").await.expect("get").entry.is_some());
}

#[tokio::test]
async fn a_backup_of_a_live_store_becomes_the_same_store() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(&folder.path().join("data"));
    let mut last = 0;
    for step in 0..40 {
        last = create(&store, &format!("{step:02}")).await;
    }
    let lease = store.grant_lease(1000).await.expect("lease");
    for value in ["1", "2", "3"] {
        let (key, value) = ("/registry/things/00".to_owned(), Bytes::from(value));
        let expected = store.get(&key).await.expect("get").entry.expect("entry").modified;
        let op = Op::Update { key, value, expected, lease: Some(lease) };
        last = store.commit(Transaction::one(op)).await.expect("update").revision;
    }
    store.compact(last - 1).await.expect("compact");
    let (sender, changes) = std::sync::mpsc::channel();
    let key = "/registry/things/00";
    store.history(key, move |change| sender.send(change.entry.value.clone()).is_ok()).await.expect("history");
    assert_eq!(changes.iter().collect::<Vec<Bytes>>(), ["2", "3"]);

    let file = folder.path().join("backup");
    let taken = store.backup(&file).await.expect("backup");
    assert_eq!((taken.revision, taken.compacted, taken.objects, taken.records), (last, last - 1, 40, 41));
    create(&store, "later").await;
    let copy = folder.path().join("copy");
    assert_eq!(EmbeddedStore::restore(&file, &copy).expect("restore"), taken);
    let ahead = last + AHEAD;
    let found = EmbeddedStore::check(&copy).expect("check");
    assert_eq!((found.revision, found.compacted, found.objects, found.records), (ahead, ahead, 40, 41));
    let restored = open(&copy);
    assert_eq!(restored.revision().await.expect("revision"), ahead);
    assert_eq!(restored.get("/registry/things/00").await.expect("get").entry.expect("entry").modified, last);
    assert!(matches!(EmbeddedStore::check(&copy), Err(StoreError::Locked(_))));
    // Whoever saw what came after the backup must not wait for revisions that are given a second time.
    for after in [1, last - 1, last, last + 1, ahead - 1] {
        let mut watch = restored.watch(WatchRequest { prefix: "/registry/".into(), after }).await;
        let told = match &mut watch {
            Ok(watch) => conformance::next(watch).await.map(drop),
            Err(error) => Err(error.clone()),
        };
        assert!(matches!(told, Err(StoreError::Compacted { .. })), "after {after}: {told:?}");
    }
    restored.revoke_lease(lease).await.expect("leases are there");
    let again = create(&restored, "again").await;
    assert_eq!(again, ahead + 2);
    restored.compact(again).await.expect("compact");
    assert!(restored.get("/registry/things/00").await.expect("get").entry.is_none());

    let again = EmbeddedStore::restore(&file, &folder.path().join("data"));
    assert!(matches!(again, Err(StoreError::Locked(_))), "{again:?}");
    drop(store);
    let again = EmbeddedStore::restore(&file, &folder.path().join("data"));
    assert!(matches!(again, Err(StoreError::Incompatible { .. })), "{again:?}");
    let content = std::fs::read(&file).expect("read");
    for (name, bytes) in [("cut", &content[..content.len() / 2]), ("empty", &[]), ("other", b"not a backup at all")] {
        let bad = folder.path().join(name);
        std::fs::write(&bad, bytes).expect("write");
        let target = folder.path().join(format!("{name}-target"));
        assert!(EmbeddedStore::restore(&bad, &target).is_err(), "{name}");
        assert!(!target.exists(), "nothing half-made is left: {name}");
    }
    let mut flipped = content.clone();
    flipped[content.len() / 2] ^= 1;
    std::fs::write(&file, flipped).expect("write");
    assert!(matches!(EmbeddedStore::restore(&file, &folder.path().join("x")), Err(StoreError::Corrupt(_))));
    assert!(matches!(EmbeddedStore::check(&folder.path().join("nothing")), Err(StoreError::Incompatible { .. })));
}

async fn update(store: &EmbeddedStore, name: &str, value: &str) -> u64 {
    let key = format!("/registry/things/{name}");
    let expected = store.get(&key).await.expect("get").entry.expect("entry").modified;
    let op = Op::Update { key, value: Bytes::copy_from_slice(value.as_bytes()), expected, lease: None };
    store.commit(Transaction::one(op)).await.expect("update").revision
}

/// Waits until the history before a revision is gone, writing on meanwhile as a cluster does.
async fn until_compacted(store: &EmbeddedStore, first: u64) -> (u64, u64) {
    let range = || Range { prefix: "/registry/".into(), revision: Some(first), ..Range::default() };
    for step in 0..100_000 {
        let newest = update(store, "a", &step.to_string()).await;
        match store.range(range()).await {
            Err(StoreError::Compacted { oldest, .. }) => return (oldest, newest),
            other => drop(other.expect("range")),
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("nothing is ever forgotten");
}

#[tokio::test]
async fn history_is_forgotten_by_itself_and_enough_is_kept() {
    let folder = tempfile::tempdir().expect("folder");
    let milliseconds = std::time::Duration::from_millis;
    let quick = Options {
        compaction_interval: milliseconds(20),
        retention: milliseconds(60),
        retained_revisions: 7,
        ..Options::default()
    };
    let store = EmbeddedStore::open(folder.path(), quick.clone()).expect("open");
    let first = create(&store, "a").await;
    let (oldest, newest) = until_compacted(&store, first).await;
    assert!(oldest + 7 <= newest, "{oldest} {newest}: seven revisions stay");
    // A watch of the oldest kept resumes, also in the next process.
    let kept = newest - 7;
    drop(store);
    let patient = Options { retention: std::time::Duration::from_secs(3600), ..quick };
    let store = EmbeddedStore::open(folder.path(), patient).expect("open");
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: kept }).await.expect("watch");
    for revision in kept + 1..=newest {
        assert_eq!(conformance::next(&mut watch).await.expect("batch").revision, revision);
    }
    // Many intervals later everything since the restart is still there: a restart is no reason to forget sooner.
    let last = update(&store, "a", "last").await;
    for _ in 0..20 {
        tokio::time::sleep(milliseconds(20)).await;
        update(&store, "a", "more").await;
    }
    drop(store.watch(WatchRequest { prefix: "/registry/".into(), after: last }).await.expect("watch"));
    drop(store.watch(WatchRequest { prefix: "/registry/".into(), after: kept }).await.expect("watch"));
}

#[tokio::test]
async fn a_lease_that_ran_out_while_nobody_looked_takes_its_keys() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    let lease = store.grant_lease(1).await.expect("lease");
    let op = Op::Create { key: "/registry/things/leased".into(), value: Bytes::new(), lease: Some(lease) };
    let made = store.commit(Transaction::one(op)).await.expect("create").revision;
    drop(store);
    // It may run out here or after the start: either way the deletion is an event like every other.
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    let store = open(folder.path());
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: made }).await.expect("watch");
    let gone = loop {
        let batch = conformance::next(&mut watch).await.expect("batch");
        if let Some(event) = batch.events.first() {
            break event.clone();
        }
    };
    assert_eq!((gone.kind, &*gone.entry.key), (crate::EventKind::Delete, "/registry/things/leased"));
    assert!(matches!(store.revoke_lease(lease).await, Err(StoreError::UnknownLease(_))));
}

/// Whoever hung up while the disk was slow made room for more: what waits in memory had no end.
#[tokio::test]
async fn who_hangs_up_keeps_the_place_in_the_queue_until_the_write_is_done() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    let all = store.permits.available_permits();
    {
        // The committer waits for this.
        let _state = store.shared.state.write();
        for number in 0..3 {
            let op = Op::Create { key: format!("/registry/things/{number}"), value: Bytes::new(), lease: None };
            assert!(futures::FutureExt::now_or_never(store.commit(Transaction::one(op))).is_none());
        }
        assert_eq!(store.permits.available_permits(), all - 3);
    }
    let everybody = u32::try_from(all).expect("a number");
    drop(store.permits.acquire_many(everybody).await.expect("open"));
    assert!(store.get("/registry/things/2").await.expect("get").entry.is_some());
}

/// A compaction may take long. Who asks for a backup meanwhile waits for it, and does not keep a thread of the server.
#[tokio::test]
async fn what_waits_for_a_compaction_holds_up_nobody_else() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(&folder.path().join("data"));
    create(&store, "a").await;
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let shared = store.shared.clone();
    let compaction = std::thread::spawn(move || {
        let _compacting = shared.compacting.lock();
        held.send(()).expect("somebody waits");
        released.recv_timeout(std::time::Duration::from_secs(20)).is_ok()
    });
    is_held.recv().expect("a compaction");
    let target = folder.path().join("backup");
    let mut backup = Box::pin(store.backup(&target));
    let mut check = Box::pin(store.check_live());
    let mut history = Box::pin(store.history("/registry/things/a", |_| true));
    assert!(futures::poll!(&mut backup).is_pending());
    assert!(futures::poll!(&mut check).is_pending());
    assert!(futures::poll!(&mut history).is_pending());
    let _ = release.send(());
    assert!(compaction.join().expect("it ends"), "this thread waited for the compaction");
    assert_eq!(backup.await.expect("backup").objects, 1);
    assert_eq!(check.await.expect("check").objects, 1);
    history.await.expect("history");
}

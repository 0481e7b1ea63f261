//! From the embedded engine to a real etcd and back: every key, every change of the past and every lease.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::server::{Server, connect, options};
use super::{DatabaseFile, Replay, leases_left, snapshot, write_database};
use crate::conformance;
use crate::migration::{Past, compare, digest};
use crate::{EmbeddedStore, Op, Options, Range, Revision, StoppedStore, Store, StoreError, Transaction, WatchRequest};

const PREFIX: &str = "/registry";

fn key(number: usize) -> String {
    format!("/registry/things/default/t{number:04}")
}

/// Values that make every kind of page: some fit many times into one, some need several.
fn value(number: usize, step: usize) -> Bytes {
    let length = match number % 11 {
        0 => 9000,
        1 => 0,
        2 => 3000,
        _ => 60,
    };
    Bytes::from(vec![u8::try_from((number * 7 + step) % 251).expect("small"); length])
}

async fn put(store: &dyn Store, number: usize, step: usize, lease: Option<i64>) -> Revision {
    let found = store.get(&key(number)).await.expect("get").entry;
    let (key, value) = (key(number), value(number, step));
    let op = match found {
        None => Op::Create { key, value, lease },
        Some(entry) => Op::Update { key, value, expected: entry.modified, lease },
    };
    store.commit(Transaction::one(op)).await.expect("written").revision
}

async fn delete(store: &dyn Store, number: usize) {
    let entry = store.get(&key(number)).await.expect("get").entry.expect("there");
    let op = Op::Delete { key: key(number), expected: entry.modified };
    store.commit(Transaction::one(op)).await.expect("deleted");
}

/// A store with a past of which some is compacted: keys that changed, that went, that came again, several in one
/// transaction, and two with a lease.
async fn fill(folder: &Path, objects: usize) -> Revision {
    let options = Options { sync: false, ..Options::default() };
    let store = EmbeddedStore::open(folder, options).expect("open");
    let lease = store.grant_lease(3000).await.expect("lease");
    for number in 0..objects {
        put(&*store, number, 0, (number == 3).then_some(lease)).await;
    }
    for number in (0..objects).step_by(3) {
        put(&*store, number, 1, (number == 3).then_some(lease)).await;
    }
    delete(&*store, 4).await;
    delete(&*store, 5).await;
    put(&*store, 5, 2, None).await;
    let compacted = store.revision().await.expect("revision");
    store.compact(compacted).await.expect("compacted");
    for number in 0..objects / 2 {
        if number != 4 {
            put(&*store, number, 3, None).await;
        }
    }
    delete(&*store, 7).await;
    let ops =
        [objects, objects + 1].map(|number| Op::Create { key: key(number), value: value(number, 0), lease: None });
    store.commit(Transaction { ops: ops.into() }).await.expect("both");
    put(&*store, 7, 4, Some(lease)).await;
    delete(&*store, 8).await;
    compacted
}

/// All that a watch from the compacted revision on tells, up to the newest.
async fn past_of(
    store: &dyn Store,
    after: Revision,
    newest: Revision,
) -> Vec<(Revision, String, Bytes, Option<Bytes>)> {
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after }).await.expect("watch");
    let mut seen = Vec::new();
    let mut reached = after;
    while reached < newest {
        let batch = conformance::next(&mut watch).await.expect("batch");
        for event in batch.events {
            let previous = event.previous.map(|entry| entry.value);
            seen.push((event.entry.modified, event.entry.key.to_string(), event.entry.value, previous));
        }
        reached = batch.revision;
    }
    seen
}

fn reopen(folder: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(folder, Options { sync: false, ..Options::default() }).expect("open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_file_has_everything_and_etcd_goes_on_with_it() {
    let folder = tempfile::tempdir().expect("folder");
    let (path, file) = (folder.path().join("store"), folder.path().join("db"));
    let compacted = fill(&path, 900).await;
    let source = StoppedStore::open(&path).expect("stopped");
    let found = digest(&source).expect("digest");
    write_database(&source, PREFIX, &file).expect("written");
    assert!(write_database(&source, PREFIX, &file).is_err(), "what is there stays");
    let copy = DatabaseFile::open(&file, PREFIX).expect("file");
    assert_eq!(digest(&copy).expect("digest"), found);
    let told = |past: &dyn Past| {
        let outline = past.outline().expect("outline");
        (outline.revision, outline.compacted, outline.leases.into_keys().collect::<Vec<_>>())
    };
    assert_eq!(told(&copy), told(&source));

    let server = Server::start_with(&file);
    let etcd = connect(&server).await;
    let outline = source.outline().expect("outline");
    assert_eq!(etcd.revision().await.expect("revision"), outline.revision);
    assert_eq!(compare(&source, &*etcd).await.expect("the same"), found.objects);
    drop(source);
    let embedded = reopen(&path);
    assert_eq!(
        past_of(&*etcd, compacted, outline.revision).await,
        past_of(&*embedded, compacted, outline.revision).await
    );
    let old = Range { prefix: "/registry/".into(), revision: Some(compacted - 1), ..Range::default() };
    assert!(matches!(etcd.range(old).await, Err(StoreError::Compacted { .. })));
    drop(embedded);

    // etcd changes the file as it pleases: it grows, shrinks, is compacted and defragmented.
    for number in 0..900 {
        if ![4, 8].contains(&number) {
            delete(&*etcd, number).await;
        }
    }
    for number in 0..300 {
        put(&*etcd, number, 9, None).await;
    }
    let newest = etcd.revision().await.expect("revision");
    etcd.compact(newest).await.expect("compact");
    snapshot::defragment(&server.url, None).await.expect("defragment");
    assert_eq!(
        etcd.range(Range { prefix: "/registry/".into(), ..Range::default() }).await.expect("range").entries.len(),
        302
    );

    // And back.
    let snapshot_file = folder.path().join("snapshot");
    snapshot::save(&server.url, None, &snapshot_file).await.expect("snapshot");
    let past = DatabaseFile::open(&snapshot_file, PREFIX).expect("file");
    let leases: Vec<i64> = past.leases().expect("leases").into_keys().collect();
    assert_eq!(leases.len(), 1);
    let left = leases_left(&options(&[&server.url]), leases.clone()).await.expect("left");
    assert!(left[&leases[0]] <= 3000 && left[&leases[0]] > 2000, "{left:?}");
    let past = past.with_leases_left(left);
    let target = folder.path().join("back");
    EmbeddedStore::import(&target, &past).expect("import");
    assert!(EmbeddedStore::import(&target, &past).is_err(), "a store that is there stays");
    let copy = StoppedStore::open(&target).expect("stopped");
    assert_eq!(digest(&copy).expect("digest"), digest(&past).expect("digest"));
    assert_eq!(copy.outline().expect("outline").revision, newest);
    drop(copy);
    let embedded = reopen(&target);
    compare(&past, &*embedded).await.expect("the same");
    assert_eq!(put(&*embedded, 1, 20, None).await, newest + 1, "revisions go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_keeps_revisions_goes_on_when_cut_off_and_refuses_a_used_etcd() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("store");
    let compacted = fill(&path, 60).await;
    let source = StoppedStore::open(&path).expect("stopped");
    let found = digest(&source).expect("digest");
    let server = Server::start();
    let etcd = connect(&server).await;
    let replay = Replay::new(&options(&[&server.url]), &source).expect("read");
    // Cut off over and over, at moments that are etcd's to choose: each run gets a little further.
    let newest = source.outline().expect("outline").revision;
    let mut patience = 5;
    while tokio::time::timeout(std::time::Duration::from_millis(patience), replay.run(|_, _| {})).await.is_err() {
        patience += 5;
    }
    assert_eq!(etcd.revision().await.expect("revision"), newest);
    assert_eq!(compare(&source, &*etcd).await.expect("the same"), found.objects);
    replay.finish().await.expect("finished");
    assert_eq!(etcd.revision().await.expect("revision"), newest + 1, "it never goes back");
    assert_eq!(compare(&source, &*etcd).await.expect("the same"), found.objects);
    let told = past_of(&*etcd, compacted, newest).await;
    drop(source);
    assert_eq!(told, past_of(&*reopen(&path), compacted, newest).await);

    let source = StoppedStore::open(&path).expect("stopped");
    let replay = Replay::new(&options(&[&server.url]), &source).expect("read");
    let refused = replay.run(|_, _| {}).await;
    assert!(
        matches!(&refused, Err(StoreError::Incompatible { why, .. }) if why.contains("was written to")),
        "{refused:?}"
    );

    // Of another source, or with somebody else's writes in between, it does not go on.
    let other = Server::start();
    connect(&other).await;
    let replay = Replay::new(&options(&[&other.url]), &source).expect("read");
    let _ = tokio::time::timeout(std::time::Duration::from_millis(20), replay.run(|_, _| {})).await;
    put(&*connect(&other).await, 1, 1, None).await;
    let refused = replay.run(|_, _| {}).await;
    assert!(matches!(&refused, Err(StoreError::Incompatible { .. })), "{refused:?}");
}

//! The bugs of etcd's robustness table that need members that are killed, paused or late; the others are in the conformance suite. What
//! is tested is the engine together with the etcd that is installed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;

use super::server::{Server, connect, open, options, until_up};
use super::{EtcdStore, snapshot};
use crate::{Op, Range, Revision, Store, StoreError, Transaction, WatchRequest, conformance};

const WRITERS: usize = 6;
const PREFIX: &str = "/registry/robust/";

fn key(writer: usize, number: usize) -> String {
    format!("{PREFIX}{writer}-{number:06}")
}

/// What was acknowledged, by key.
type Acknowledged = BTreeMap<String, Revision>;

/// Creates keys until it is told to stop; what is not acknowledged may or may not be there.
async fn write(store: Arc<EtcdStore>, writer: usize, begin: usize, stop: Arc<AtomicBool>) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    for number in begin.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = key(writer, number);
        let op = Op::Create { key: key.clone(), value: Bytes::from(vec![b'x'; 1000]), lease: None };
        match store.commit(Transaction::one(op)).await {
            Ok(commit) => drop(acknowledged.insert(key, commit.revision)),
            Err(StoreError::Unavailable(_) | StoreError::Undecided(_)) => {
                tokio::time::sleep(Duration::from_millis(5)).await
            }
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// Writers through `stores`, one after the other, while `befall` runs.
async fn under_load(stores: &[Arc<EtcdStore>], begin: usize, befall: impl Future<Output = ()>) -> Acknowledged {
    let stop = Arc::new(AtomicBool::new(false));
    let writers = (0..WRITERS).map(|writer| write(stores[writer % stores.len()].clone(), writer, begin, stop.clone()));
    let (all, ()) = futures::join!(futures::future::join_all(writers), async {
        befall.await;
        stop.store(true, Ordering::Relaxed);
    });
    all.into_iter().flatten().collect()
}

async fn entries(store: &EtcdStore, revision: Option<Revision>) -> (Revision, BTreeMap<String, (Revision, Bytes)>) {
    let range = Range { prefix: PREFIX.into(), revision, ..Range::default() };
    let found = store.range(range).await.expect("range");
    let entry = |entry: crate::Entry| (entry.key.to_string(), (entry.modified, entry.value));
    (found.revision, found.entries.into_iter().map(entry).collect())
}

async fn check(store: &EtcdStore, acknowledged: &Acknowledged) {
    let (_, there) = entries(store, None).await;
    for (key, revision) in acknowledged {
        assert_eq!(there.get(key).map(|(modified, _)| modified), Some(revision), "{key} was acknowledged");
    }
}

async fn moment(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Issues 14370, 17780 and 20271: a single member that is killed under load, also in the middle of a compaction, has everything that it
/// acknowledged, starts again, and its revision never goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_member_that_is_killed_loses_nothing() {
    let mut server = Server::start();
    let store = connect(&server).await;
    let (mut acknowledged, mut newest) = (Acknowledged::new(), 0);
    for round in 0..4 {
        let before = store.revision().await.expect("revision");
        assert!(before >= newest, "the revision went back from {newest} to {before}");
        let written = under_load(std::slice::from_ref(&store), round * 1_000_000, async {
            moment(250).await;
            let compaction = store.compact(before);
            let kill = async {
                moment(round as u64).await;
                server.kill();
            };
            let _ = futures::join!(compaction, kill);
        });
        acknowledged.extend(written.await);
        newest = acknowledged.values().copied().max().unwrap_or(newest);
        server.start_again();
        until_up(&store).await;
        check(&store, &acknowledged).await;
    }
    assert!(acknowledged.len() > 100, "the writers got to write: {}", acknowledged.len());
}

/// Each member by itself.
async fn stores(members: &[Server]) -> Vec<Arc<EtcdStore>> {
    let mut stores = Vec::new();
    for member in members {
        let store = open(options(&[&member.url])).await;
        until_up(&store).await;
        stores.push(store);
    }
    stores
}

/// All members tell the same at the same revision.
async fn agree(stores: &[Arc<EtcdStore>], acknowledged: &Acknowledged) {
    for store in stores {
        until_up(store).await;
        check(store, acknowledged).await;
    }
    let revision = stores[0].revision().await.expect("revision");
    let (_, first) = entries(&stores[0], Some(revision)).await;
    for store in &stores[1..] {
        assert!(entries(store, Some(revision)).await.1 == first, "two members differ at {revision}");
    }
}

/// Issues 13766 and 14685: members that are killed under load, also while they defragment, agree with the others when they are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::needless_range_loop, reason = "the number of the round is that of the member")]
async fn members_that_are_killed_agree_with_the_others() {
    let mut members = Server::cluster();
    let stores = stores(&members).await;
    let mut acknowledged = Acknowledged::new();
    for round in 0..3 {
        let written = under_load(&stores, round * 1_000_000, async {
            moment(200).await;
            let url = members[round].url.clone();
            let defragmenting = snapshot::defragment(&url, None);
            let kill = async {
                moment(2 * round as u64).await;
                members[round].kill();
            };
            let _ = futures::join!(defragmenting, kill);
            moment(200).await;
            members[round].start_again();
            moment(200).await;
        });
        acknowledged.extend(written.await);
        agree(&stores, &acknowledged).await;
    }
    assert!(acknowledged.len() > 100, "the writers got to write: {}", acknowledged.len());
}

/// Issue 20418: a member that was paused while the others went on answers no read with what it had before, however soon it is asked. Issue
/// 15271: nor does a watch that it served go back in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_paused_tells_nothing_old() {
    let members = Server::cluster();
    let stores = stores(&members).await;
    let all = open(options(&members.each_ref().map(|member| member.url.as_str()))).await;
    until_up(&all).await;
    for (round, paused) in members.iter().enumerate() {
        let others = &stores[(round + 1) % stores.len()];
        let after = others.revision().await.expect("revision");
        let request = || WatchRequest { prefix: PREFIX.into(), after };
        // One that stays with the member, and one that may go to another.
        let watches = [stores[round].watch(request()).await, all.watch(request()).await];
        paused.fall_silent().await;
        let mut revision = None;
        while revision.is_none() {
            let op = Op::Create { key: key(round, 0), value: Bytes::from_static(b"x"), lease: None };
            revision = match others.commit(Transaction::one(op)).await {
                Ok(commit) => Some(commit.revision),
                Err(StoreError::Conflict { current, .. }) => current.map(|entry| entry.modified),
                // It may have been the leader.
                Err(StoreError::Unavailable(_) | StoreError::Undecided(_)) => None,
                Err(other) => panic!("{other}"),
            };
        }
        paused.signal(Signal::CONT);
        let read = loop {
            match stores[round].get(&key(round, 0)).await {
                Ok(got) => break got.entry.map(|entry| entry.modified),
                Err(StoreError::Unavailable(_) | StoreError::Undecided(_)) => moment(5).await,
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(read, revision, "a read through the member that was paused");
        for watch in watches {
            let (mut watch, mut reached) = (watch.expect("watch"), after);
            while Some(reached) < revision {
                let batch = conformance::next(&mut watch).await.expect("batch");
                assert!(batch.revision >= reached, "{} was told after {reached}", batch.revision);
                reached = batch.revision;
            }
        }
    }
}

/// Issue 18055: a member that falls behind again and again, so that it gets one snapshot after the other, comes back each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_gets_snapshots_comes_back() {
    // Few entries are kept, so that whoever was away gets a snapshot.
    let mut members = Server::cluster_with(&["--snapshot-count=30".to_owned()]);
    let stores = stores(&members).await;
    let mut acknowledged = Acknowledged::new();
    for round in 0..3 {
        members[2].kill();
        let written = under_load(&stores[..2], (round + 1) * 1_000_000, moment(800));
        acknowledged.extend(written.await);
        members[2].start_again();
        let written = under_load(&stores[..2], (round + 1) * 2_000_000 + 500_000, moment(300));
        acknowledged.extend(written.await);
    }
    agree(&stores, &acknowledged).await;
}

//! What becomes of requests while etcd elects a leader, and of writes that are put to it twice.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustix::process::Signal;
use tonic::{Code, Status};

use super::api::{Answer, Client};
use super::call::Repeat;
use super::connection::Connection;
use super::members::member_status;
use super::server::{Server, open, options, until_up};
use super::{EtcdOptions, EtcdStore};
use crate::{Op, Revision, Store, StoreError, Transaction, WatchRequest, conformance};

const KEY: &str = "/registry/things/a";

fn create(key: &str) -> Transaction {
    Transaction::one(Op::Create { key: key.into(), value: Bytes::from_static(b"1"), lease: None })
}

fn update(expected: Revision) -> Transaction {
    Transaction::one(Op::Update { key: KEY.into(), value: Bytes::from_static(b"2"), expected, lease: None })
}

async fn leader(members: &[Server]) -> usize {
    loop {
        for (number, member) in members.iter().enumerate() {
            if let Ok(status) = member_status(&member.url, None).await
                && status.leader != 0
                && status.header.is_some_and(|header| header.member_id == status.leader)
            {
                return number;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn over(members: &[&Server]) -> std::sync::Arc<EtcdStore> {
    let urls: Vec<&str> = members.iter().map(|member| member.url.as_str()).collect();
    let store = open(options(&urls)).await;
    until_up(&store).await;
    store
}

/// Reads, and writes of every kind, put to etcd after its leader was killed: all of them are answered by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_the_next_leader() {
    let mut members = Server::cluster();
    let store = over(&members.each_ref()).await;
    let mut revision = store.commit(create(KEY)).await.expect("create").revision;
    for round in 0..3 {
        let killed = leader(&members).await;
        members[killed].kill();
        // The last sign of the leader is too old now for what may be put once only.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let added = format!("/registry/things/b{round}");
        let readers = futures::future::join_all((0..100).map(|_| store.revision()));
        let (read, written, created, lease, newest) = futures::join!(
            store.get(KEY),
            store.commit(update(revision)),
            store.commit(create(&added)),
            store.grant_lease(60),
            readers
        );
        assert!(read.expect("a read").entry.is_some());
        revision = written.expect("an update").revision;
        created.expect("a creation");
        lease.expect("a lease");
        for answer in newest {
            answer.expect("the newest revision");
        }
        let found = store.get(KEY).await.expect("a read").entry.expect("it is there");
        assert_eq!(found.modified, revision, "it was written once, when that was said");
        members[killed].start_again();
        until_up(&*over(&[&members[killed]]).await).await;
    }
}

/// One that stands still keeps its connections: whatever may be put twice is put to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stands_still_is_passed_over() {
    let members = Server::cluster();
    let leads = leader(&members).await;
    let [silent, other] = [(leads + 1) % 3, (leads + 2) % 3];
    let store = over(&[&members[silent], &members[leads], &members[other]]).await;
    let revision = store.commit(create(KEY)).await.expect("create").revision;
    let request = WatchRequest { prefix: "/registry/".into(), after: revision };
    let mut watch = store.watch(request).await.expect("a watch");
    members[silent].fall_silent().await;
    let written = store.commit(update(revision)).await.expect("an update").revision;
    // Reads wait for what they were told of, and the watch has it before the connection is given up.
    assert_eq!(store.revision().await.expect("the newest revision"), written);
    let told = async { while conformance::next(&mut watch).await.expect("a batch").revision < written {} };
    tokio::time::timeout(Duration::from_secs(9), told).await.expect("the change is told");
    members[silent].signal(Signal::CONT);
    // What it was sent is done now, and finds its condition gone.
    until_up(&*over(&[&members[silent]]).await).await;
    let found = store.get(KEY).await.expect("a read").entry.expect("it is there");
    assert_eq!((found.modified, &*found.value), (written, &b"2"[..]));
}

#[tokio::test]
async fn without_a_quorum_the_wait_ends_and_nothing_is_said_to_be_written() {
    let mut members = Server::cluster();
    let leads = leader(&members).await;
    let left = (leads + 1) % 3;
    over(&members.each_ref()).await.commit(create(KEY)).await.expect("create");
    let patience = Duration::from_secs(2);
    let store = open(EtcdOptions { deadline: patience, ..options(&[&members[left].url]) }).await;
    until_up(&store).await;
    members[leads].kill();
    members[(leads + 2) % 3].kill();
    // It notices after a while that nobody leads.
    while store.answers().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let calls = async {
        for outcome in [
            store.revision().await.map(drop),
            store.get(KEY).await.map(drop),
            store.commit(create("/registry/things/b")).await.map(drop),
        ] {
            assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), calls).await.expect("every call ends");
}

/// What each attempt of a write is answered with, in the order in which they are sent.
enum Said {
    Done,
    ConditionGone,
    /// The same, once another attempt was answered.
    DoneLater,
    Broken,
    NotReached,
    Full,
}

/// Puts a write to members that answer as said.
async fn put(repeat: Repeat, said: Vec<Said>) -> crate::Result<bool> {
    let members = options(&["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]);
    let options = EtcdOptions { deadline: Duration::from_millis(2500), ..members };
    let connection = Connection::new(&options).expect("a connection");
    let said = Mutex::new(VecDeque::from(said));
    let send = |_: Client| -> BoxFuture<'static, Answer<bool>> {
        let Some(next) = said.lock().pop_front() else { return std::future::pending().boxed() };
        let later = matches!(next, Said::DoneLater);
        let answer = match next {
            Said::Done | Said::DoneLater => Ok(true),
            Said::ConditionGone => Ok(false),
            Said::Broken => Err(Status::unavailable("broken pipe")),
            Said::NotReached => Err(Status::failed_precondition("etcdserver: rpc not supported for learner")),
            Said::Full => Err(Status::new(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded")),
        };
        async move {
            if later {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            answer
        }
        .boxed()
    };
    connection.ask(repeat, send, |done| *done).await.map_err(|failed| failed.error)
}

#[tokio::test]
async fn a_write_that_is_put_twice_tells_the_truth() {
    use Said::*;
    let guarded = |said| put(Repeat::Guarded, said);
    assert!(guarded(vec![Done]).await.expect("done"));
    assert!(!guarded(vec![ConditionGone]).await.expect("the condition did not hold"));
    assert!(guarded(vec![NotReached, Done]).await.expect("the next member did it"));
    assert!(!guarded(vec![NotReached, ConditionGone]).await.expect("the first did nothing"));
    assert!(guarded(vec![Broken, Done]).await.expect("once: the first had done nothing"));
    assert!(guarded(vec![DoneLater, ConditionGone]).await.expect("the first was the reason"));
    for unknown in [vec![Broken, ConditionGone], vec![Broken, Full], vec![Broken, Broken, Broken], vec![]] {
        let outcome = guarded(unknown).await;
        assert!(matches!(outcome, Err(StoreError::Undecided(_))), "{outcome:?}");
    }
    for nothing in [vec![Full], vec![NotReached, NotReached, NotReached]] {
        let outcome = guarded(nothing).await;
        assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    }
    // What could be done twice is sent again only where nothing was done.
    assert!(put(Repeat::Unsent, vec![NotReached, Done]).await.expect("done"));
    for unknown in [vec![Broken, Done], vec![]] {
        let outcome = put(Repeat::Unsent, unknown).await;
        assert!(matches!(outcome, Err(StoreError::Undecided(_))), "{outcome:?}");
    }
    assert!(put(Repeat::Read, vec![Broken, Broken, Done]).await.expect("a read goes on"));
}

//! The etcd engine on a real etcd, which comes and goes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_tasks::Tasks;
use ferry_testkit::free_port;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use rustix::process::Signal;

use super::server::{Authority, Server, connect, open, options, secure_options, until_up};
use super::{EtcdOptions, EtcdStore, EtcdTls};
use crate::conformance::{self, Corner, model};
use crate::{Op, Range, Store, StoreError, Transaction, WatchRequest};

fn create(name: &str) -> Transaction {
    let key = format!("/registry/things/{name}");
    Transaction::one(Op::Create { key, value: Bytes::from_static(b"k8s\0\x0a\x00"), lease: None })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    let server = Server::start();
    conformance::run(connect(&server).await).await;
}

#[test]
fn agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let server = Server::start();
    let store = runtime.block_on(connect(&server));
    let mut runner = TestRunner::new(Config { cases: 16, failure_persistence: None, ..Config::default() });
    let mut run = 0;
    let steps = crate::steps::steps(30, false);
    for _ in 0..16 {
        let steps = steps.new_tree(&mut runner).expect("steps").current();
        run += 1;
        let corner = Corner::new(store.clone(), &format!("model-{run}"));
        runtime.block_on(model::check(corner, &steps, std::future::ready));
    }
}

#[tokio::test]
async fn an_etcd_that_goes_away_and_comes_back_loses_nothing() {
    let mut server = Server::start();
    let store = connect(&server).await;
    let first = store.commit(create("a")).await.expect("create").revision;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: first - 1 }).await.expect("watch");
    assert_eq!(conformance::next(&mut watch).await.expect("a").revision, first);

    server.kill();
    let refused = store.commit(create("b")).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(_) | StoreError::Undecided(_))), "{refused:?}");
    assert!(matches!(store.get("/registry/things/a").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.revision().await, Err(StoreError::Unavailable(_))));
    assert!(store.health().await.is_err());

    server.start_again();
    until_up(&store).await;
    let second = store.commit(create("c")).await.expect("create").revision;
    // The watch finds its way back, and has no gap.
    loop {
        let batch = conformance::next(&mut watch).await.expect("batch");
        if !batch.events.is_empty() && batch.revision == second {
            break;
        }
        assert!(batch.revision <= second);
    }
    let found = store.range(Range { prefix: "/registry/things/".into(), ..Range::default() }).await.expect("range");
    assert!(found.entries.iter().any(|entry| &*entry.key == "/registry/things/a"));
}

#[tokio::test]
async fn a_watch_that_missed_a_compaction_says_so() {
    let mut server = Server::start();
    let store = connect(&server).await;
    let first = store.commit(create("a")).await.expect("create").revision;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: first }).await.expect("watch");
    conformance::next(&mut watch).await.expect("a mark");
    server.kill();
    server.start_again();
    until_up(&store).await;
    // Not polled meanwhile, the watch is still away when this happens.
    store.commit(create("b")).await.expect("create");
    let last = store.commit(create("c")).await.expect("create").revision;
    store.compact(last).await.expect("compact");
    let lost = conformance::next(&mut watch).await;
    assert!(matches!(lost, Err(StoreError::Compacted { oldest, .. }) if oldest == last), "{lost:?}");
}

/// Follows a watch until a revision has come; every revision on the way must come too, in order.
async fn follow(watch: &mut crate::WatchStream, mut reached: u64, until: u64) {
    while reached < until {
        let batch = conformance::next(watch).await.expect("batch");
        assert!(batch.revision <= reached + 1, "a gap between {reached} and {}", batch.revision);
        reached = reached.max(batch.revision);
    }
}

#[tokio::test]
async fn a_prefix_is_a_store_of_its_own() {
    let server = Server::start();
    let at = |prefix: &str| EtcdOptions { prefix: prefix.into(), ..options(&[&server.url]) };
    let one = open(at("/clusters/one")).await;
    until_up(&one).await;
    let two = open(at("clusters/two/")).await;
    let bare = open(at("/clusters")).await;
    one.commit(create("a")).await.expect("create");
    let first = two.commit(create("a")).await.expect("the same key of another cluster").revision;
    let everything = || Range { prefix: "/registry/".into(), ..Range::default() };
    let keys = async |store: &EtcdStore| {
        let found = store.range(everything()).await.expect("range").entries;
        found.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&one).await, ["/registry/things/a"]);
    assert_eq!(keys(&bare).await, ["/registry/one/things/a", "/registry/two/things/a"]);
    // What happens elsewhere is progress here, and no event.
    let mut watch = one.watch(WatchRequest { prefix: "/registry/".into(), after: first }).await.expect("watch");
    let other = two.commit(create("b")).await.expect("create").revision;
    let own = one.commit(create("c")).await.expect("create").revision;
    let mut seen = Vec::new();
    while seen.is_empty() {
        let batch = conformance::next(&mut watch).await.expect("batch");
        assert!(batch.events.is_empty() || batch.revision != other);
        seen = batch.events;
    }
    assert_eq!((&*seen[0].entry.key, seen[0].entry.modified), ("/registry/things/c", own));
    conformance::run(one).await;
}

#[tokio::test]
async fn certificates_are_shown_and_checked() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Server::secure(&authority);
    let tls = |ca: &Authority, client: Option<&Authority>| EtcdTls {
        certificate_authority: ca.pem(),
        identity: client.map(Authority::identity),
        server_name: None,
    };
    let store = open(secure_options(&server, tls(&authority, Some(&authority)))).await;
    until_up(&store).await;
    let first = store.commit(create("a")).await.expect("create").revision;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: first - 1 }).await.expect("watch");
    assert_eq!(conformance::next(&mut watch).await.expect("a").events.len(), 1);
    for (what, tls) in [
        ("no certificate", tls(&authority, None)),
        ("a stranger's certificate", tls(&authority, Some(&stranger))),
        ("a server that is not trusted", tls(&stranger, Some(&authority))),
    ] {
        let refused = open(secure_options(&server, tls)).await.get("/registry/things/a").await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{what}: {refused:?}");
    }
    let garbage = EtcdTls { identity: Some((b"x".to_vec(), b"y".to_vec())), ..tls(&authority, None) };
    let refused = EtcdStore::connect(secure_options(&server, garbage), &Tasks::new("test")).await;
    assert!(matches!(refused.err(), Some(StoreError::InvalidEndpoint(..))), "a certificate that is none");
}

#[tokio::test]
async fn a_member_that_is_down_is_not_noticed() {
    let mut members = Server::cluster();
    let dead = format!("http://127.0.0.1:{}", free_port());
    let urls = [&dead, &members[0].url, &members[1].url, &members[2].url].map(String::as_str);
    let store = open(options(&urls)).await;
    until_up(&store).await;
    let mut last = store.revision().await.expect("revision");
    let start = last;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: start }).await.expect("watch");
    for number in 0..20 {
        last = store.commit(create(&format!("before-{number}"))).await.expect("create").revision;
    }
    follow(&mut watch, start, last).await;
    let followed = last;
    // Whichever member is asked first, another takes over; while a new leader is elected nobody may write.
    members[0].kill();
    let mut written = 0;
    let mut attempt = 0;
    while written < 20 {
        attempt += 1;
        assert!(attempt < 1000, "two of three members do not serve");
        match store.commit(create(&format!("after-{attempt}"))).await {
            Ok(commit) => (written, last) = (written + 1, commit.revision),
            Err(StoreError::Unavailable(_) | StoreError::Undecided(_)) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
    follow(&mut watch, followed, last).await;
    members[0].start_again();
    store.commit(create("healed")).await.expect("create");
}

#[tokio::test]
async fn an_etcd_that_says_nothing_keeps_nobody_waiting() {
    let server = Server::start();
    until_up(&*connect(&server).await).await;
    let store = open(EtcdOptions { deadline: Duration::from_millis(700), ..options(&[&server.url]) }).await;
    until_up(&store).await;
    let first = store.commit(create("a")).await.expect("create").revision;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: first }).await.expect("watch");
    server.fall_silent().await;
    let calls = async {
        let unavailable = |error: StoreError| assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        unavailable(store.get("/registry/things/a").await.expect_err("get"));
        unavailable(store.commit(create("b")).await.expect_err("commit"));
        unavailable(store.revision().await.expect_err("revision"));
        unavailable(store.health().await.expect_err("health"));
        unavailable(store.grant_lease(10).await.expect_err("lease"));
        unavailable(store.compact(first).await.expect_err("compact"));
        unavailable(store.range(Range { prefix: "/registry/".into(), ..Range::default() }).await.expect_err("range"));
        let request = WatchRequest { prefix: "/registry/".into(), after: first };
        unavailable(store.watch(request).await.err().expect("watch"));
    };
    tokio::time::timeout(Duration::from_secs(60), calls).await.expect("every call ends");
    server.signal(Signal::CONT);
    until_up(&store).await;
    let last = store.commit(create("c")).await.expect("create").revision;
    follow(&mut watch, first, last).await;
}

#[tokio::test]
async fn history_is_forgotten_after_a_while_and_not_before() {
    let server = Server::start();
    let watched = connect(&server).await;
    let first = watched.commit(create("a")).await.expect("create").revision;
    let interval = Some(Duration::from_millis(300));
    let tasks = Tasks::new("test");
    let store: Arc<EtcdStore> =
        EtcdStore::connect(EtcdOptions { compaction_interval: interval, ..options(&[&server.url]) }, &tasks)
            .await
            .expect("connect");
    let at = |revision| Range { prefix: "/registry/".into(), revision: Some(revision), ..Range::default() };
    let mut number = 0;
    let (oldest, newest) = loop {
        number += 1;
        let newest = store.commit(create(&format!("b{number}"))).await.expect("create").revision;
        if let Err(StoreError::Compacted { oldest, .. }) = store.range(at(first)).await {
            break (oldest, newest);
        }
        assert!(number < 10_000, "nothing is ever forgotten");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(first < oldest && oldest < newest, "{first} {oldest} {newest}: the last interval is kept");
    assert!(tasks.stop(Duration::from_secs(10)).await);
}

/// Servers that are killed or rolled often: none of them sees a whole interval.
#[tokio::test]
async fn history_is_forgotten_by_servers_that_are_up_for_less_than_the_interval() {
    let server = Server::start();
    let watched = connect(&server).await;
    let first = watched.commit(create("a")).await.expect("create").revision;
    let options = EtcdOptions { compaction_interval: Some(Duration::from_secs(1)), ..options(&[&server.url]) };
    for number in 0.. {
        assert!(number < 1000, "nothing is ever forgotten");
        let tasks = Tasks::new("test");
        let store = EtcdStore::connect(options.clone(), &tasks).await.expect("connect");
        store.commit(create(&format!("b{number}"))).await.expect("create");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(tasks.stop(Duration::from_secs(10)).await);
        let old = Range { prefix: "/registry/".into(), revision: Some(first), ..Range::default() };
        if let Err(StoreError::Compacted { .. }) = watched.range(old).await {
            break;
        }
    }
}

#[tokio::test]
async fn addresses_that_are_none_are_refused() {
    for (endpoints, prefix) in [(&["http://a b"][..], "/registry"), (&[], "/registry"), (&["http://127.0.0.1:1"], "/")]
    {
        let options = EtcdOptions { prefix: prefix.into(), ..options(endpoints) };
        let refused = EtcdStore::connect(options, &Tasks::new("test")).await.err();
        let typed = matches!(refused, Some(StoreError::InvalidEndpoint(..) | StoreError::InvalidKey { .. }));
        assert!(typed, "{endpoints:?} {prefix}: {refused:?}");
    }
}

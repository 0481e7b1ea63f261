//! What every engine must do. An engine's tests call `run` with a store that nobody else writes to.
//!
//! A case gets a prefix of its own, so that one store serves them all.

mod linearizability;
pub mod model;
mod robustness;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;

use self::linearizability::answers_have_one_order;
use self::robustness::{
    a_deletion_is_not_lost_to_a_compaction, a_mark_never_overtakes_an_event,
    a_watch_is_told_nothing_older_than_it_asked_for, a_watch_that_is_not_read_loses_nothing, every_event_is_told_once,
    what_is_compacted_is_refused_everywhere,
};
use crate::{
    Entry, Event, EventKind, LeaseId, Op, Range, Result, Revision, Store, StoreError, Transaction, WatchRequest,
    WatchStream,
};

/// Long enough for a loaded machine; no case waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store and the corner of it that one case may use.
#[derive(Clone)]
pub struct Corner {
    pub store: Arc<dyn Store>,
    pub prefix: String,
}

type Case = (&'static str, fn(Corner) -> BoxFuture<'static, ()>);

macro_rules! cases {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), |corner| Box::pin($name(corner)))),*] };
}

pub const CASES: &[Case] = cases![
    creates_reads_updates_and_deletes,
    refuses_what_does_not_match,
    transactions_are_all_or_nothing,
    ranges_have_pages_and_a_past,
    watches_have_no_gap,
    compaction_forgets_the_past_alone,
    leases_take_their_keys_along,
    bad_input_is_refused,
    revisions_are_global_and_ordered,
    slow_and_dropped_watches_hurt_nobody,
    answers_have_one_order,
    a_mark_never_overtakes_an_event,
    every_event_is_told_once,
    a_watch_that_is_not_read_loses_nothing,
    a_deletion_is_not_lost_to_a_compaction,
    what_is_compacted_is_refused_everywhere,
    a_watch_is_told_nothing_older_than_it_asked_for,
];

/// Runs every case, one after the other.
pub async fn run(store: Arc<dyn Store>) {
    for (name, case) in CASES {
        let corner = Corner::new(store.clone(), &name.replace('_', "-"));
        tokio::time::timeout(4 * PATIENCE, case(corner)).await.unwrap_or_else(|_| panic!("{name} hangs"));
    }
}

impl Corner {
    pub fn new(store: Arc<dyn Store>, name: &str) -> Self {
        Self { store, prefix: format!("/registry/{name}/") }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    async fn commit(&self, ops: Vec<Op>) -> Result<Revision> {
        Ok(self.store.commit(Transaction { ops }).await?.revision)
    }

    async fn create(&self, name: &str, value: &str) -> Revision {
        self.commit(vec![self.op_create(name, value, None)]).await.expect("create")
    }

    fn op_create(&self, name: &str, value: &str, lease: Option<LeaseId>) -> Op {
        Op::Create { key: self.key(name), value: Bytes::copy_from_slice(value.as_bytes()), lease }
    }

    fn op_update(&self, name: &str, value: &str, expected: Revision) -> Op {
        Op::Update { key: self.key(name), value: Bytes::copy_from_slice(value.as_bytes()), expected, lease: None }
    }

    fn op_delete(&self, name: &str, expected: Revision) -> Op {
        Op::Delete { key: self.key(name), expected }
    }

    async fn get(&self, name: &str) -> Option<Entry> {
        self.store.get(&self.key(name)).await.expect("get").entry
    }

    async fn names(&self, revision: Option<Revision>) -> Result<Vec<(String, String)>> {
        let range = Range { prefix: self.prefix.clone(), revision, ..Range::default() };
        let found = self.store.range(range).await?;
        Ok(found.entries.iter().map(|entry| (self.name_of(&entry.key), text(&entry.value))).collect())
    }

    fn name_of(&self, key: &str) -> String {
        key.strip_prefix(&self.prefix).expect("a key under the prefix").to_owned()
    }

    async fn watch(&self, after: Revision) -> Result<WatchStream> {
        self.store.watch(WatchRequest { prefix: self.prefix.clone(), after }).await
    }

    /// The next events, marks skipped, each as `revision kind name value <- previous`.
    async fn lines(&self, watch: &mut WatchStream, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        let mut newest = 0;
        while lines.len() < count {
            let batch = next(watch).await.expect("a batch");
            assert!(batch.revision >= newest, "revision {} after {newest}", batch.revision);
            assert!(batch.events.is_empty() || batch.revision > newest, "revision {newest} in two batches");
            newest = batch.revision;
            for event in &batch.events {
                assert_eq!(event.entry.modified, batch.revision);
                lines.push(format!("{} {}", batch.revision, self.line(event)));
            }
        }
        lines
    }

    fn line(&self, event: &Event) -> String {
        let kind = match event.kind {
            EventKind::Create => "+",
            EventKind::Update => "~",
            EventKind::Delete => "-",
        };
        let previous = event.previous.as_ref().map_or("none".to_owned(), |previous| {
            assert_eq!(previous.key, event.entry.key);
            text(&previous.value)
        });
        format!("{kind} {} {} <- {previous}", self.name_of(&event.entry.key), text(&event.entry.value))
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// The next batch or error of a watch.
pub async fn next(watch: &mut WatchStream) -> Result<crate::WatchBatch> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch says nothing").expect("the watch ended")
}

async fn creates_reads_updates_and_deletes(at: Corner) {
    assert!(at.get("a").await.is_none());
    let first = at.create("a", "1").await;
    let entry = at.get("a").await.expect("a");
    assert_eq!((text(&entry.value), entry.created, entry.modified, entry.lease), ("1".into(), first, first, None));
    let second = at.commit(vec![at.op_update("a", "2", first)]).await.expect("update");
    let entry = at.get("a").await.expect("a");
    assert_eq!((text(&entry.value), entry.created, entry.modified), ("2".into(), first, second));
    let third = at.commit(vec![at.op_delete("a", second)]).await.expect("delete");
    let got = at.store.get(&at.key("a")).await.expect("get");
    assert!(got.entry.is_none() && got.revision >= third);
    assert!(at.create("a", "3").await > third);
}

async fn refuses_what_does_not_match(at: Corner) {
    let first = at.create("a", "1").await;
    let before = at.store.revision().await.expect("revision");
    let refused = [
        vec![at.op_create("a", "2", None)],
        vec![at.op_update("a", "2", first - 1)],
        vec![at.op_update("a", "2", first + 1)],
        vec![at.op_update("a", "2", 0)],
        vec![at.op_delete("a", first + 1)],
        vec![Op::Check { key: at.key("a"), expected: 0 }],
    ];
    for ops in refused {
        let what = format!("{ops:?}");
        match at.commit(ops).await {
            Err(StoreError::Conflict { key, current }) => {
                assert_eq!(key, at.key("a"), "{what}");
                assert_eq!(current.map(|entry| entry.modified), Some(first), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    for ops in [vec![at.op_update("b", "2", 7)], vec![at.op_delete("b", 0)], vec![at.op_update("b", "2", 0)]] {
        let what = format!("{ops:?}");
        assert!(matches!(at.commit(ops).await, Err(StoreError::Conflict { current: None, .. })), "{what}");
    }
    assert_eq!(at.store.revision().await.expect("revision"), before);
    assert_eq!(at.names(None).await.expect("range"), [("a".to_owned(), "1".to_owned())]);
}

async fn transactions_are_all_or_nothing(at: Corner) {
    let one = at.commit(vec![at.op_create("a", "1", None), at.op_create("b", "1", None)]).await.expect("two keys");
    assert_eq!(at.get("a").await.expect("a").modified, at.get("b").await.expect("b").modified);
    let failed = at.commit(vec![at.op_update("a", "2", one), at.op_update("b", "2", one + 1)]).await;
    assert!(matches!(failed, Err(StoreError::Conflict { key, .. }) if key == at.key("b")));
    assert_eq!(text(&at.get("a").await.expect("a").value), "1");
    let checks = |expected| Op::Check { key: at.key("b"), expected };
    assert!(at.commit(vec![at.op_update("a", "2", one), checks(one + 1)]).await.is_err());
    let two = at.commit(vec![at.op_update("a", "2", one), checks(one)]).await.expect("a true check");
    assert_eq!(at.commit(vec![checks(one)]).await.expect("only a check"), two);
    assert_eq!(at.commit(Vec::new()).await.expect("nothing to do"), two);
    let twice = at.commit(vec![at.op_update("a", "3", two), at.op_delete("a", two)]).await;
    assert!(matches!(twice, Err(StoreError::InvalidKey { .. })));
    assert_eq!(text(&at.get("a").await.expect("a").value), "2");
}

async fn ranges_have_pages_and_a_past(at: Corner) {
    for name in ["n/a", "n/b", "n/c", "o/a"] {
        at.create(name, "1").await;
    }
    let page = |after: Option<&str>, limit| Range {
        prefix: at.key("n/"),
        after: after.map(|name| at.key(name)),
        limit,
        revision: None,
    };
    let first = at.store.range(page(None, 2)).await.expect("page");
    assert_eq!((first.entries.len(), first.more, first.remaining), (2, true, 1));
    let second = at.store.range(page(Some("n/b"), 2)).await.expect("page");
    assert_eq!((second.entries.len(), second.more, second.remaining), (1, false, 0));
    assert_eq!(&*second.entries[0].key, at.key("n/c"));
    assert!(at.store.range(page(Some("n/z"), 0)).await.expect("page").entries.is_empty());

    let past = at.store.revision().await.expect("revision");
    let b = at.get("n/b").await.expect("b").modified;
    let c = at.get("n/c").await.expect("c").modified;
    let updated = at.commit(vec![at.op_update("n/b", "2", b), at.op_delete("n/c", c)]).await.expect("changes");
    at.commit(vec![at.op_update("n/b", "3", updated)]).await.expect("update");
    at.create("n/d", "1").await;
    let show =
        |pairs: Vec<(String, String)>| pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ");
    assert_eq!(show(at.names(Some(past)).await.expect("past")), "n/a=1 n/b=1 n/c=1 o/a=1");
    assert_eq!(show(at.names(Some(updated)).await.expect("past")), "n/a=1 n/b=2 o/a=1");
    assert_eq!(show(at.names(None).await.expect("now")), "n/a=1 n/b=3 n/d=1 o/a=1");
    let newest = at.store.revision().await.expect("revision");
    let future = at.names(Some(newest + 1000)).await;
    assert!(matches!(future, Err(StoreError::Future { requested, .. }) if requested == newest + 1000), "{future:?}");
}

async fn watches_have_no_gap(at: Corner) {
    let start = at.store.revision().await.expect("revision");
    let one = at.create("a", "1").await;
    let two = at.commit(vec![at.op_update("a", "2", one), at.op_create("b", "1", None)]).await.expect("both");
    let mut watch = at.watch(start).await.expect("watch");
    let three = at.commit(vec![at.op_delete("a", two)]).await.expect("delete");
    let outside = Corner { prefix: format!("{}x/", at.prefix.trim_end_matches('/')), ..at.clone() };
    outside.create("other", "1").await;
    let four = at.create("a", "3").await;
    let expected = vec![
        format!("{one} + a 1 <- none"),
        format!("{two} ~ a 2 <- 1"),
        format!("{two} + b 1 <- none"),
        format!("{three} - a  <- 2"),
        format!("{four} + a 3 <- none"),
    ];
    assert_eq!(at.lines(&mut watch, 5).await, expected);
    for (skipped, after) in [(1, one), (3, two), (4, three)] {
        let mut watch = at.watch(after).await.expect("watch");
        assert_eq!(at.lines(&mut watch, 5 - skipped).await, expected[skipped..]);
    }
    let mut watch = at.watch(four).await.expect("watch");
    let mark = next(&mut watch).await.expect("a mark");
    assert!(mark.events.is_empty() && mark.revision >= four);
    // A watch of nothing new is told about progress elsewhere.
    let far = outside.create("another", "1").await;
    while next(&mut watch).await.expect("a mark").revision < far {}
    let future = at.watch(far + 1000).await.err();
    assert!(matches!(future, Some(StoreError::Future { .. })), "{future:?}");
}

async fn compaction_forgets_the_past_alone(at: Corner) {
    let one = at.create("a", "1").await;
    let two = at.commit(vec![at.op_update("a", "2", one)]).await.expect("update");
    let gone = at.create("gone", "1").await;
    let gone = at.commit(vec![at.op_delete("gone", gone)]).await.expect("delete");
    let three = at.commit(vec![at.op_update("a", "3", two)]).await.expect("update");
    at.store.compact(gone).await.expect("compact");
    assert!(matches!(at.names(Some(one)).await, Err(StoreError::Compacted { .. })));
    assert!(matches!(at.watch(one).await.err(), Some(StoreError::Compacted { .. })));
    assert_eq!(at.names(Some(gone)).await.expect("kept"), [("a".to_owned(), "2".to_owned())]);
    assert_eq!(at.names(None).await.expect("now"), [("a".to_owned(), "3".to_owned())]);
    let mut watch = at.watch(gone).await.expect("watch");
    assert_eq!(at.lines(&mut watch, 1).await, [format!("{three} ~ a 3 <- 2")]);
    assert!(matches!(at.store.compact(one).await, Err(StoreError::Compacted { .. })));
    assert!(matches!(at.store.compact(three + 1000).await, Err(StoreError::Future { .. })));
    at.store.compact(three).await.expect("compact to the newest");
    assert_eq!(at.get("a").await.expect("a").created, one);
    assert!(at.commit(vec![at.op_update("a", "4", three)]).await.expect("update") > three);
}

async fn leases_take_their_keys_along(at: Corner) {
    let lease = at.store.grant_lease(3600).await.expect("lease");
    let one =
        at.commit(vec![at.op_create("a", "1", Some(lease)), at.op_create("b", "1", Some(lease))]).await.expect("two");
    assert_eq!(at.get("a").await.expect("a").lease, Some(lease));
    // Written again without it, a key is free of the lease.
    at.commit(vec![at.op_update("b", "2", one)]).await.expect("update");
    let mut watch = at.watch(at.store.revision().await.expect("revision")).await.expect("watch");
    at.store.revoke_lease(lease).await.expect("revoke");
    let lines = at.lines(&mut watch, 1).await;
    assert!(lines[0].ends_with("- a  <- 1"), "{lines:?}");
    assert_eq!(at.names(None).await.expect("range"), [("b".to_owned(), "2".to_owned())]);
    assert!(matches!(at.store.revoke_lease(lease).await, Err(StoreError::UnknownLease(id)) if id == lease));
    let refused = at.commit(vec![at.op_create("c", "1", Some(lease))]).await;
    assert!(matches!(refused, Err(StoreError::UnknownLease(id)) if id == lease), "{refused:?}");
    let short = at.store.grant_lease(1).await.expect("lease");
    at.commit(vec![at.op_create("short", "1", Some(short))]).await.expect("create");
    let lines = at.lines(&mut watch, 2).await;
    assert!(lines[1].ends_with("- short  <- 1"), "{lines:?}");
    let before = at.store.revision().await.expect("revision");
    for lease in [0, -1, i64::MIN] {
        let refused = at.commit(vec![at.op_create("malformed", "1", Some(lease))]).await;
        assert!(matches!(refused, Err(StoreError::InvalidLease(_))), "{lease}: {refused:?}");
        let refused = at.store.revoke_lease(lease).await;
        assert!(matches!(refused, Err(StoreError::InvalidLease(_))), "{lease}: {refused:?}");
    }
    let refused = at.commit(vec![at.op_create("malformed", "1", Some(i64::MAX))]).await;
    assert!(matches!(refused, Err(StoreError::UnknownLease(i64::MAX))), "{refused:?}");
    assert!(at.get("malformed").await.is_none() && at.store.revision().await.expect("revision") == before);
    assert!(matches!(at.store.grant_lease(0).await, Err(StoreError::InvalidLease(_))));
    assert!(matches!(at.store.grant_lease(u64::MAX).await, Err(StoreError::InvalidLease(_))));
}

async fn bad_input_is_refused(at: Corner) {
    let before = at.store.revision().await.expect("revision");
    for key in ["", "/registry/pods", "/registry/pods//a", "/etc/passwd", "/registry/pods/../x"] {
        let op = Op::Create { key: key.to_owned(), value: Bytes::new(), lease: None };
        let refused = at.store.commit(Transaction::one(op)).await;
        assert!(matches!(refused, Err(StoreError::InvalidKey { .. })), "{key}: {refused:?}");
        assert!(matches!(at.store.get(key).await, Err(StoreError::InvalidKey { .. })), "{key}");
    }
    let prefix = String::from("/other/");
    let range = Range { prefix: prefix.clone(), ..Range::default() };
    assert!(matches!(at.store.range(range).await, Err(StoreError::InvalidKey { .. })));
    let watch = at.store.watch(WatchRequest { prefix, after: 0 }).await;
    assert!(matches!(watch.err(), Some(StoreError::InvalidKey { .. })));
    let huge = Bytes::from(vec![b'x'; crate::key::MAX_VALUE + 1]);
    let op = Op::Create { key: at.key("huge"), value: huge.clone(), lease: None };
    assert!(matches!(at.commit(vec![op]).await, Err(StoreError::TooLarge { .. })));
    assert_eq!(at.store.revision().await.expect("revision"), before);
    let update = at.op_update("huge", "x", Revision::MAX);
    assert!(matches!(at.commit(vec![update]).await, Err(StoreError::Conflict { current: None, .. })));
    let newest_of = |error: StoreError| match error {
        StoreError::Future { requested: Revision::MAX, newest } => newest,
        other => panic!("{other:?}"),
    };
    assert_eq!(newest_of(at.names(Some(Revision::MAX)).await.expect_err("future")), before);
    assert_eq!(newest_of(at.watch(Revision::MAX).await.err().expect("future")), before);
    assert_eq!(newest_of(at.store.compact(Revision::MAX).await.expect_err("future")), before);
    assert_eq!(at.store.revision().await.expect("revision"), before);
    let fits = Op::Create { key: at.key("huge"), value: huge.slice(1..), lease: None };
    at.commit(vec![fits]).await.expect("the limit itself fits");
    at.store.health().await.expect("healthy");
}

async fn revisions_are_global_and_ordered(at: Corner) {
    let writers = (0..16).map(|writer| {
        let at = at.clone();
        async move {
            let mut mine = Vec::new();
            for step in 0..8 {
                mine.push(at.create(&format!("{writer}-{step}"), "x").await);
                let seen = at.store.revision().await.expect("revision");
                assert!(seen >= mine[step], "a write is visible once it is acknowledged");
            }
            assert!(mine.is_sorted());
            mine
        }
    });
    let start = at.store.revision().await.expect("revision");
    let mut all: Vec<Revision> = futures::future::join_all(writers).await.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 128, "every transaction has a revision of its own");
    let mut watch = at.watch(start).await.expect("watch");
    let lines = at.lines(&mut watch, 128).await;
    let seen: Vec<Revision> = lines.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert_eq!(seen, all);
}

async fn slow_and_dropped_watches_hurt_nobody(at: Corner) {
    let start = at.store.revision().await.expect("revision");
    let idle = at.watch(start).await.expect("watch");
    drop(at.watch(start).await.expect("watch"));
    for step in 0..50 {
        at.create(&format!("k{step:02}"), "x").await;
    }
    let mut late = at.watch(start).await.expect("watch");
    assert_eq!(at.lines(&mut late, 50).await.len(), 50);
    drop(idle);
}

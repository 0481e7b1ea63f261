//! The bugs of etcd's robustness table that can be told through a store, each replayed: whoever has one of them fails here.
//!
//! A case names the issue of etcd's repository. Those that need processes that are killed or paused are with the engines; the table of
//! all seventeen is in docs/store.md.

use std::collections::BTreeSet;

use super::{Corner, next};
use crate::{Op, Range, Revision, StoreError};

const WRITES: usize = 150;

/// Issue 15220: a mark says that nothing at or below its revision will follow.
pub(super) async fn a_mark_never_overtakes_an_event(at: Corner) {
    let start = at.store.revision().await.expect("revision");
    let writer = async {
        let mut written = BTreeSet::new();
        for number in 0..WRITES {
            written.insert(at.create(&format!("k{number:03}"), "x").await);
        }
        written
    };
    let watchers = (0..8).map(|_| async {
        let mut watch = at.watch(start).await.expect("watch");
        let (mut told, mut mark) = (BTreeSet::new(), start);
        while told.len() < WRITES {
            let batch = next(&mut watch).await.expect("a batch");
            match batch.events.is_empty() {
                true => mark = mark.max(batch.revision),
                false => assert!(batch.revision > mark, "an event of {} after the mark of {mark}", batch.revision),
            }
            told.extend(batch.events.iter().map(|event| event.entry.modified));
        }
        told
    });
    let (written, told) = futures::join!(writer, futures::future::join_all(watchers));
    told.iter().for_each(|told| assert_eq!(*told, written));
}

/// Issue 17247: transactions of several keys, some of which fail, are told once each or never.
pub(super) async fn every_event_is_told_once(at: Corner) {
    let start = at.store.revision().await.expect("revision");
    let mut watch = at.watch(start).await.expect("watch");
    let mut modified =
        at.commit(vec![at.op_create("a", "0", None), at.op_create("b", "0", None)]).await.expect("create");
    let mut expected = vec![format!("{modified} + a 0 <- none"), format!("{modified} + b 0 <- none")];
    for step in 1..40_u32 {
        let wrong =
            at.commit(vec![at.op_update("a", "wrong", modified), at.op_update("b", "wrong", modified - 1)]).await;
        assert!(matches!(wrong, Err(StoreError::Conflict { .. })), "{wrong:?}");
        let checked = Op::Check { key: at.key("none"), expected: 0 };
        let (new, old) = (step.to_string(), step - 1);
        let both = vec![checked, at.op_update("a", &new, modified), at.op_update("b", &new, modified)];
        modified = at.commit(both).await.expect("update");
        expected.extend(["a", "b"].map(|name| format!("{modified} ~ {name} {new} <- {old}")));
    }
    assert_eq!(at.lines(&mut watch, expected.len()).await, expected);
    let mut again = at.watch(start).await.expect("watch");
    assert_eq!(at.lines(&mut again, expected.len()).await, expected);
}

/// Issue 17529: a watch that nobody reads for a while, beside others that are read, goes on without a gap.
pub(super) async fn a_watch_that_is_not_read_loses_nothing(at: Corner) {
    let start = at.store.revision().await.expect("revision");
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(at.watch(start).await.expect("watch"));
    }
    let large = "x".repeat(30_000);
    let mut written = BTreeSet::new();
    for number in 0..WRITES {
        written.insert(at.create(&format!("k{number:03}"), &large).await);
    }
    for watch in &mut idle {
        let mut told = BTreeSet::new();
        while told.len() < WRITES {
            match next(watch).await {
                Ok(batch) => told.extend(batch.events.iter().map(|event| event.entry.modified)),
                // It may be told that it was too slow, and nothing else.
                Err(StoreError::SlowWatcher) => break,
                Err(other) => panic!("{other}"),
            }
        }
        let first: BTreeSet<Revision> = written.iter().copied().take(told.len()).collect();
        assert_eq!(told, first, "what was told has no gap");
    }
}

/// Issues 18089 and 19179: a deletion in the very revision that is compacted to is told, or the watch is refused.
pub(super) async fn a_deletion_is_not_lost_to_a_compaction(at: Corner) {
    let made = at.create("a", "1").await;
    let mut before = at.watch(made).await.expect("watch");
    let deleted = at.commit(vec![at.op_delete("a", made)]).await.expect("delete");
    at.store.compact(deleted).await.expect("compact");
    let later = at.create("b", "1").await;
    let told = format!("{deleted} - a  <- 1");
    // One that was there already may not have got it yet.
    let mut events = Vec::new();
    while events.is_empty() {
        match next(&mut before).await {
            Ok(batch) => events = batch.events,
            Err(StoreError::Compacted { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    if let Some(event) = events.first() {
        assert_eq!(format!("{} {}", event.entry.modified, at.line(event)), told);
    }
    match at.watch(deleted - 1).await {
        Err(error) => assert!(matches!(error, StoreError::Compacted { .. }), "{error}"),
        Ok(mut watch) => assert_eq!(at.lines(&mut watch, 1).await, [told]),
    }
    let mut after = at.watch(deleted).await.expect("from the compacted revision on everything is there");
    assert_eq!(at.lines(&mut after, 1).await, [format!("{later} + b 1 <- none")]);
}

/// Issue 18667: what is compacted is refused, in whatever order and by whichever page it is asked for; nobody gets half of it.
pub(super) async fn what_is_compacted_is_refused_everywhere(at: Corner) {
    for name in ["a", "b", "c"] {
        at.create(name, "1").await;
    }
    let past = at.store.revision().await.expect("revision");
    let page = |after: Option<&str>, revision| Range {
        prefix: at.prefix.clone(),
        after: after.map(|name| at.key(name)),
        limit: 1,
        revision: Some(revision),
    };
    assert_eq!(at.store.range(page(None, past)).await.expect("the first page").remaining, 2);
    let modified = at.get("c").await.expect("c").modified;
    let updated = at.commit(vec![at.op_update("c", "2", modified)]).await.expect("update");
    at.create("d", "1").await;
    at.store.compact(updated).await.expect("compact");
    for after in [None, Some("a"), Some("b"), Some("z")] {
        let refused = at.store.range(page(after, past)).await;
        assert!(matches!(refused, Err(StoreError::Compacted { .. })), "{after:?}: {refused:?}");
    }
    // Also where nothing was changed, and nothing ever was.
    let nothing = Range { prefix: at.key("nothing/"), revision: Some(past), ..Range::default() };
    assert!(matches!(at.store.range(nothing).await, Err(StoreError::Compacted { .. })));
    let kept = at.store.range(page(Some("b"), updated)).await.expect("the compacted revision itself");
    assert_eq!((kept.entries.len(), kept.remaining, &kept.entries[0].value[..]), (1, 0, &b"2"[..]));
}

/// Issue 20221, both rows: a watch of the future is refused, and one of the newest revision is told nothing older, neither events nor marks.
pub(super) async fn a_watch_is_told_nothing_older_than_it_asked_for(at: Corner) {
    let mut newest = at.create("a", "0").await;
    for step in 1..30_u32 {
        let future = at.watch(newest + 3).await.err();
        assert!(matches!(future, Some(StoreError::Future { requested, .. }) if requested == newest + 3), "{future:?}");
        let mut watch = at.watch(newest).await.expect("watch");
        let asked = newest;
        newest = at.commit(vec![at.op_update("a", &step.to_string(), newest)]).await.expect("update");
        let events = loop {
            let batch = next(&mut watch).await.expect("a batch");
            assert!(batch.revision >= asked, "a mark of {} for a watch of {asked}", batch.revision);
            if !batch.events.is_empty() {
                break batch.events;
            }
        };
        assert_eq!((events.len(), events[0].entry.modified), (1, newest));
    }
}

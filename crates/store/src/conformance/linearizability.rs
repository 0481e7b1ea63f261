//! Is there one order of all operations that explains every answer and respects who came after whom?
//!
//! Engines name the order themselves: a write has its revision, a read tells the one it saw. What is left to check is
//! that each answer is right at its place in that order, and that no operation stands before one that had already ended
//! when it began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::Corner;
use crate::{Op, Revision, StoreError, Transaction};

enum Answer {
    /// What it left at the key.
    Wrote(Revision, Option<Bytes>),
    Read(Revision, Option<(Revision, Bytes)>),
    /// The revision of what stood there, 0 for nothing.
    Refused(Revision),
}

struct Operation {
    key: usize,
    began: u64,
    ended: u64,
    answer: Answer,
}

const KEYS: usize = 3;
const CLIENTS: usize = 12;
const STEPS: usize = 40;

async fn client(at: Corner, number: usize, clock: Arc<AtomicU64>) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut known = [0; KEYS];
    for step in 0..STEPS {
        let key = (number * 7 + step * 5) % KEYS;
        let path = at.key(&format!("r{key}"));
        let began = clock.fetch_add(1, Ordering::SeqCst);
        let reads = (number + step).is_multiple_of(3);
        let answer = if reads {
            let got = at.store.get(&path).await.expect("get");
            known[key] = got.entry.as_ref().map_or(0, |entry| entry.modified);
            Answer::Read(got.revision, got.entry.map(|entry| (entry.modified, entry.value)))
        } else {
            let value = Bytes::from(format!("{number}-{step}"));
            let deletes = step % 7 == 6 && known[key] > 0;
            let op = match known[key] {
                0 => Op::Create { key: path, value: value.clone(), lease: None },
                expected if deletes => Op::Delete { key: path, expected },
                expected => Op::Update { key: path, value: value.clone(), expected, lease: None },
            };
            match at.store.commit(Transaction::one(op)).await {
                Ok(commit) => {
                    known[key] = if deletes { 0 } else { commit.revision };
                    Answer::Wrote(commit.revision, (!deletes).then_some(value))
                }
                Err(StoreError::Conflict { current, .. }) => {
                    known[key] = current.map_or(0, |entry| entry.modified);
                    Answer::Refused(known[key])
                }
                Err(error) => panic!("{error}"),
            }
        };
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        operations.push(Operation { key, began, ended, answer });
    }
    operations
}

/// A write stands at twice its revision, a read of that revision right behind it.
fn place(operation: &Operation) -> Option<u64> {
    match operation.answer {
        Answer::Wrote(revision, _) => Some(2 * revision),
        Answer::Read(revision, _) => Some(2 * revision + 1),
        Answer::Refused(_) => None,
    }
}

/// The order must not put an operation before one that had ended when it began.
fn check_order(operations: &[Operation]) {
    let mut by_begin: Vec<&Operation> = operations.iter().collect();
    by_begin.sort_by_key(|operation| operation.began);
    let mut by_end: Vec<(u64, u64)> =
        operations.iter().filter_map(|operation| Some((operation.ended, place(operation)?))).collect();
    by_end.sort_unstable();
    let mut ended = by_end.into_iter().peekable();
    let mut latest = 0;
    for operation in by_begin {
        while let Some((_, place)) = ended.next_if(|(end, _)| *end < operation.began) {
            latest = latest.max(place);
        }
        if let Some(place) = place(operation) {
            assert!(place >= latest, "an operation at {place} began after one at {latest} had ended");
        }
    }
}

fn check_answers(operations: &[Operation]) {
    let mut timelines = vec![BTreeMap::from([(0, None)]); KEYS];
    for operation in operations {
        if let Answer::Wrote(revision, value) = &operation.answer {
            let earlier = timelines[operation.key].insert(*revision, value.clone());
            assert!(earlier.is_none(), "revision {revision} was given twice");
        }
    }
    let state = |key: usize, revision: Revision| {
        let (modified, value) = timelines[key].range(..=revision).next_back().expect("there is a first");
        value.clone().map(|value| (*modified, value))
    };
    for operation in operations {
        match &operation.answer {
            Answer::Wrote(..) => {}
            Answer::Read(revision, found) => assert_eq!(*found, state(operation.key, *revision), "at {revision}"),
            Answer::Refused(found) => check_refusal(operations, operation, *found, &timelines[operation.key]),
        }
    }
}

/// What a refusal saw must have stood there at some moment while it ran.
fn check_refusal(
    operations: &[Operation],
    refused: &Operation,
    found: Revision,
    timeline: &BTreeMap<Revision, Option<Bytes>>,
) {
    let before = operations.iter().filter(|other| other.ended < refused.began).filter_map(place).max().unwrap_or(0);
    let after = operations.iter().filter(|other| other.began > refused.ended).filter_map(place).min();
    let after = after.unwrap_or(u64::MAX);
    let revisions: Vec<Revision> = timeline.keys().copied().collect();
    let stood = revisions.iter().enumerate().any(|(index, revision)| {
        let seen = timeline[revision].as_ref().map_or(0, |_| *revision);
        let until = revisions.get(index + 1).map_or(u64::MAX, |next| 2 * next);
        seen == found && 2 * revision <= after && until > before
    });
    assert!(stood, "a refusal saw revision {found}, which did not stand between {before} and {after}");
}

pub(super) async fn answers_have_one_order(at: Corner) {
    let clock = Arc::new(AtomicU64::new(0));
    let clients = (0..CLIENTS).map(|number| client(at.clone(), number, clock.clone()));
    let operations: Vec<Operation> = futures::future::join_all(clients).await.into_iter().flatten().collect();
    check_order(&operations);
    check_answers(&operations);
    let wrote = operations.iter().filter(|operation| matches!(operation.answer, Answer::Wrote(..))).count();
    let refused = operations.iter().filter(|operation| matches!(operation.answer, Answer::Refused(_))).count();
    assert!(wrote > 10 && refused > 10, "the test must see both: {wrote} written, {refused} refused");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(began: u64, ended: u64, answer: Answer) -> Operation {
        Operation { key: 0, began, ended, answer }
    }

    fn wrote(began: u64, ended: u64, revision: Revision) -> Operation {
        operation(began, ended, Answer::Wrote(revision, Some(Bytes::from(revision.to_string()))))
    }

    fn fails(operations: Vec<Operation>) -> bool {
        let check = move || {
            check_order(&operations);
            check_answers(&operations);
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err()
    }

    /// A checker that accepts everything would prove nothing.
    #[test]
    fn wrong_histories_are_recognised() {
        let read = |began, ended, revision, seen: Option<u64>| {
            operation(began, ended, Answer::Read(revision, seen.map(|r| (r, Bytes::from(r.to_string())))))
        };
        assert!(!fails(vec![wrote(0, 1, 2), read(2, 3, 2, Some(2)), wrote(4, 5, 3)]));
        assert!(fails(vec![wrote(0, 1, 2), read(2, 3, 1, None)]), "a stale read");
        assert!(fails(vec![wrote(0, 1, 3), wrote(2, 3, 2)]), "revisions against time");
        assert!(fails(vec![wrote(0, 5, 2), wrote(1, 4, 3), read(6, 7, 3, Some(2))]), "a lost write");
        assert!(fails(vec![wrote(0, 1, 2), wrote(2, 3, 2)]), "one revision twice");
        assert!(!fails(vec![wrote(0, 1, 2), operation(2, 3, Answer::Refused(2))]));
        assert!(fails(vec![wrote(0, 1, 2), wrote(2, 3, 3), operation(4, 5, Answer::Refused(2))]), "a stale refusal");
    }
}

//! A store so simple that it is obviously right, and steps that compare an engine with it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Corner, next};
use crate::{EventKind, Op, Range, Revision, Store, StoreError, Transaction, WatchRequest};

/// What a step does to one of a handful of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Update,
    Delete,
    Check,
}

/// Which revision an operation claims to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Right,
    Zero,
    Old,
    Future,
}

#[derive(Clone, Copy, Debug)]
pub struct ModelOp {
    pub verb: Verb,
    pub key: u8,
    pub value: u8,
    pub claim: Claim,
}

/// Distances count back from the newest revision.
#[derive(Clone, Debug)]
pub enum Step {
    Commit(Vec<ModelOp>),
    Range {
        back: u64,
        limit: usize,
    },
    Watch {
        back: u64,
    },
    Compact {
        back: u64,
    },
    /// The engine is closed and opened again, where the test can do that.
    Reopen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    value: u8,
    created: Revision,
    modified: Revision,
}

type State = BTreeMap<u8, Version>;
/// Kind, key, new and previous value.
type Change = (EventKind, u8, Option<u8>, Option<u8>);

/// The whole history, kept for ever.
pub struct Model {
    first: Revision,
    compacted: Revision,
    states: Vec<State>,
    changes: Vec<Vec<Change>>,
}

impl Model {
    pub fn new(first: Revision) -> Self {
        Self { first, compacted: 0, states: vec![State::new()], changes: vec![Vec::new()] }
    }

    fn newest(&self) -> Revision {
        self.first + self.states.len() as u64 - 1
    }

    fn state(&self, revision: Revision) -> &State {
        &self.states[usize::try_from(revision - self.first).expect("small")]
    }

    fn now(&self) -> &State {
        self.state(self.newest())
    }

    fn claimed(&self, op: &ModelOp) -> Revision {
        let current = self.now().get(&op.key).map_or(0, |version| version.modified);
        match op.claim {
            Claim::Right => current,
            Claim::Zero => 0,
            Claim::Old => current.saturating_sub(1),
            Claim::Future => self.newest() + 10,
        }
    }

    /// The new revision, or the key whose precondition does not hold; None where a key is written twice.
    fn commit(&mut self, ops: &[ModelOp]) -> Option<Result<Revision, u8>> {
        let mut written = Vec::new();
        for op in ops.iter().filter(|op| op.verb != Verb::Check) {
            if written.contains(&op.key) {
                return None;
            }
            written.push(op.key);
        }
        let revision = self.newest() + 1;
        let mut state = self.now().clone();
        let mut changes = Vec::new();
        for op in ops {
            let current = self.now().get(&op.key).cloned();
            let found = current.as_ref().map_or(0, |version| version.modified);
            let holds = match op.verb {
                Verb::Create => found == 0,
                Verb::Check => found == self.claimed(op),
                Verb::Update | Verb::Delete => found != 0 && found == self.claimed(op),
            };
            if !holds {
                return Some(Err(op.key));
            }
            let before = current.as_ref().map(|version| version.value);
            let created = current.map_or(revision, |version| version.created);
            match op.verb {
                Verb::Check => continue,
                Verb::Delete => {
                    state.remove(&op.key);
                    changes.push((EventKind::Delete, op.key, None, before));
                }
                Verb::Create | Verb::Update => {
                    state.insert(op.key, Version { value: op.value, created, modified: revision });
                    let kind = if before.is_none() { EventKind::Create } else { EventKind::Update };
                    changes.push((kind, op.key, Some(op.value), before));
                }
            }
        }
        if changes.is_empty() {
            return Some(Ok(self.newest()));
        }
        self.states.push(state);
        self.changes.push(changes);
        Some(Ok(revision))
    }
}

fn key_of(at: &Corner, key: u8) -> String {
    at.key(&format!("k{key:03}"))
}

fn back_to_key(at: &Corner, key: &str) -> u8 {
    at.name_of(key)[1..].parse().expect("a key of the model")
}

fn value(bytes: &Bytes) -> u8 {
    *bytes.first().expect("a value of the model")
}

fn real_op(at: &Corner, model: &Model, op: &ModelOp) -> Op {
    let key = key_of(at, op.key);
    let (expected, value) = (model.claimed(op), Bytes::copy_from_slice(&[op.value]));
    match op.verb {
        Verb::Create => Op::Create { key, value, lease: None },
        Verb::Update => Op::Update { key, value, expected, lease: None },
        Verb::Delete => Op::Delete { key, expected },
        Verb::Check => Op::Check { key, expected },
    }
}

async fn commit(at: &Corner, model: &mut Model, ops: &[ModelOp]) {
    let real = ops.iter().map(|op| real_op(at, model, op)).collect();
    let outcome = at.store.commit(Transaction { ops: real }).await;
    match (model.commit(ops), outcome) {
        (None, Err(StoreError::InvalidKey { .. })) => {}
        (Some(Ok(expected)), Ok(commit)) => assert_eq!(commit.revision, expected, "{ops:?}"),
        (Some(Err(expected)), Err(StoreError::Conflict { key, current })) => {
            assert_eq!(back_to_key(at, &key), expected, "{ops:?}");
            let known = model.now().get(&expected);
            assert_eq!(current.map(|entry| entry.modified), known.map(|version| version.modified), "{ops:?}");
        }
        (expected, outcome) => panic!("{ops:?}: {outcome:?} instead of {expected:?}"),
    }
}

async fn range(at: &Corner, model: &Model, back: u64, limit: usize) {
    let revision = model.newest().saturating_sub(back);
    if revision < model.first {
        return;
    }
    let asked = (back > 0).then_some(revision);
    let found = at.store.range(Range { prefix: at.prefix.clone(), limit, revision: asked, after: None }).await;
    if asked.is_some() && revision < model.compacted {
        assert!(matches!(found, Err(StoreError::Compacted { .. })), "{found:?}");
        return;
    }
    let found = found.expect("range");
    let all = model.state(revision);
    let expected = all.iter().take(if limit == 0 { usize::MAX } else { limit });
    let real = found.entries.iter().map(|entry| {
        let version = Version { value: value(&entry.value), created: entry.created, modified: entry.modified };
        (back_to_key(at, &entry.key), version)
    });
    assert!(real.eq(expected.map(|(key, version)| (*key, version.clone()))), "{found:?} instead of {all:?}");
    let left = all.len().saturating_sub(found.entries.len());
    assert_eq!((found.more, found.remaining), (left > 0, left));
}

async fn watch(at: &Corner, model: &Model, back: u64) {
    let after = model.newest().saturating_sub(back).max(model.first);
    let opened = at.store.watch(WatchRequest { prefix: at.prefix.clone(), after }).await;
    if after < model.compacted {
        assert!(matches!(opened.err(), Some(StoreError::Compacted { .. })));
        return;
    }
    let mut watch = opened.expect("watch");
    for revision in after + 1..=model.newest() {
        let batch = loop {
            let batch = next(&mut watch).await.expect("batch");
            if !batch.events.is_empty() {
                break batch;
            }
        };
        assert_eq!(batch.revision, revision);
        let real: Vec<Change> = batch
            .events
            .iter()
            .map(|event| {
                let now = (event.kind != EventKind::Delete).then(|| value(&event.entry.value));
                (event.kind, back_to_key(at, &event.entry.key), now, event.previous.as_ref().map(|p| value(&p.value)))
            })
            .collect();
        let mut expected = model.changes[usize::try_from(revision - model.first).expect("small")].clone();
        let mut sorted = real.clone();
        // Engines may order the changes of one revision by key.
        sorted.sort_by_key(|change| change.1);
        expected.sort_by_key(|change| change.1);
        assert_eq!(sorted, expected, "revision {revision}");
    }
}

async fn compact(at: &Corner, model: &mut Model, back: u64) {
    let revision = model.newest().saturating_sub(back).max(model.first);
    match at.store.compact(revision).await {
        Ok(()) => {
            assert!(revision > model.compacted);
            model.compacted = revision;
        }
        // Another model may have gone before on the same store.
        Err(StoreError::Compacted { .. }) => assert!(revision <= model.compacted.max(model.first)),
        other => panic!("{other:?}"),
    }
}

/// Runs steps on a store that nobody else writes to; `reopen` gives the store after a restart.
pub async fn check<Reopen, Opening>(at: Corner, steps: &[Step], mut reopen: Reopen)
where
    Reopen: FnMut(std::sync::Arc<dyn Store>) -> Opening,
    Opening: Future<Output = std::sync::Arc<dyn Store>>,
{
    let mut at = at;
    let mut model = Model::new(at.store.revision().await.expect("revision"));
    for step in steps {
        match step {
            Step::Commit(ops) => commit(&at, &mut model, ops).await,
            Step::Range { back, limit } => range(&at, &model, *back, *limit).await,
            Step::Watch { back } => watch(&at, &model, *back).await,
            Step::Compact { back } => compact(&at, &mut model, *back).await,
            Step::Reopen => {
                let Corner { store, prefix } = at;
                at = Corner { store: reopen(store).await, prefix };
            }
        }
        assert_eq!(at.store.revision().await.expect("revision"), model.newest(), "after {step:?}");
    }
    range(&at, &model, 0, 0).await;
    watch(&at, &model, model.newest() - model.compacted.max(model.first)).await;
}

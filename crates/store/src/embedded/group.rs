//! Transactions that become durable together, and their answers.

use std::collections::HashMap;
use std::sync::Arc;

use super::committer::Reply;
use super::record::{LeaseRecord, Record};
use super::state::{Change, Stored};
use crate::types::{Commit, Entry, EventKind, LeaseId, Op, Revision};
use crate::{Result, StoreError};

/// Answers wait for the group even where they are refusals: a conflict may name a value that is not durable yet.
pub(crate) enum Answer {
    Commit(Reply<Commit>, Result<Revision>),
    Grant(Reply<LeaseId>, LeaseId),
    Health(Reply<()>),
}

#[derive(Default)]
pub(crate) struct Group {
    pub(crate) transactions: Vec<(Revision, Vec<Change>)>,
    pub(crate) grants: Vec<(LeaseId, LeaseRecord)>,
    pub(crate) revoked: Vec<LeaseId>,
    pub(crate) answers: Vec<Answer>,
    /// What the transactions so far leave at the keys they touch.
    pub(crate) overlay: HashMap<Arc<str>, Option<Arc<Stored>>>,
    pub(crate) bytes: usize,
}

impl Group {
    pub(crate) fn newest(&self) -> Option<Revision> {
        self.transactions.last().map(|(revision, _)| *revision)
    }

    pub(crate) fn writes(&self) -> bool {
        !(self.transactions.is_empty() && self.grants.is_empty() && self.revoked.is_empty())
    }

    pub(crate) fn add(&mut self, revision: Revision, changes: Vec<Change>) {
        for change in &changes {
            let entry = &change.record.entry;
            self.bytes += entry.key.len() + entry.value.len();
            self.overlay.insert(entry.key.clone(), change.stored());
        }
        self.transactions.push((revision, changes));
    }

    pub(crate) fn answer(self, outcome: &Result<()>) {
        // Of those who wrote nothing all is known.
        let unwritten = || {
            outcome.clone().map_err(|error| match error {
                StoreError::Undecided(why) => StoreError::Unavailable(why),
                other => other,
            })
        };
        for answer in self.answers {
            match answer {
                Answer::Commit(reply, checked) => {
                    let result = if checked.is_ok() { outcome.clone().and(checked) } else { unwritten().and(checked) };
                    reply.send(result.map(|revision| Commit { revision }));
                }
                Answer::Grant(reply, lease) => reply.send(outcome.clone().map(|()| lease)),
                Answer::Health(reply) => reply.send(unwritten()),
            }
        }
    }
}

impl Op {
    pub fn key(&self) -> &str {
        match self {
            Self::Create { key, .. }
            | Self::Update { key, .. }
            | Self::Delete { key, .. }
            | Self::Check { key, .. } => key,
        }
    }

    pub(crate) fn expected(&self) -> Revision {
        match self {
            Self::Create { .. } => 0,
            Self::Update { expected, .. } | Self::Delete { expected, .. } | Self::Check { expected, .. } => *expected,
        }
    }
}

impl Change {
    /// None for a mere check.
    pub(crate) fn new(op: Op, revision: Revision, index: u32, previous: Option<Arc<Stored>>) -> Option<Self> {
        let (kind, key, value, lease) = match op {
            Op::Create { key, value, lease } => (EventKind::Create, key, value, lease),
            Op::Update { key, value, lease, .. } => (EventKind::Update, key, value, lease),
            Op::Delete { key, .. } => (EventKind::Delete, key, bytes::Bytes::new(), None),
            Op::Check { .. } => return None,
        };
        let created = match kind {
            EventKind::Create => revision,
            EventKind::Update => previous.as_ref().map_or(revision, |previous| previous.entry.created),
            EventKind::Delete => 0,
        };
        let key = previous.as_ref().map_or_else(|| Arc::from(key), |previous| previous.entry.key.clone());
        let entry = Entry { key, value, created, modified: revision, lease };
        let place = previous.as_ref().map(|previous| previous.place());
        Some(Self { index, record: Record { kind, entry, previous: place }, previous })
    }
}

/// Two writes to one key in one transaction have no order.
pub(crate) fn check_distinct(ops: &[Op]) -> Result<()> {
    let mut seen = std::collections::HashSet::with_capacity(ops.len());
    for op in ops {
        if !matches!(op, Op::Check { .. }) && ops.len() > 1 && !seen.insert(op.key()) {
            return Err(StoreError::InvalidKey {
                key: op.key().to_owned(),
                why: "it is written twice in one transaction",
            });
        }
    }
    Ok(())
}

//! The one writer: checks queued transactions against memory, makes a whole group durable with one fdatasync,
//! and only then shows it to readers and watchers and answers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Shared;
use super::compaction::Schedule;
use super::disk::Failed;
use super::group::{Answer, Group};
use super::leases::Leases;
use super::state::{Change, Stored};
use crate::types::{Commit, LeaseId, Op, Revision, Transaction};
use crate::{Result, StoreError};

/// Whoever waits for an answer, and the place that they have in the queue. It is given back with the answer and not before: a
/// caller that hangs up does not take the command out of the queue, and must not make room for another one.
pub(crate) struct Reply<T> {
    waiting: oneshot::Sender<Result<T>>,
    _place: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    pub(crate) fn new(waiting: oneshot::Sender<Result<T>>, place: OwnedSemaphorePermit) -> Self {
        Self { waiting, _place: place }
    }

    pub(crate) fn send(self, outcome: Result<T>) {
        // A caller that no longer waits needs no answer.
        let _ = self.waiting.send(outcome);
    }
}

pub(crate) enum Command {
    Commit { transaction: Transaction, reply: Reply<Commit> },
    Grant { ttl_seconds: u64, reply: Reply<LeaseId> },
    Revoke { lease: LeaseId, reply: Reply<()> },
    Health { reply: Reply<()> },
}

impl Command {
    fn fail(self, error: StoreError) {
        match self {
            Self::Commit { reply, .. } => reply.send(Err(error)),
            Self::Grant { reply, .. } => reply.send(Err(error)),
            Self::Revoke { reply, .. } | Self::Health { reply } => reply.send(Err(error)),
        }
    }
}

/// Bounds one group, so that the first writer in it does not wait for thousands of others.
const GROUP_COMMANDS: usize = 2048;
const GROUP_BYTES: usize = 16 << 20;
/// After a failed write the tables are opened again, which is no small work: not for every request.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Committer {
    shared: Arc<Shared>,
    queue: Receiver<Command>,
    leases: Leases,
    schedule: Schedule,
    progress_at: Option<Instant>,
    /// Set when a lease that has ended could not be revoked: it stays the first, and would be tried without end.
    leases_retry_at: Option<Instant>,
    /// Set while the tables refuse writes: why, and when to try again.
    broken: Option<(StoreError, Instant)>,
}

/// When to look at what ends next, where it is not to be tried before a time.
fn not_before(end: Option<Instant>, retry_at: Option<Instant>) -> Option<Instant> {
    end.map(|end| retry_at.map_or(end, |retry_at| end.max(retry_at)))
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, queue: Receiver<Command>, leases: Leases) -> Self {
        let schedule = Schedule::new(&shared.options);
        Self { shared, queue, leases, schedule, progress_at: None, leases_retry_at: None, broken: None }
    }

    /// Runs until the last sender of commands is gone.
    pub(crate) fn run(mut self) {
        loop {
            let lease_at = not_before(self.leases.next_end(), self.leases_retry_at);
            let deadline = [lease_at, self.progress_at, self.schedule.next()].into_iter().flatten().min();
            let received = match deadline {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.queue.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match received {
                Ok(command) => self.serve(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.housekeeping();
        }
        self.schedule.finish();
        self.shared.state.write().watchers.close();
    }

    fn housekeeping(&mut self) {
        let now = Instant::now();
        if self.leases_retry_at.is_none_or(|at| at <= now) {
            self.leases_retry_at = None;
            for lease in self.leases.ended(now) {
                if self.ready().is_err() || self.revoke(lease).is_err() {
                    self.leases_retry_at = Some(Instant::now() + RETRY);
                    break;
                }
            }
        }
        if self.progress_at.is_some_and(|at| at <= now) {
            let mut state = self.shared.state.write();
            let revision = state.revision;
            state.watchers.progress(revision);
            self.progress_at = None;
        }
        self.schedule.tick(now, &self.shared);
    }

    fn serve(&mut self, first: Command) {
        self.notice_failures();
        let mut group = Group::default();
        let mut next = Some(first);
        while let Some(command) = next.take() {
            if let Err(error) = self.ready() {
                command.fail(error);
            } else {
                match command {
                    Command::Commit { transaction, reply } => {
                        let checked = self.check(&mut group, transaction);
                        group.answers.push(Answer::Commit(reply, checked));
                    }
                    Command::Grant { ttl_seconds, reply } => {
                        let (lease, record) = self.leases.prepare(ttl_seconds);
                        group.grants.push((lease, record));
                        group.answers.push(Answer::Grant(reply, lease));
                    }
                    Command::Health { reply } => group.answers.push(Answer::Health(reply)),
                    Command::Revoke { lease, reply } => {
                        // It deletes what the transactions before it attached: they must stand first.
                        self.finish(std::mem::take(&mut group));
                        let outcome = if self.leases.contains(lease) {
                            self.ready().and_then(|()| self.revoke(lease))
                        } else {
                            Err(StoreError::UnknownLease(lease))
                        };
                        reply.send(outcome);
                    }
                }
            }
            if group.answers.len() < GROUP_COMMANDS && group.bytes < GROUP_BYTES {
                next = self.queue.try_recv().ok();
            }
        }
        self.finish(group);
    }

    /// Tables that failed in the background are opened again before a group is checked against them: nothing of it is
    /// written yet, so nobody has to be told that an outcome is unknown.
    fn notice_failures(&mut self) {
        if self.broken.is_none()
            && let Ok(disk) = self.shared.disk()
            && let Err(error) = disk.probe()
        {
            self.broken = Some((error, Instant::now()));
        }
    }

    /// Every precondition against the state as it will be after the group so far; nothing is visible yet.
    fn check(&self, group: &mut Group, transaction: Transaction) -> Result<Revision> {
        let state = self.shared.state.read();
        let newest = group.newest().unwrap_or(state.revision);
        let revision = newest + 1;
        let mut changes: Vec<Change> = Vec::with_capacity(transaction.ops.len());
        for op in transaction.ops {
            let key = op.key();
            let current: Option<Arc<Stored>> =
                group.overlay.get(key).cloned().unwrap_or_else(|| state.map.get(key).cloned());
            let found = current.as_ref().map_or(0, |stored| stored.entry.modified);
            if found != op.expected() || (found == 0 && matches!(op, Op::Update { .. } | Op::Delete { .. })) {
                let current = current.map(|stored| Box::new(stored.entry.clone()));
                return Err(StoreError::Conflict { key: key.to_owned(), current });
            }
            if let Op::Create { lease: Some(lease), .. } | Op::Update { lease: Some(lease), .. } = &op
                && !self.leases.contains(*lease)
            {
                return Err(StoreError::UnknownLease(*lease));
            }
            let index = u32::try_from(changes.len()).unwrap_or(u32::MAX);
            changes.extend(Change::new(op, revision, index, current));
        }
        drop(state);
        if changes.is_empty() {
            return Ok(newest);
        }
        group.add(revision, changes);
        Ok(revision)
    }

    /// One batch, one fdatasync, then the world may know.
    fn finish(&mut self, group: Group) {
        let outcome = if group.writes() { self.write(&group) } else { Ok(()) };
        if let Err(error) = &outcome {
            tracing::warn!("a group of {} writes failed: {error}", group.answers.len());
        } else {
            for (lease, record) in &group.grants {
                self.leases.insert(*lease, *record);
            }
            self.publish(&group.transactions);
        }
        group.answer(&outcome);
    }

    /// Tables may fail in the background at any moment, also after they were looked at. Where they took nothing of the
    /// group they are opened again and it is written then, so that nobody is told of a failure that has passed.
    fn write(&mut self, group: &Group) -> Result<()> {
        // Refused before it is tried: the tables stay open, and the next write may succeed.
        self.shared.check_space(group.bytes)?;
        let Err(failed) = self.try_write(group)? else { return Ok(()) };
        if failed.untouched {
            let before = self.shared.state.read().revision;
            self.broken = Some((failed.error.clone(), Instant::now()));
            self.ready()?;
            // The group was checked against this state and no other.
            if self.shared.state.read().revision == before {
                let Err(failed) = self.try_write(group)? else { return Ok(()) };
                return Err(self.give_up(failed));
            }
        }
        Err(self.give_up(failed))
    }

    /// Those who come next are told that nothing is written. Of this write nobody knows: it may be in the log.
    fn give_up(&mut self, failed: Failed) -> StoreError {
        self.broken = Some((failed.error.clone(), Instant::now() + RETRY));
        failed.into()
    }

    fn try_write(&self, group: &Group) -> Result<std::result::Result<(), Failed>> {
        let disk = self.shared.disk()?;
        let mut batch = disk.batch();
        for change in group.transactions.iter().flat_map(|(_, changes)| changes) {
            batch.change(change.index, &change.record);
        }
        for (lease, record) in &group.grants {
            batch.lease(*lease, *record);
        }
        for lease in &group.revoked {
            batch.forget_lease(*lease);
        }
        Ok(disk.commit(batch))
    }

    fn publish(&mut self, transactions: &[(Revision, Vec<Change>)]) {
        if transactions.is_empty() {
            return;
        }
        let mut state = self.shared.state.write();
        for (revision, changes) in transactions {
            self.leases.apply(changes);
            state.publish(*revision, changes);
        }
        if self.progress_at.is_none() && state.watchers.wants_progress(state.revision) {
            self.progress_at = Some(Instant::now() + self.shared.options.progress_interval);
        }
    }

    /// Deletes a lease and its keys in one revision.
    fn revoke(&mut self, lease: LeaseId) -> Result<()> {
        let mut group = Group { revoked: vec![lease], ..Group::default() };
        let ops = {
            let state = self.shared.state.read();
            let keys = self.leases.keys(lease).into_iter();
            keys.filter_map(|key| {
                let expected = state.map.get(&key)?.entry.modified;
                Some(Op::Delete { key: key.to_string(), expected })
            })
            .collect()
        };
        self.check(&mut group, Transaction { ops })?;
        self.write(&group)?;
        self.publish(&group.transactions);
        self.leases.remove(lease);
        Ok(())
    }

    /// Opens the tables again after a failed write. What of it reached the disk is published now: its writer was told
    /// that the outcome is unknown.
    fn ready(&mut self) -> Result<()> {
        let Some((error, retry_at)) = &self.broken else { return Ok(()) };
        if Instant::now() < *retry_at {
            return Err(error.clone());
        }
        match self.shared.reopen() {
            Ok(reopened) => {
                for (lease, record) in reopened.leases {
                    self.leases.insert(lease, record);
                }
                self.publish(&reopened.transactions);
                self.broken = None;
                tracing::info!("the store accepts writes again");
                Ok(())
            }
            Err(error) => {
                self.broken = Some((error.clone(), Instant::now() + RETRY));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_could_not_be_revoked_is_not_tried_without_a_pause() {
        let now = Instant::now();
        let (past, later) = (now.checked_sub(RETRY).unwrap_or(now), now + RETRY);
        assert_eq!(not_before(None, Some(later)), None, "there is none");
        assert_eq!(not_before(Some(past), None), Some(past));
        assert_eq!(not_before(Some(past), Some(later)), Some(later));
        assert_eq!(not_before(Some(later), Some(past)), Some(later));
    }
}

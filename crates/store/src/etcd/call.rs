//! How a request is put to etcd: which member is asked, for how long, and what is sent again.
//!
//! While etcd elects a leader its members refuse requests, or keep them and answer none. So a request is put again until its deadline,
//! by these rules:
//!
//! - What certainly was not done is put again. Everybody who waits for a leader shares one question whether there is one.
//! - What may have been done is put again where that does no harm: a read, or a write whose condition cannot hold a second time. Such a
//!   write has happened if one of its attempts says so, and has not if all of them say that; otherwise that is not known.
//! - Any other write is put once. Before that etcd must have shown that it has a leader, or it would often be lost.
//! - Where no member can be reached there is nothing to wait for.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::api::{Answer, Client};
use super::connection::Connection;
use super::failure::{Failed, Failure};
use crate::types::Revision;
use crate::{Result, StoreError};

/// When a request may be put again while it is not known what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A small read: a member that is silent for a moment is not waited for.
    Read,
    /// Done twice it does no harm.
    Always,
    /// A write whose condition cannot hold again once it was done.
    Guarded,
    /// A write that could be done twice.
    Unsent,
}

impl Repeat {
    /// How long a member may be silent before the next one is asked beside it; twice as long each time.
    fn silence(self) -> Option<Duration> {
        match self {
            Self::Read => Some(Duration::from_millis(100)),
            Self::Guarded => Some(Duration::from_millis(500)),
            Self::Always => Some(Duration::from_secs(1)),
            Self::Unsent => None,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Guarded | Self::Unsent)
    }
}

/// How old the last sign of a leader may be for a write that is put once.
const SIGN: Duration = Duration::from_millis(50);

impl Connection {
    /// Whatever etcd or the network does, the caller gets an answer in time.
    pub(crate) async fn call<T, F>(&self, repeat: Repeat, send: impl Fn(Client) -> F) -> Result<T>
    where
        F: Future<Output = Answer<T>>,
    {
        if repeat == Repeat::Unsent && !self.led_within(SIGN) {
            self.led().await?;
        }
        self.ask(repeat, send, |_| true).await.map_err(|failed| failed.error)
    }

    /// A write that is guarded by a condition. `done` says whether it held.
    pub(crate) async fn write<T, F>(&self, send: impl Fn(Client) -> F, done: impl Fn(&T) -> bool) -> Result<T>
    where
        F: Future<Output = Answer<T>>,
    {
        self.ask(Repeat::Guarded, send, done).await.map_err(|failed| failed.error)
    }

    /// The newest revision, once there is a leader who knows it.
    pub(crate) fn led(&self) -> BoxFuture<'static, Result<Revision>> {
        let (asking, deadline) = (self.impatient(), self.deadline);
        let newest = self.newest.clone();
        async move {
            let ask = {
                let asking = asking.clone();
                move || {
                    let asking = asking.clone();
                    async move { asking.ask_revision().await }
                }
            };
            let Some(newest) = newest else { return ask().await.map_err(|failed| failed.error) };
            match tokio::time::timeout(deadline, newest.get(deadline, ask)).await {
                Ok(answer) => answer,
                Err(_) => Err(silent(deadline)),
            }
        }
        .boxed()
    }

    /// The first answer that `decides`, or the last one where all that was sent is answered.
    pub(super) async fn ask<T, F>(
        &self,
        repeat: Repeat,
        send: impl Fn(Client) -> F,
        decides: impl Fn(&T) -> bool,
    ) -> std::result::Result<T, Failed>
    where
        F: Future<Output = Answer<T>>,
    {
        let count = self.members.len();
        let end = Instant::now() + self.deadline;
        let mut under_way = FuturesUnordered::new();
        let mut silence = repeat.silence();
        // How many were asked since the last time that there was something to wait for.
        let mut asked = 0;
        let mut due = Some(Instant::now());
        let mut leader: Option<BoxFuture<'static, Result<Revision>>> = None;
        let mut last: Option<Failed> = None;
        // An attempt ended that may have been done.
        let mut open = false;
        loop {
            tokio::select! {
                biased;
                Some((at, outcome)) = under_way.next() => match outcome {
                    Ok(answer) => {
                        self.answered(at, repeat);
                        if decides(&answer) || (under_way.is_empty() && !open) {
                            return Ok(answer);
                        }
                        if under_way.is_empty() {
                            return Err(StoreError::Undecided("etcd did not say what became of it".into()).into());
                        }
                        // The condition does not hold: sent again, it would not either. An attempt before may have been the reason.
                        (due, leader) = (None, None);
                        silence = None;
                    }
                    Err(status) => {
                        self.pass_over(at);
                        let (failure, failed) = (Failure::of(&status), Failed::of(&status));
                        let unanswered = open || !under_way.is_empty();
                        open |= repeat.writes() && failure.may_be_done();
                        let ends = match repeat {
                            Repeat::Read | Repeat::Always => !matches!(failed.error, StoreError::Unavailable(_)),
                            Repeat::Guarded => failure == Failure::Refused,
                            Repeat::Unsent => failure == Failure::Refused || failure.may_be_done(),
                        };
                        if ends && repeat.writes() && (unanswered || open) {
                            return Err(undecided(&failed.error).into());
                        }
                        if ends {
                            return Err(failed);
                        }
                        let waits = failed.waits || last.as_ref().is_some_and(|last| last.waits);
                        last = Some(Failed { error: failed.error, waits });
                        if asked < count {
                            due = Some(Instant::now());
                        } else if waits && self.newest.is_some() {
                            due = None;
                            leader.get_or_insert_with(|| self.led());
                        } else if waits || under_way.is_empty() {
                            break;
                        }
                    }
                },
                () = until(due) => {
                    let at = (self.preferred.load(Ordering::Relaxed) + asked) % count;
                    asked += 1;
                    let attempt = send(self.members[at].clone());
                    under_way.push(async move { (at, attempt.await) });
                    due = silence.map(|silence| Instant::now() + silence);
                    silence = silence.map(|silence| silence * 2);
                }
                outcome = some(&mut leader) => {
                    leader = None;
                    match outcome {
                        Ok(_) => (asked, last, due) = (0, None, Some(Instant::now())),
                        Err(error) => {
                            last = Some(error.into());
                            break;
                        }
                    }
                }
                () = tokio::time::sleep_until(end) => {
                    last = last.or_else(|| Some(silent(self.deadline).into()));
                    break;
                }
            }
        }
        let last = last.unwrap_or_else(|| StoreError::Unavailable("etcd was not asked".into()).into());
        match repeat.writes() && (open || !under_way.is_empty()) {
            true => Err(undecided(&last.error).into()),
            false => Err(last),
        }
    }

    fn answered(&self, at: usize, repeat: Repeat) {
        self.preferred.store(at, Ordering::Relaxed);
        // Others are answered without a leader, too.
        if repeat != Repeat::Always {
            *self.sign.lock() = Some(Instant::now());
        }
    }

    fn pass_over(&self, at: usize) {
        let next = (at + 1) % self.members.len();
        let _ = self.preferred.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn led_within(&self, age: Duration) -> bool {
        self.sign.lock().is_some_and(|at| at.elapsed() < age)
    }
}

fn silent(deadline: Duration) -> StoreError {
    StoreError::Unavailable(format!("etcd did not answer within {deadline:?}"))
}

fn undecided(last: &StoreError) -> StoreError {
    match last {
        StoreError::Unavailable(why) => StoreError::Undecided(why.clone()),
        other => StoreError::Undecided(other.to_string()),
    }
}

async fn until(at: Option<Instant>) {
    match at {
        // A timer that is due is told of at the next full millisecond: as long as the request itself takes.
        Some(at) if at <= Instant::now() => {}
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn some<T>(waited: &mut Option<BoxFuture<'static, T>>) -> T {
    match waited {
        Some(waited) => waited.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_due_is_not_waited_for() {
        let mut due = std::pin::pin!(until(Some(Instant::now())));
        assert!(futures::poll!(&mut due).is_ready());
        let mut later = std::pin::pin!(until(Some(Instant::now() + Duration::from_secs(3600))));
        assert!(futures::poll!(&mut later).is_pending());
    }
}

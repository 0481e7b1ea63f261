//! Bound pods of which the API server has yet to tell: each counts on its node for so long and no longer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::Cache;

pub(super) struct Confirmations {
    longest: Duration,
    /// By when the news is due, in order.
    due: VecDeque<(Instant, Arc<str>)>,
}

impl Confirmations {
    pub(super) fn new(longest: Duration) -> Self {
        Self { longest, due: VecDeque::new() }
    }

    /// From now on the API server should tell of it.
    pub(super) fn expect(&mut self, uid: &Arc<str>, now: Instant, cache: &Cache) {
        // Most have been confirmed meanwhile, and in order: the list stays short.
        while self.due.front().is_some_and(|(_, uid)| !cache.is_assumed(uid)) {
            self.due.pop_front();
        }
        if cache.is_assumed(uid) {
            self.due.push_back((now + self.longest, uid.clone()));
        }
    }

    /// The next pod that should have been told of by now.
    pub(super) fn overdue(&mut self, now: Instant, cache: &Cache) -> Option<Arc<str>> {
        while self.due.front().is_some_and(|(until, uid)| *until <= now || !cache.is_assumed(uid)) {
            let (_, uid) = self.due.pop_front()?;
            if cache.is_assumed(&uid) {
                return Some(uid);
            }
        }
        None
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due.front().map(|(until, _)| *until)
    }
}

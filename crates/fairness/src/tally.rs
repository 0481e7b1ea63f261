//! What becomes of the requests of each FlowSchema, for the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Why a request is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    QueueFull,
    ConcurrencyLimit,
    TimeOut,
    /// Whoever asked has gone.
    Cancelled,
}

impl Refusal {
    const ALL: [Self; 4] = [Self::QueueFull, Self::ConcurrencyLimit, Self::TimeOut, Self::Cancelled];

    /// As metrics call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The requests of one schema at one level.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    waiting: AtomicU64,
    running: AtomicU64,
    seats: AtomicU64,
    dispatched: AtomicU64,
    refused: [AtomicU64; 4],
}

/// The same as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowNow {
    pub schema: String,
    pub level: String,
    pub waiting: u64,
    pub running: u64,
    pub seats: u64,
    pub dispatched: u64,
    /// Those that happened at all.
    pub refused: Vec<(Refusal, u64)>,
}

/// By schema and level. One that is gone keeps its numbers: counters never go back.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<BTreeMap<(String, String), Arc<Tally>>>);

impl Tallies {
    pub(crate) fn of(&self, schema: &str, level: &str) -> Arc<Tally> {
        self.0.lock().entry((schema.to_owned(), level.to_owned())).or_default().clone()
    }

    pub(crate) fn now(&self) -> Vec<FlowNow> {
        let all = self.0.lock();
        let now = all.iter().map(|((schema, level), tally)| {
            let refused = Refusal::ALL.into_iter().zip(tally.refused.iter().map(|count| count.load(Relaxed)));
            FlowNow {
                schema: schema.clone(),
                level: level.clone(),
                waiting: tally.waiting.load(Relaxed),
                running: tally.running.load(Relaxed),
                seats: tally.seats.load(Relaxed),
                dispatched: tally.dispatched.load(Relaxed),
                refused: refused.filter(|(_, count)| *count > 0).collect(),
            }
        });
        now.collect()
    }
}

/// A request that has no answer to its wish yet. Dropped without one it was cancelled.
pub(crate) struct Asking {
    tally: Arc<Tally>,
    answered: bool,
}

impl Asking {
    pub(crate) fn new(tally: Arc<Tally>) -> Self {
        tally.waiting.fetch_add(1, Relaxed);
        Self { tally, answered: false }
    }

    pub(crate) fn granted(mut self, seats: usize) -> Running {
        self.answered = true;
        let seats = seats as u64;
        self.tally.dispatched.fetch_add(1, Relaxed);
        self.tally.running.fetch_add(1, Relaxed);
        self.tally.seats.fetch_add(seats, Relaxed);
        Running { tally: self.tally.clone(), seats }
    }

    pub(crate) fn refused(mut self, why: Refusal) {
        self.answered = true;
        self.tally.refuse(why);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.tally.waiting.fetch_sub(1, Relaxed);
        if !self.answered {
            self.tally.refuse(Refusal::Cancelled);
        }
    }
}

impl Tally {
    fn refuse(&self, why: Refusal) {
        if let Some((_, count)) = Refusal::ALL.into_iter().zip(&self.refused).find(|(reason, _)| *reason == why) {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// A request that runs.
pub(crate) struct Running {
    tally: Arc<Tally>,
    seats: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tally.running.fetch_sub(1, Relaxed);
        self.tally.seats.fetch_sub(self.seats, Relaxed);
    }
}

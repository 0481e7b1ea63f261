//! Seats and queues: who runs, who waits, and who is next.
//!
//! Every limited level has a share of the server's seats. The part of it that the level may lend is in a pool that levels
//! above their guaranteed part draw from, those below their share first. Upstream moves lent seats every ten seconds by
//! the demand it saw; here they are lent and given back with each request.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_meta::object::{name, text};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::tally::Refusal;

/// A request counts this long against its flow until it is known how long it took.
const GUESS_SECONDS: f64 = 0.003;

/// What a PriorityLevelConfiguration says.
pub(crate) struct LevelConfig {
    name: String,
    exempt: bool,
    shares: usize,
    lendable_percent: usize,
    borrowing_percent: Option<usize>,
    /// Queues, hand size, queue length; None where excess requests are refused at once.
    queuing: Option<(usize, usize, usize)>,
}

impl LevelConfig {
    pub(crate) fn read(level: &Value) -> Self {
        let exempt = text(level, "/spec/type") == "Exempt";
        let part = if exempt { "exempt" } else { "limited" };
        let number = |field: &str, default: usize| {
            let value = level.pointer(&format!("/spec/{part}/{field}")).and_then(Value::as_u64);
            value.map_or(default, |v| usize::try_from(v).unwrap_or(usize::MAX).min(1_000_000))
        };
        let queues = text(level, "/spec/limited/limitResponse/type") == "Queue";
        let borrowing = level.pointer("/spec/limited/borrowingLimitPercent").and_then(Value::as_u64);
        let deck = number("limitResponse/queuing/queues", 64).clamp(1, 10_000);
        Self {
            name: name(level).to_owned(),
            exempt,
            shares: number("nominalConcurrencyShares", if exempt { 0 } else { 30 }),
            lendable_percent: number("lendablePercent", 0).min(100),
            borrowing_percent: borrowing.map(|percent| usize::try_from(percent).unwrap_or(usize::MAX).min(1_000_000)),
            queuing: queues.then(|| {
                let hand = number("limitResponse/queuing/handSize", 8).clamp(1, deck.min(16));
                (deck, hand, number("limitResponse/queuing/queueLengthLimit", 50).max(1))
            }),
        }
    }
}

pub(crate) struct Seats {
    total: usize,
    hasher: RandomState,
    state: Mutex<Levels>,
}

#[derive(Default)]
struct Levels {
    /// A level keeps its place for good, so that a place means the same to a request that comes late.
    levels: Vec<Level>,
    /// What levels lend, and how much of it is taken.
    pool: usize,
    pool_used: usize,
    waiting: usize,
    next_ticket: u64,
}

#[derive(Default)]
struct Level {
    name: String,
    exempt: bool,
    nominal: usize,
    /// Nobody else may take these.
    guaranteed: usize,
    most: usize,
    in_use: usize,
    queues: Vec<Queue>,
    hand: usize,
    longest: usize,
    waiting: usize,
    /// How far the flow that was served last had come.
    progress: f64,
    counts: Counts,
}

/// What became of a level's requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub dispatched: u64,
    pub rejected: u64,
    pub timed_out: u64,
}

/// How many seats a level has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub nominal: usize,
    /// What is left when all that it lends is taken.
    pub lower: usize,
    /// With what it may borrow.
    pub upper: usize,
    /// What it could use at this moment.
    pub current: usize,
}

/// A level as it is now, for those who look after a server.
pub struct LevelNow {
    pub name: String,
    pub exempt: bool,
    pub in_use: usize,
    pub waiting: usize,
    pub limits: Limits,
    pub counts: Counts,
    /// Of each queue: requests that wait, seats in use, seat-seconds it was given.
    pub queues: Vec<(usize, usize, f64)>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    in_use: usize,
    /// Seat-seconds that this queue was given, never less than what others had when it became busy.
    served: f64,
}

struct Waiter {
    ticket: u64,
    width: usize,
    granted: oneshot::Sender<()>,
}

/// Seats in use, given back when this is dropped.
pub struct Seat {
    seats: Arc<Seats>,
    level: usize,
    queue: Option<usize>,
    width: usize,
    since: Instant,
}

impl Seat {
    /// How many it is; none where they are not counted.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.leave(self.level, self.queue, self.width, self.since.elapsed());
    }
}

impl Level {
    fn drawn(&self, in_use: usize) -> usize {
        in_use.saturating_sub(self.guaranteed)
    }
}

impl Levels {
    fn may_run(&self, level: &Level, width: usize) -> bool {
        let after = level.in_use + width;
        let more = level.drawn(after) - level.drawn(level.in_use);
        after <= level.most && (more == 0 || self.pool_used + more <= self.pool)
    }

    fn take(&mut self, place: usize, width: usize) {
        let level = &mut self.levels[place];
        let before = level.drawn(level.in_use);
        level.in_use += width;
        self.pool_used += level.drawn(level.in_use) - before;
    }

    fn give_back(&mut self, place: usize, width: usize) {
        let level = &mut self.levels[place];
        let before = level.drawn(level.in_use);
        level.in_use = level.in_use.saturating_sub(width);
        let freed = before - level.drawn(level.in_use);
        self.pool_used = self.pool_used.saturating_sub(freed);
    }

    /// The queue whose flows were served least so far; of equals the shortest, so that no flood goes before a single request.
    fn next_queue(&self, level: &Level) -> Option<usize> {
        let busy = level.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        let order = |a: &Queue, b: &Queue| a.served.total_cmp(&b.served).then(a.waiting.len().cmp(&b.waiting.len()));
        busy.min_by(|(_, a), (_, b)| order(a, b)).map(|(index, _)| index)
    }

    /// Lets run whoever can, levels below their share first.
    fn dispatch(&mut self) {
        while self.waiting > 0 {
            let next = self
                .levels
                .iter()
                .enumerate()
                .filter(|(_, level)| level.waiting > 0)
                .filter_map(|(place, level)| {
                    let queue = self.next_queue(level)?;
                    let width = level.queues[queue].waiting.front()?.width;
                    let used = level.in_use as f64 / level.nominal.max(1) as f64;
                    self.may_run(level, width).then_some((place, queue, used))
                })
                .min_by(|a, b| a.2.total_cmp(&b.2));
            let Some((place, queue, _)) = next else { return };
            let level = &mut self.levels[place];
            let Some(waiter) = level.queues[queue].waiting.pop_front() else { return };
            level.waiting -= 1;
            self.waiting -= 1;
            level.progress = level.progress.max(level.queues[queue].served);
            level.queues[queue].served += waiter.width as f64 * GUESS_SECONDS;
            level.queues[queue].in_use += waiter.width;
            level.counts.dispatched += 1;
            self.take(place, waiter.width);
            // Whether or not its request is still there: who waits gives back what was granted too late.
            let _ = waiter.granted.send(());
        }
    }
}

impl Seats {
    pub(crate) fn new(total: usize) -> Self {
        Self { total: total.max(1), hasher: RandomState::new(), state: Mutex::default() }
    }

    /// Takes over what the levels are now; returns the place of each.
    pub(crate) fn configure(&self, configs: &[LevelConfig]) -> Vec<usize> {
        let mut state = self.state.lock();
        let sum: usize = configs.iter().map(|config| config.shares).sum();
        for level in &mut state.levels {
            // A level that is gone finishes what it has on what it has.
            (level.nominal, level.guaranteed) = (0, 0);
        }
        let mut places = Vec::new();
        for config in configs {
            let place = match state.levels.iter().position(|level| level.name == config.name) {
                Some(place) => place,
                None => {
                    state.levels.push(Level { name: config.name.clone(), ..Level::default() });
                    state.levels.len() - 1
                }
            };
            places.push(place);
            let level = &mut state.levels[place];
            level.exempt = config.exempt;
            level.nominal = if sum == 0 { 0 } else { (self.total * config.shares).div_ceil(sum) };
            let lendable = (level.nominal * config.lendable_percent + 50) / 100;
            level.guaranteed = level.nominal - lendable;
            level.most = match config.borrowing_percent {
                Some(percent) => level.nominal + (level.nominal * percent + 50) / 100,
                None => self.total.max(level.nominal),
            };
            let (deck, hand, longest) = config.queuing.unwrap_or((0, 0, 0));
            (level.hand, level.longest) = (hand, longest);
            // Queues that are gone keep those who wait there; nobody new is dealt to them.
            while level.queues.len() > deck
                && level.queues.last().is_some_and(|q| q.waiting.is_empty() && q.in_use == 0)
            {
                level.queues.pop();
            }
            while level.queues.len() < deck {
                level.queues.push(Queue::default());
            }
        }
        state.pool = state.levels.iter().filter(|l| !l.exempt).map(|level| level.nominal - level.guaranteed).sum();
        state.pool_used = state.levels.iter().filter(|l| !l.exempt).map(|level| level.drawn(level.in_use)).sum();
        state.dispatch();
        places
    }

    /// The request may be refused at once, or after it waited in vain.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        place: usize,
        flow: &str,
        width: usize,
        patience: Duration,
    ) -> Result<Seat, Refusal> {
        let (waiting, granted) = {
            let mut state = self.state.lock();
            let level = state.levels.get_mut(place).ok_or(Refusal::ConcurrencyLimit)?;
            if level.exempt {
                level.counts.dispatched += 1;
                return Ok(self.seat(usize::MAX, None, 0));
            }
            let level = &state.levels[place];
            // One request alone always fits its level, however wide it is.
            let width = width.clamp(1, level.nominal.max(1));
            if level.waiting == 0 && state.may_run(level, width) {
                state.take(place, width);
                state.levels[place].counts.dispatched += 1;
                return Ok(self.seat(place, None, width));
            }
            if level.hand == 0 {
                state.levels[place].counts.rejected += 1;
                return Err(Refusal::ConcurrencyLimit);
            }
            let hand = deal(self.hasher.hash_one(flow), level.queues.len(), level.hand);
            let load = |queue: &Queue| queue.waiting.iter().map(|w| w.width).sum::<usize>() + queue.in_use;
            let queue = hand.into_iter().min_by_key(|queue| load(&level.queues[*queue])).ok_or(Refusal::QueueFull)?;
            if level.queues[queue].waiting.len() >= level.longest {
                state.levels[place].counts.rejected += 1;
                return Err(Refusal::QueueFull);
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting += 1;
            let (sender, granted) = oneshot::channel();
            let level = &mut state.levels[place];
            level.waiting += 1;
            let progress = level.progress;
            let chosen = &mut level.queues[queue];
            if chosen.waiting.is_empty() && chosen.in_use == 0 {
                chosen.served = chosen.served.max(progress);
            }
            chosen.waiting.push_back(Waiter { ticket, width, granted: sender });
            state.dispatch();
            (Waiting { seats: self.clone(), place, queue, ticket, width, done: false }, granted)
        };
        let mut waiting = waiting;
        match tokio::time::timeout(patience, granted).await {
            Ok(Ok(())) => {
                waiting.done = true;
                Ok(self.seat(place, Some(waiting.queue), waiting.width))
            }
            // Dropping it takes it out of its queue, or gives back what it was granted at the last moment.
            _ => {
                self.state.lock().levels[place].counts.timed_out += 1;
                Err(Refusal::TimeOut)
            }
        }
    }

    fn seat(self: &Arc<Self>, level: usize, queue: Option<usize>, width: usize) -> Seat {
        Seat { seats: self.clone(), level, queue, width, since: Instant::now() }
    }

    fn leave(&self, place: usize, queue: Option<usize>, width: usize, took: Duration) {
        if place == usize::MAX {
            return;
        }
        let mut state = self.state.lock();
        if let Some(queue) = queue.and_then(|queue| state.levels[place].queues.get_mut(queue)) {
            queue.in_use = queue.in_use.saturating_sub(width);
            queue.served += width as f64 * (took.as_secs_f64() - GUESS_SECONDS);
        }
        state.give_back(place, width);
        state.dispatch();
    }

    pub(crate) fn now(&self) -> Vec<LevelNow> {
        let state = self.state.lock();
        let queue = |queue: &Queue| (queue.waiting.len(), queue.in_use, queue.served);
        let level = |level: &Level| LevelNow {
            name: level.name.clone(),
            exempt: level.exempt,
            in_use: level.in_use,
            waiting: level.waiting,
            limits: Limits {
                nominal: level.nominal,
                lower: level.guaranteed,
                upper: level.most,
                current: level
                    .most
                    .min(level.guaranteed + level.drawn(level.in_use) + state.pool.saturating_sub(state.pool_used)),
            },
            counts: level.counts,
            queues: level.queues.iter().map(queue).collect(),
        };
        state.levels.iter().map(level).collect()
    }

    pub(crate) fn levels(&self) -> Vec<(String, usize, usize)> {
        self.state.lock().levels.iter().map(|l| (l.name.clone(), l.in_use, l.waiting)).collect()
    }
}

/// A request in a queue. It leaves the queue when nobody waits for it any more.
struct Waiting {
    seats: Arc<Seats>,
    place: usize,
    queue: usize,
    ticket: u64,
    width: usize,
    done: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let removed = {
            let mut state = self.seats.state.lock();
            let level = &mut state.levels[self.place];
            let queue = level.queues.get_mut(self.queue);
            let at = queue.as_ref().and_then(|q| q.waiting.iter().position(|w| w.ticket == self.ticket));
            match (queue, at) {
                (Some(queue), Some(at)) => {
                    queue.waiting.remove(at);
                    level.waiting -= 1;
                    state.waiting -= 1;
                    true
                }
                _ => false,
            }
        };
        if !removed {
            self.seats.leave(self.place, Some(self.queue), self.width, Duration::ZERO);
        }
    }
}

/// A hand of different queues, the same for the same flow.
fn deal(mut hash: u64, deck: usize, hand: usize) -> Vec<usize> {
    let mut cards: Vec<usize> = Vec::with_capacity(hand);
    for dealt in 0..hand.min(deck) {
        let left = (deck - dealt) as u64;
        let mut card = usize::try_from(hash % left).unwrap_or(0);
        hash /= left;
        let mut before = cards.clone();
        before.sort_unstable();
        for one in before {
            if card >= one {
                card += 1;
            }
        }
        cards.push(card);
    }
    cards
}

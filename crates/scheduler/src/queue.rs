//! Pods that wait for a node: to be tried next, later, or once something happens that may help.
//!
//! Time comes in as an argument, so that the queue is a pure data structure.

mod heap;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::framework::{Events, Happening, Profile};
use crate::model::PodInfo;
use heap::{Entry, Heap};

/// Tried again after this long even if nothing happened: a safety net under the events.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct QueuedPod {
    pub pod: Arc<PodInfo>,
    pub attempts: u32,
    /// When it was first seen.
    pub first: Instant,
    /// When it came to be tried; the older goes first.
    pub since: Instant,
    /// The order of arrival among those of the same instant.
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubQueue {
    Active,
    /// After a failure, until a time. `early` ones may be taken before it when nothing else waits.
    Backoff {
        until: Instant,
        early: bool,
    },
    Unschedulable {
        until: Instant,
    },
    Gated,
    InFlight,
    /// Between two of these.
    Nowhere,
}

#[derive(Debug)]
struct Record {
    queued: QueuedPod,
    place: SubQueue,
    /// The heap's entry that stands for it; others are leftovers.
    ticket: u64,
    rejecting: Vec<&'static str>,
    /// What may help those plugins; counted while the pod waits.
    interest: Events,
    failed_at: Option<Instant>,
    /// How much had happened when it was taken to be tried.
    taken_at: u64,
}

pub struct Queue {
    profiles: Arc<HashMap<String, Profile>>,
    records: HashMap<Arc<str>, Record>,
    active: Heap,
    backoff: BTreeSet<(Instant, u64, Arc<str>)>,
    /// The unschedulable ones, by when they are tried again at the latest.
    waiting: BTreeSet<(Instant, u64, Arc<str>)>,
    /// How many of the waiting pods each event may help, so that most events cost nothing.
    interests: [usize; Events::COUNT],
    /// How often something happened, and for each event how often when it came last: whoever is being tried while something
    /// happens, because an extender is asked say, has not seen it.
    moment: u64,
    happened: [u64; Events::COUNT],
    next: u64,
    gated: usize,
    /// Those of the gated pods that an event may let in.
    held: BTreeSet<Arc<str>>,
    in_flight: usize,
    /// How many pods came into which queue by which event, since someone asked.
    arrivals: BTreeMap<(&'static str, &'static str), u64>,
    /// How many pods that are not being tried each plugin rejected, by profile.
    rejected: BTreeMap<(&'static str, String), usize>,
    initial_backoff: Duration,
    longest_backoff: Duration,
}

impl Queue {
    pub fn new(profiles: Arc<HashMap<String, Profile>>, initial_backoff: Duration, longest_backoff: Duration) -> Self {
        Self {
            initial_backoff,
            longest_backoff,
            profiles,
            records: HashMap::new(),
            active: Heap::default(),
            backoff: BTreeSet::new(),
            waiting: BTreeSet::new(),
            interests: [0; Events::COUNT],
            moment: 0,
            happened: [0; Events::COUNT],
            gated: 0,
            held: BTreeSet::new(),
            in_flight: 0,
            arrivals: BTreeMap::new(),
            rejected: BTreeMap::new(),
            next: 0,
        }
    }

    /// Takes in a pod without a node, new or changed. `matters` says whether a change may affect its placement.
    pub fn set(&mut self, pod: Arc<PodInfo>, matters: bool, now: Instant) {
        if !self.profiles.contains_key(&pod.scheduler) || pod.is_terminating {
            self.remove(&pod.uid);
            return;
        }
        let uid = pod.uid.clone();
        match self.records.get_mut(&uid) {
            None => {
                self.next += 1;
                let queued = QueuedPod { pod, attempts: 0, first: now, since: now, sequence: self.next };
                let record = Record {
                    queued,
                    place: SubQueue::Nowhere,
                    ticket: 0,
                    rejecting: Vec::new(),
                    interest: Events::NONE,
                    failed_at: None,
                    taken_at: 0,
                };
                self.records.insert(uid.clone(), record);
                self.activate(&uid, "UnscheduledPodAdd", now);
            }
            Some(record) => {
                record.queued.pod = pod;
                match record.place {
                    SubQueue::Gated => self.activate(&uid, "UnscheduledPodUpdate", now),
                    SubQueue::Unschedulable { .. } if matters => self.wake(&uid, "UnscheduledPodUpdate", now),
                    _ => {}
                }
            }
        }
    }

    pub fn remove(&mut self, uid: &str) {
        self.leave(uid);
        self.reject(uid, Vec::new());
        self.records.remove(uid);
    }

    /// How many pods came into which queue by which event, since this was asked last.
    pub fn arrivals(&mut self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<> {
        std::mem::take(&mut self.arrivals).into_iter().map(|((queue, event), count)| (queue, event, count))
    }

    /// How many waiting pods each plugin rejected, by profile. Those of none are told once.
    pub fn rejected(&mut self) -> impl Iterator<Item = (&'static str, String, usize)> + use<> {
        let told = self.rejected.clone();
        self.rejected.retain(|_, count| *count > 0);
        told.into_iter().map(|((plugin, profile), count)| (plugin, profile, count))
    }

    /// Pods between their attempt and its end.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn arrived(&mut self, queue: &'static str, event: &'static str) {
        *self.arrivals.entry((queue, event)).or_default() += 1;
    }

    /// Notes who rejected the pod, instead of those before.
    fn reject(&mut self, uid: &str, rejecting: Vec<&'static str>) {
        let Some(record) = self.records.get_mut(uid) else { return };
        let profile = &record.queued.pod.scheduler;
        for plugin in &record.rejecting {
            if let Some(count) = self.rejected.get_mut(&(*plugin, profile.clone())) {
                *count = count.saturating_sub(1);
            }
        }
        for plugin in &rejecting {
            *self.rejected.entry((*plugin, profile.clone())).or_default() += 1;
        }
        record.rejecting = rejecting;
    }

    /// How many pods are where, by upstream's names.
    pub fn sizes(&self) -> [(&'static str, usize); 4] {
        let active = self.records.len() - self.backoff.len() - self.waiting.len() - self.gated - self.in_flight;
        [
            ("active", active),
            ("backoff", self.backoff.len()),
            ("unschedulable", self.waiting.len()),
            ("gated", self.gated),
        ]
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.records.contains_key(uid)
    }

    pub fn get(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.records.get(uid).map(|record| &record.queued.pod)
    }

    /// The next pod to try. It stays known until `remove` or `failed`.
    pub fn pop(&mut self, now: Instant) -> Option<QueuedPod> {
        self.flush(now);
        let uid = self.pop_active().or_else(|| self.pop_early())?;
        self.reject(&uid, Vec::new());
        let record = self.records.get_mut(&uid)?;
        record.place = SubQueue::InFlight;
        record.taken_at = self.moment;
        self.in_flight += 1;
        record.queued.attempts += 1;
        Some(record.queued.clone())
    }

    fn pop_active(&mut self) -> Option<Arc<str>> {
        let Self { active, records, profiles, .. } = self;
        let order = |left: &Entry, right: &Entry| {
            profiles.values().next().map_or(Ordering::Equal, |profile| profile.order(&left.queued, &right.queued))
        };
        while let Some(entry) = active.pop(order) {
            let uid = &entry.queued.pod.uid;
            if records.get(uid).is_some_and(|record| record.ticket == entry.ticket && record.place == SubQueue::Active)
            {
                return Some(uid.clone());
            }
        }
        None
    }

    /// Waiting out a penalty helps nobody while the scheduler is idle, unless the failure was an error.
    fn pop_early(&mut self) -> Option<Arc<str>> {
        let is_early = |uid: &Arc<str>| {
            self.records.get(uid).is_some_and(|record| matches!(record.place, SubQueue::Backoff { early: true, .. }))
        };
        let uid = self.backoff.iter().find(|(_, _, uid)| is_early(uid))?.2.clone();
        self.leave(&uid);
        self.arrived("active", "PopFromBackoffQ");
        Some(uid)
    }

    /// No node was found: it waits for an event that may help one of the plugins that rejected it.
    pub fn failed(&mut self, uid: &str, rejecting: Vec<&'static str>, now: Instant) {
        self.leave(uid);
        self.reject(uid, rejecting);
        if let Some(record) = self.records.get_mut(uid) {
            let profile = self.profiles.get(&record.queued.pod.scheduler);
            record.interest = profile.map_or(Events::ALL, |profile| profile.interest(&record.rejecting));
            record.failed_at = Some(now);
            let mut missed = false;
            record.interest.each(|event| missed |= self.happened[event] > record.taken_at);
            if missed {
                return self.wake(uid, "ScheduleAttemptFailure", now);
            }
            record.place = SubQueue::Unschedulable { until: now + LONGEST_WAIT };
            record.interest.each(|event| self.interests[event] += 1);
            self.waiting.insert((now + LONGEST_WAIT, record.queued.sequence, record.queued.pod.uid.clone()));
            self.arrived("unschedulable", "ScheduleAttemptFailure");
        }
    }

    /// Something went wrong that has nothing to do with the cluster's state: it is tried again after a while.
    pub fn errored(&mut self, uid: &str, now: Instant) {
        self.leave(uid);
        if let Some(record) = self.records.get_mut(uid) {
            record.failed_at = Some(now);
            let until = now + doubled(self.initial_backoff, self.longest_backoff, record.queued.attempts);
            record.place = SubQueue::Backoff { until, early: false };
            self.backoff.insert((until, record.queued.sequence, record.queued.pod.uid.clone()));
            self.arrived("backoff", "ScheduleAttemptFailure");
        }
    }

    /// The same for a pod that waits for something that will not come; false when it does not wait.
    pub fn give_up_waiting(&mut self, uid: &str, now: Instant) -> bool {
        let waits = |record: &Record| matches!(record.place, SubQueue::Unschedulable { .. });
        let waits = self.records.get(uid).is_some_and(waits);
        if waits {
            self.errored(uid, now);
        }
        waits
    }

    /// Wakes the pods that what happened may help.
    pub fn happen(&mut self, happening: &Happening<'_>, now: Instant) {
        self.moment += 1;
        happening.events.each(|event| self.happened[event] = self.moment);
        let mut concerned = false;
        happening.events.each(|event| concerned |= self.interests[event] > 0);
        if !concerned {
            return;
        }
        let is_helped = |uid: &Arc<str>| {
            self.records.get(uid).is_some_and(|record| {
                let profile = self.profiles.get(&record.queued.pod.scheduler);
                profile.is_some_and(|profile| profile.helps(&record.rejecting, &record.queued.pod, happening))
            })
        };
        let helped: Vec<Arc<str>> =
            self.waiting.iter().map(|(_, _, uid)| uid).filter(|uid| is_helped(uid)).cloned().collect();
        let released: Vec<Arc<str>> = self.held.iter().filter(|uid| is_helped(uid)).cloned().collect();
        for uid in helped {
            self.wake(&uid, happening.events.label(), now);
        }
        for uid in released {
            self.activate(&uid, happening.events.label(), now);
        }
    }

    /// Tries it again as soon as its penalty allows.
    fn wake(&mut self, uid: &str, event: &'static str, now: Instant) {
        self.leave(uid);
        let Some(record) = self.records.get_mut(uid) else { return };
        let penalty = doubled(self.initial_backoff, self.longest_backoff, record.queued.attempts);
        let until = record.failed_at.map(|failed| failed + penalty);
        match until {
            Some(until) if until > now => {
                record.place = SubQueue::Backoff { until, early: true };
                self.backoff.insert((until, record.queued.sequence, record.queued.pod.uid.clone()));
                self.arrived("backoff", event);
            }
            _ => self.activate(uid, event, now),
        }
    }

    /// Takes it out of where it is.
    fn leave(&mut self, uid: &str) {
        let Some(record) = self.records.get_mut(uid) else { return };
        match std::mem::replace(&mut record.place, SubQueue::Nowhere) {
            SubQueue::Backoff { until, .. } => {
                self.backoff.remove(&(until, record.queued.sequence, record.queued.pod.uid.clone()));
            }
            SubQueue::Unschedulable { until } => {
                record.interest.each(|event| self.interests[event] -= 1);
                self.waiting.remove(&(until, record.queued.sequence, record.queued.pod.uid.clone()));
            }
            SubQueue::Gated => {
                self.gated -= 1;
                if self.held.remove(uid) {
                    record.interest.each(|event| self.interests[event] -= 1);
                }
            }
            SubQueue::InFlight => self.in_flight -= 1,
            SubQueue::Active | SubQueue::Nowhere => {}
        }
    }

    fn activate(&mut self, uid: &str, event: &'static str, now: Instant) {
        self.leave(uid);
        let Some(record) = self.records.get_mut(uid) else { return };
        let profile = self.profiles.get(&record.queued.pod.scheduler);
        if let Some(Err((plugin, _))) = profile.map(|profile| profile.pre_enqueue(&record.queued.pod)) {
            record.place = SubQueue::Gated;
            self.gated += 1;
            record.interest = profile.map_or(Events::NONE, |profile| profile.interest(&[plugin]));
            if !record.interest.is_none() {
                record.interest.each(|event| self.interests[event] += 1);
                self.held.insert(record.queued.pod.uid.clone());
            }
            self.reject(uid, vec![plugin]);
            return self.arrived("gated", event);
        }
        self.next += 1;
        record.ticket = self.next;
        record.place = SubQueue::Active;
        record.queued.since = now;
        let entry = Entry { queued: record.queued.clone(), ticket: self.next };
        let profiles = &self.profiles;
        self.active.push(entry, |left, right| {
            profiles.values().next().map_or(Ordering::Equal, |profile| profile.order(&left.queued, &right.queued))
        });
        self.arrived("active", event);
    }

    fn flush(&mut self, now: Instant) {
        let due = |list: &BTreeSet<(Instant, u64, Arc<str>)>| {
            list.first().filter(|(until, ..)| *until <= now).map(|(_, _, uid)| uid.clone())
        };
        while let Some(uid) = due(&self.backoff) {
            self.activate(&uid, "BackoffComplete", now);
        }
        while let Some(uid) = due(&self.waiting) {
            self.activate(&uid, "UnschedulableTimeout", now);
        }
    }

    /// When time alone will make a pod worth trying.
    pub fn next_deadline(&self) -> Option<Instant> {
        [&self.backoff, &self.waiting].into_iter().filter_map(|list| Some(list.first()?.0)).min()
    }
}

fn doubled(initial: Duration, longest: Duration, attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(20);
    initial.saturating_mul(1 << doublings).min(longest)
}

#[cfg(test)]
mod tests;

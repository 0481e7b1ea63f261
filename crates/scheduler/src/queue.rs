//! Pods that wait for a node: to be tried next, later, or once something happens that may help.
//!
//! Time comes in as an argument, so that the queue is a pure data structure.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::framework::{Events, Happening, Profile};
use crate::model::PodInfo;

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
enum Place {
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
    place: Place,
    /// The heap's entry that stands for it; others are leftovers.
    ticket: u64,
    rejecting: Vec<&'static str>,
    /// What may help those plugins; counted while the pod waits.
    interest: Events,
    failed_at: Option<Instant>,
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
    next: u64,
    gated: usize,
    in_flight: usize,
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
            gated: 0,
            in_flight: 0,
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
                    place: Place::Nowhere,
                    ticket: 0,
                    rejecting: Vec::new(),
                    interest: Events::NONE,
                    failed_at: None,
                };
                self.records.insert(uid.clone(), record);
                self.activate(&uid, now);
            }
            Some(record) => {
                record.queued.pod = pod;
                match record.place {
                    Place::Gated => self.activate(&uid, now),
                    Place::Unschedulable { .. } if matters => self.wake(&uid, now),
                    _ => {}
                }
            }
        }
    }

    pub fn remove(&mut self, uid: &str) {
        self.leave(uid);
        self.records.remove(uid);
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
        let record = self.records.get_mut(&uid)?;
        record.place = Place::InFlight;
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
            if records.get(uid).is_some_and(|record| record.ticket == entry.ticket && record.place == Place::Active) {
                return Some(uid.clone());
            }
        }
        None
    }

    /// Waiting out a penalty helps nobody while the scheduler is idle, unless the failure was an error.
    fn pop_early(&mut self) -> Option<Arc<str>> {
        let is_early = |uid: &Arc<str>| {
            self.records.get(uid).is_some_and(|record| matches!(record.place, Place::Backoff { early: true, .. }))
        };
        let uid = self.backoff.iter().find(|(_, _, uid)| is_early(uid))?.2.clone();
        self.leave(&uid);
        Some(uid)
    }

    /// No node was found: it waits for an event that may help one of the plugins that rejected it.
    pub fn failed(&mut self, uid: &str, rejecting: Vec<&'static str>, now: Instant) {
        self.leave(uid);
        if let Some(record) = self.records.get_mut(uid) {
            let profile = self.profiles.get(&record.queued.pod.scheduler);
            record.interest = profile.map_or(Events::ALL, |profile| profile.interest(&rejecting));
            record.rejecting = rejecting;
            record.failed_at = Some(now);
            record.place = Place::Unschedulable { until: now + LONGEST_WAIT };
            record.interest.each(|event| self.interests[event] += 1);
            self.waiting.insert((now + LONGEST_WAIT, record.queued.sequence, record.queued.pod.uid.clone()));
        }
    }

    /// Something went wrong that has nothing to do with the cluster's state: it is tried again after a while.
    pub fn errored(&mut self, uid: &str, now: Instant) {
        self.leave(uid);
        if let Some(record) = self.records.get_mut(uid) {
            record.failed_at = Some(now);
            let until = now + doubled(self.initial_backoff, self.longest_backoff, record.queued.attempts);
            record.place = Place::Backoff { until, early: false };
            self.backoff.insert((until, record.queued.sequence, record.queued.pod.uid.clone()));
        }
    }

    /// Wakes the pods that what happened may help.
    pub fn happen(&mut self, happening: &Happening<'_>, now: Instant) {
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
        for uid in helped {
            self.wake(&uid, now);
        }
    }

    /// Tries it again as soon as its penalty allows.
    fn wake(&mut self, uid: &str, now: Instant) {
        self.leave(uid);
        let Some(record) = self.records.get_mut(uid) else { return };
        let penalty = doubled(self.initial_backoff, self.longest_backoff, record.queued.attempts);
        let until = record.failed_at.map(|failed| failed + penalty);
        match until {
            Some(until) if until > now => {
                record.place = Place::Backoff { until, early: true };
                self.backoff.insert((until, record.queued.sequence, record.queued.pod.uid.clone()));
            }
            _ => self.activate(uid, now),
        }
    }

    /// Takes it out of where it is.
    fn leave(&mut self, uid: &str) {
        let Some(record) = self.records.get_mut(uid) else { return };
        match std::mem::replace(&mut record.place, Place::Nowhere) {
            Place::Backoff { until, .. } => {
                self.backoff.remove(&(until, record.queued.sequence, record.queued.pod.uid.clone()));
            }
            Place::Unschedulable { until } => {
                record.interest.each(|event| self.interests[event] -= 1);
                self.waiting.remove(&(until, record.queued.sequence, record.queued.pod.uid.clone()));
            }
            Place::Gated => self.gated -= 1,
            Place::InFlight => self.in_flight -= 1,
            Place::Active | Place::Nowhere => {}
        }
    }

    fn activate(&mut self, uid: &str, now: Instant) {
        self.leave(uid);
        let Some(record) = self.records.get_mut(uid) else { return };
        let profile = self.profiles.get(&record.queued.pod.scheduler);
        if let Some(Err((plugin, _))) = profile.map(|profile| profile.pre_enqueue(&record.queued.pod)) {
            record.rejecting = vec![plugin];
            record.place = Place::Gated;
            self.gated += 1;
            return;
        }
        self.next += 1;
        record.ticket = self.next;
        record.place = Place::Active;
        record.queued.since = now;
        let entry = Entry { queued: record.queued.clone(), ticket: self.next };
        let profiles = &self.profiles;
        self.active.push(entry, |left, right| {
            profiles.values().next().map_or(Ordering::Equal, |profile| profile.order(&left.queued, &right.queued))
        });
    }

    fn flush(&mut self, now: Instant) {
        let due = |list: &BTreeSet<(Instant, u64, Arc<str>)>| {
            list.first().filter(|(until, ..)| *until <= now).map(|(_, _, uid)| uid.clone())
        };
        while let Some(uid) = due(&self.backoff).or_else(|| due(&self.waiting)) {
            self.activate(&uid, now);
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

#[derive(Debug)]
struct Entry {
    queued: QueuedPod,
    ticket: u64,
}

/// A binary heap whose order comes with each call, since a plugin decides it.
#[derive(Debug, Default)]
struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    fn push(&mut self, entry: Entry, order: impl Fn(&Entry, &Entry) -> Ordering) {
        self.entries.push(entry);
        let mut at = self.entries.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if order(&self.entries[at], &self.entries[parent]) != Ordering::Less {
                break;
            }
            self.entries.swap(at, parent);
            at = parent;
        }
    }

    fn pop(&mut self, order: impl Fn(&Entry, &Entry) -> Ordering) -> Option<Entry> {
        if self.entries.is_empty() {
            return None;
        }
        let first = self.entries.swap_remove(0);
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.entries.len() && order(&self.entries[child], &self.entries[least]) == Ordering::Less {
                    least = child;
                }
            }
            if least == at {
                return Some(first);
            }
            self.entries.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins;
    use crate::testing::pod;
    use serde_json::json;

    fn queue() -> Queue {
        let profiles = [("default-scheduler".to_owned(), plugins::default_profile("default-scheduler"))];
        Queue::new(Arc::new(profiles.into()), Duration::from_secs(1), Duration::from_secs(10))
    }

    fn popped(queue: &mut Queue, now: Instant) -> Option<String> {
        queue.pop(now).map(|queued| queued.pod.name.clone())
    }

    fn happening(events: Events) -> Happening<'static> {
        Happening { events, node: None, pod: None }
    }

    #[test]
    fn important_pods_go_first_then_older_ones() {
        let mut queue = queue();
        let now = Instant::now();
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)] {
            queue.set(pod(name, json!({"priority": priority})), true, now);
        }
        queue.remove("c");
        let order: Vec<String> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
        assert_eq!(order, ["b", "e", "a", "d"]);
    }

    #[test]
    fn a_rejected_pod_waits_for_what_can_help_it() {
        let mut queue = queue();
        let mut now = Instant::now();
        queue.set(pod("a", json!({})), true, now);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
        queue.failed("a", vec!["TaintToleration"], now);
        assert_eq!(popped(&mut queue, now), None);
        queue.happen(&happening(Events::POD_GONE), now);
        assert_eq!(popped(&mut queue, now), None, "no pod that goes changes a taint");
        queue.happen(&happening(Events::NODE_TAINTS), now);
        // Its penalty is not over, but nobody else waits.
        queue.set(pod("b", json!({})), true, now);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("b"));
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
        queue.errored("a", now);
        assert_eq!(popped(&mut queue, now), None, "an error must wait");
        assert_eq!(queue.next_deadline(), Some(now + Duration::from_secs(2)));
        now += Duration::from_secs(2);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
        queue.failed("a", vec!["TaintToleration"], now);
        now += LONGEST_WAIT;
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"), "the safety net");
    }

    #[test]
    fn a_pod_is_counted_in_one_place() {
        let mut queue = queue();
        let mut now = Instant::now();
        let check = |queue: &Queue, expected: [usize; 4]| assert_eq!(queue.sizes().map(|(_, count)| count), expected);
        queue.set(pod("a", json!({})), true, now);
        queue.set(pod("gated", json!({"schedulingGates": [{"name": "wait"}]})), true, now);
        check(&queue, [1, 0, 0, 1]);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
        check(&queue, [0, 0, 0, 1]);
        queue.failed("a", vec!["NodeResourcesFit"], now);
        check(&queue, [0, 0, 1, 1]);
        // Long after its failure it is tried at once.
        now += Duration::from_secs(60);
        queue.happen(&happening(Events::NODE_ADDED), now);
        check(&queue, [1, 0, 0, 1]);
        queue.happen(&happening(Events::NODE_ADDED), now);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
        queue.errored("a", now);
        check(&queue, [0, 1, 0, 1]);
        queue.remove("a");
        queue.remove("gated");
        check(&queue, [0, 0, 0, 0]);
    }

    #[test]
    fn gated_and_foreign_pods_are_not_tried() {
        let mut queue = queue();
        let now = Instant::now();
        queue.set(pod("gated", json!({"schedulingGates": [{"name": "wait"}]})), true, now);
        queue.set(pod("foreign", json!({"schedulerName": "other"})), true, now);
        assert_eq!(popped(&mut queue, now), None);
        queue.happen(&happening(Events::ALL), now);
        assert_eq!(popped(&mut queue, now), None);
        queue.set(pod("gated", json!({})), true, now);
        assert_eq!(popped(&mut queue, now).as_deref(), Some("gated"));
    }
}

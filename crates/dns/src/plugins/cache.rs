//! `cache`: answers of upstream resolvers, kept for as long as they say, within bounds on their number and bytes.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Words, zones};
use crate::corefile::{CorefileError, Directive};
use crate::message::Reply;

/// Bytes of answers as upstreams sent them, of all in one cache.
const MOST_BYTES: usize = 4 << 20;

/// What makes two questions the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) name: Name,
    pub(crate) kind: RecordType,
    pub(crate) dnssec_ok: bool,
    pub(crate) checking_disabled: bool,
}

/// How answers of one sort are kept.
#[derive(Clone, Copy, Debug)]
struct Part {
    capacity: usize,
    longest: u64,
    shortest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Prefetch {
    amount: u32,
    gap: Duration,
    percent: u32,
}

#[derive(Debug)]
pub(crate) struct Cache {
    zones: Vec<Name>,
    success: Part,
    denial: Part,
    prefetch: Option<Prefetch>,
    /// For how long after its end an answer may be told, and whether upstreams are asked first.
    stale: Option<(Duration, bool)>,
    servfail: Duration,
    keep_ttl: bool,
    most_bytes: usize,
    state: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    entries: HashMap<Key, Entry>,
    /// In the order in which they may have to go.
    order: VecDeque<Key>,
    bytes: usize,
    successes: usize,
    figures: Figures,
}

#[derive(Debug)]
struct Entry {
    reply: Reply,
    size: usize,
    stored: Instant,
    lifetime: Duration,
    success: bool,
    /// Asked for since it was last passed over.
    used: bool,
    asked: u32,
    last: Instant,
    refreshing: bool,
}

/// What happened, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) successes: usize,
    pub(crate) denials: usize,
    pub(crate) bytes: usize,
    pub(crate) requests: u64,
    pub(crate) hits: [u64; 2],
    pub(crate) misses: u64,
    pub(crate) evictions: [u64; 2],
    pub(crate) prefetched: u64,
    pub(crate) served_stale: u64,
}

/// What is known of a question.
#[derive(Debug)]
pub(crate) enum Found {
    /// `refresh` says that upstreams should be asked in the background.
    Answer {
        reply: Reply,
        refresh: bool,
    },
    Nothing,
}

impl Cache {
    pub(crate) fn read(directive: &Directive, block: &[Name]) -> Result<Self, CorefileError> {
        let words = Words::of(directive);
        let mut arguments = directive.arguments.as_slice();
        let (mut success, mut denial) = (3600, 1800);
        if let Some(ttl) = arguments.first().and_then(|word| word.parse().ok()) {
            (success, denial) = (ttl, ttl);
            arguments = &arguments[1..];
        }
        let zones = if arguments.is_empty() { block.to_vec() } else { zones(arguments, directive.line)? };
        let part = |longest| Part { capacity: 9984, longest, shortest: 0 };
        let mut this = Self {
            zones,
            success: part(success),
            denial: part(denial),
            prefetch: None,
            stale: None,
            servfail: Duration::from_secs(5),
            keep_ttl: false,
            most_bytes: MOST_BYTES,
            state: Mutex::default(),
        };
        for line in &directive.lines {
            this.option(line, &words)?;
        }
        Ok(this)
    }

    fn option(&mut self, line: &[String], words: &Words<'_>) -> Result<(), CorefileError> {
        let read_part = |part: &mut Part| -> Result<(), CorefileError> {
            part.capacity = words.number::<usize>(words.at(line, 1)?)?.min(1 << 20);
            if let Some(word) = line.get(2) {
                part.longest = words.number(word)?;
            }
            if let Some(word) = line.get(3) {
                part.shortest = words.number(word)?;
            }
            Ok(())
        };
        match words.at(line, 0)? {
            "success" => read_part(&mut self.success)?,
            "denial" => read_part(&mut self.denial)?,
            "prefetch" => {
                let amount = words.number(words.at(line, 1)?)?;
                let gap = line.get(2).map_or(Ok(Duration::from_secs(60)), |word| words.duration(word))?;
                let percent = line.get(3).map_or(Ok(10), |word| words.number(word.trim_end_matches('%')))?;
                self.prefetch = Some(Prefetch { amount, gap, percent: percent.clamp(10, 90) });
            }
            "serve_stale" => {
                let long = line.get(1).map_or(Ok(Duration::from_secs(3600)), |word| words.duration(word))?;
                let verify = match line.get(2).map(String::as_str) {
                    None | Some("immediate") => false,
                    Some("verify") => true,
                    Some(other) => return Err(words.wrong(format_args!("{other:?} is none of immediate and verify"))),
                };
                self.stale = Some((long, verify));
            }
            "servfail" => self.servfail = words.duration(words.at(line, 1)?)?.min(Duration::from_secs(300)),
            "keepttl" => self.keep_ttl = true,
            "disable" => match words.at(line, 1)? {
                "success" => self.success.capacity = 0,
                "denial" => self.denial.capacity = 0,
                other => return Err(words.wrong(format_args!("{other:?} is none of success and denial"))),
            },
            other => return Err(words.wrong(format_args!("{other:?} is not known"))),
        }
        Ok(())
    }

    pub(crate) fn is_for(&self, name: &Name) -> bool {
        self.zones.iter().any(|zone| zone.zone_of(name))
    }

    pub(crate) fn zones(&self) -> String {
        let names: Vec<String> = self.zones.iter().map(Name::to_ascii).collect();
        names.join(",")
    }

    /// What may be told at once.
    pub(crate) fn get(&self, key: &Key, now: Instant, counted: bool) -> Found {
        let mut state = self.state.lock();
        state.figures.requests += u64::from(counted);
        let Some(entry) = state.entries.get_mut(key) else {
            state.figures.misses += u64::from(counted);
            return Found::Nothing;
        };
        let age = now.saturating_duration_since(entry.stored);
        let left = entry.lifetime.saturating_sub(age);
        let gap = now.saturating_duration_since(entry.last);
        entry.asked = match self.prefetch {
            Some(prefetch) if gap > prefetch.gap => 1,
            _ => entry.asked.saturating_add(1),
        };
        entry.last = now;
        entry.used = true;
        let (refresh, stale) = match left.is_zero() {
            true => match self.stale {
                Some((long, false)) if age - entry.lifetime <= long => (true, true),
                _ => {
                    state.figures.misses += u64::from(counted);
                    return Found::Nothing;
                }
            },
            false => {
                let popular = self.prefetch.is_some_and(|prefetch| {
                    let soon = (entry.lifetime * prefetch.percent / 100).max(Duration::from_secs(1));
                    entry.asked >= prefetch.amount && left <= soon
                });
                (popular, false)
            }
        };
        let refresh = refresh && !entry.refreshing;
        entry.refreshing |= refresh;
        let reply = entry.told(if self.keep_ttl { Duration::ZERO } else { age }, stale);
        let success = entry.success;
        state.figures.hits[usize::from(!success)] += 1;
        state.figures.served_stale += u64::from(stale);
        state.figures.prefetched += u64::from(refresh && !stale);
        Found::Answer { reply, refresh }
    }

    /// What may be told when no upstream answers: an answer that has ended, with nothing left of its time.
    pub(crate) fn last_resort(&self, key: &Key, now: Instant) -> Option<Reply> {
        let (long, _) = self.stale?;
        let mut state = self.state.lock();
        let entry = state.entries.get(key)?;
        let age = now.saturating_duration_since(entry.stored);
        if age.saturating_sub(entry.lifetime) > long {
            return None;
        }
        let reply = entry.told(age, true);
        state.figures.served_stale += 1;
        Some(reply)
    }

    /// A refresh has failed: the next one who asks may try again.
    pub(crate) fn refreshed(&self, key: &Key) {
        if let Some(entry) = self.state.lock().entries.get_mut(key) {
            entry.refreshing = false;
        }
    }

    /// Keeps an answer, where it may be kept, and gives it back as it may be told now.
    pub(crate) fn put(&self, key: Key, mut reply: Reply, size: usize, now: Instant) -> Reply {
        let success = reply.code == ResponseCode::NoError && !reply.answers.is_empty();
        let part = if success { self.success } else { self.denial };
        let Some(lifetime) = self.lifetime(&reply, success, part) else { return reply };
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        for record in records(&mut reply) {
            record.ttl = record.ttl.min(seconds).max(u32::try_from(part.shortest).unwrap_or(0));
        }
        let mut state = self.state.lock();
        let told = reply.clone();
        let old = state.entries.remove(&key);
        let asked = old.as_ref().map_or(1, |old| old.asked);
        match &old {
            Some(old) => state.forget(old),
            None => state.order.push_back(key.clone()),
        }
        state.bytes += size;
        state.successes += usize::from(success);
        let (used, refreshing) = (old.is_some(), false);
        let entry = Entry { reply, size, stored: now, lifetime, success, used, asked, last: now, refreshing };
        state.entries.insert(key, entry);
        self.bound(&mut state);
        told
    }

    /// Passes over those that were used since the last time, once.
    fn bound(&self, state: &mut Contents) {
        loop {
            let denials = state.entries.len() - state.successes;
            let (many, much) = (state.successes > self.success.capacity, state.bytes > self.most_bytes);
            if !(many || much || denials > self.denial.capacity) {
                return;
            }
            let Some(key) = state.order.pop_front() else { return };
            let Some(entry) = state.entries.get_mut(&key) else { continue };
            let needed = much || (if entry.success { many } else { denials > self.denial.capacity });
            if !needed || entry.used {
                entry.used = entry.used && !needed;
                state.order.push_back(key);
                continue;
            }
            if let Some(entry) = state.entries.remove(&key) {
                state.forget(&entry);
                state.figures.evictions[usize::from(!entry.success)] += 1;
            }
        }
    }

    /// How long an answer may be kept; nothing where it may not.
    fn lifetime(&self, reply: &Reply, success: bool, part: Part) -> Option<Duration> {
        if part.capacity == 0 {
            return None;
        }
        let seconds = match reply.code {
            ResponseCode::ServFail => return (!self.servfail.is_zero()).then_some(self.servfail),
            ResponseCode::NoError if success => reply.answers.iter().map(|record| record.ttl).min()?,
            // By the minimum of the zone: without one nobody knows for how long.
            ResponseCode::NoError | ResponseCode::NXDomain => {
                reply.authorities.iter().find_map(|record| match &record.data {
                    RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
                    _ => None,
                })?
            }
            _ => return None,
        };
        let seconds = u64::from(seconds).max(part.shortest).min(part.longest);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    pub(crate) fn figures(&self) -> Figures {
        let state = self.state.lock();
        let (successes, denials) = (state.successes, state.entries.len() - state.successes);
        Figures { successes, denials, bytes: state.bytes, ..state.figures }
    }
}

fn records(reply: &mut Reply) -> impl Iterator<Item = &mut Record> {
    reply.answers.iter_mut().chain(&mut reply.authorities).chain(&mut reply.additionals)
}

impl Contents {
    /// The room of an entry that is gone.
    fn forget(&mut self, entry: &Entry) {
        self.bytes -= entry.size;
        self.successes -= usize::from(entry.success);
    }
}

impl Entry {
    fn told(&self, age: Duration, stale: bool) -> Reply {
        let mut reply = self.reply.clone();
        let age = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
        for record in records(&mut reply) {
            record.ttl = if stale { 0 } else { record.ttl.saturating_sub(age) };
        }
        reply
    }
}

#[cfg(test)]
mod tests;

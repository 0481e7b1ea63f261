//! Which shortages there are and which of them are to be ended now: a pure step from one look at the node to the next.

use std::collections::BTreeMap;

use ferry_meta::quantity::{Format, Quantity};
use jiff::Timestamp;

use super::settings::{Amount, Eviction, Pressure, Signal, Threshold};

/// How much of something is left, and how much there is in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) available: i64,
    pub(crate) capacity: i64,
}

impl Reading {
    /// As it stands in messages.
    pub(crate) fn printed(self, signal: Signal) -> Quantity {
        let format = match signal {
            Signal::MemoryAvailable | Signal::NodeFsAvailable | Signal::ImageFsAvailable => Format::BinarySi,
            _ => Format::DecimalSi,
        };
        Quantity::from_units(self.available, format)
    }
}

pub(crate) type Readings = BTreeMap<Signal, Reading>;

/// What is remembered from look to look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    /// Since when a threshold is crossed.
    crossed: Vec<(Threshold, Timestamp)>,
    /// Crossed for as long as their grace says, and not made good since.
    due: Vec<Threshold>,
    /// When a pressure was last seen.
    seen: BTreeMap<Pressure, Timestamp>,
}

/// What one look says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judgement {
    /// The conditions of the node.
    pub(crate) pressures: Vec<Pressure>,
    /// The thresholds to act on, the most urgent first.
    pub(crate) due: Vec<Threshold>,
}

impl Eviction {
    /// The least that has to be available.
    pub(crate) fn wanted(&self, threshold: &Threshold, reading: Reading, with_reclaim: bool) -> Quantity {
        let mut wanted = self.capped(threshold.signal, &threshold.amount, reading.capacity);
        if let Some(more) = threshold.reclaim.as_ref().filter(|_| with_reclaim) {
            wanted = wanted.add(&self.capped(threshold.signal, more, reading.capacity));
        }
        wanted
    }

    /// A share of a large disk may be more than anyone needs to keep free.
    fn capped(&self, signal: Signal, amount: &Amount, capacity: i64) -> Quantity {
        let wanted = amount.of(capacity);
        let is_disk = matches!(signal, Signal::NodeFsAvailable | Signal::ImageFsAvailable);
        match (amount, self.enough_room) {
            (Amount::Share(_), Some(enough)) if is_disk => {
                let enough = i64::try_from(enough).unwrap_or(i64::MAX);
                Quantity::from_units(wanted.value().min(enough), Format::BinarySi)
            }
            _ => wanted,
        }
    }

    fn is_crossed(&self, threshold: &Threshold, readings: &Readings, with_reclaim: bool) -> bool {
        readings.get(&threshold.signal).is_some_and(|reading| {
            self.wanted(threshold, *reading, with_reclaim) > Quantity::from_units(reading.available, Format::BinarySi)
        })
    }

    /// Whether nothing is short any more, with what is to be reclaimed beyond the thresholds.
    pub(crate) fn is_made_good(&self, readings: &Readings) -> bool {
        !self.thresholds.iter().any(|threshold| self.is_crossed(threshold, readings, true))
    }
}

/// Takes one look: `history` becomes that of the next.
pub(crate) fn judge(settings: &Eviction, history: &mut History, readings: &Readings, now: Timestamp) -> Judgement {
    let thresholds = settings.thresholds.iter();
    let mut crossed: Vec<Threshold> =
        thresholds.filter(|threshold| settings.is_crossed(threshold, readings, false)).cloned().collect();
    for threshold in history.due.iter().filter(|threshold| settings.is_crossed(threshold, readings, true)) {
        if !crossed.contains(threshold) {
            crossed.push(threshold.clone());
        }
    }
    let since = |threshold: &Threshold| {
        history.crossed.iter().find(|(known, _)| known == threshold).map_or(now, |(_, since)| *since)
    };
    let crossed: Vec<(Threshold, Timestamp)> = crossed.into_iter().map(|t| (t.clone(), since(&t))).collect();
    for (threshold, _) in &crossed {
        history.seen.insert(threshold.signal.pressure(), now);
    }
    let elapsed = |since: Timestamp| now.duration_since(since);
    history.seen.retain(|_, seen| elapsed(*seen).unsigned_abs() < settings.transition || *seen == now);
    let mut due: Vec<Threshold> = crossed
        .iter()
        .filter(|(threshold, since)| elapsed(*since).unsigned_abs() >= threshold.grace)
        .map(|(threshold, _)| threshold.clone())
        .collect();
    // A hard threshold leaves no time, so that it goes before a soft one of the same kind.
    due.sort_by_key(|threshold| (threshold.signal, threshold.grace));
    history.crossed = crossed;
    history.due.clone_from(&due);
    Judgement { pressures: history.seen.keys().copied().collect(), due }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::settings::Statements;
    use super::*;

    const MEBI: i64 = 1 << 20;

    fn settings(hard: &str, soft: &str, grace: &str, reclaim: &str) -> Eviction {
        let statements =
            Statements { hard: Some(hard), soft: Some(soft), soft_grace: Some(grace), minimum_reclaim: Some(reclaim) };
        Eviction { transition: Duration::from_secs(300), ..Eviction::default().with(statements).expect("settings") }
    }

    /// When, free memory in MiB, free disk in percent; which conditions, which thresholds.
    type Look = (i64, i64, i64, &'static [&'static str], &'static [&'static str]);

    /// Looks at the node at one time after another.
    fn check(settings: &Eviction, looks: &[Look]) {
        let mut history = History::default();
        for (at, memory, disk, pressures, due) in looks {
            let readings = Readings::from([
                (Signal::MemoryAvailable, Reading { available: memory * MEBI, capacity: 1000 * MEBI }),
                (Signal::NodeFsAvailable, Reading { available: disk * MEBI, capacity: 100 * MEBI }),
            ]);
            let now = Timestamp::from_second(1_000_000 + at).expect("a time");
            let judged = judge(settings, &mut history, &readings, now);
            let conditions: Vec<&str> = judged.pressures.iter().map(|p| p.condition()).collect();
            let names: Vec<&str> = judged.due.iter().map(|t| t.signal.name()).collect();
            assert_eq!((conditions.as_slice(), names.as_slice()), (*pressures, *due), "after {at} seconds");
        }
    }

    #[test]
    fn hard_thresholds_act_at_once_and_their_condition_stays_a_while() {
        let hard = settings("memory.available<100Mi,nodefs.available<10%", "", "", "");
        let both: &'static [&'static str] = &["MemoryPressure", "DiskPressure"];
        check(
            &hard,
            &[
                (0, 100, 10, &[], &[]),
                (10, 99, 10, &["MemoryPressure"], &["memory.available"]),
                (20, 99, 9, both, &["memory.available", "nodefs.available"]),
                (30, 500, 50, both, &[]),
                (40, 500, 9, both, &["nodefs.available"]),
                (319, 500, 50, both, &[]),
                (320, 500, 50, &["DiskPressure"], &[]),
                (340, 500, 50, &[], &[]),
            ],
        );
    }

    #[test]
    fn soft_thresholds_have_to_be_crossed_for_their_time() {
        let soft = settings("", "memory.available<200Mi", "memory.available=30s", "");
        let memory: &'static [&'static str] = &["MemoryPressure"];
        let due: &'static [&'static str] = &["memory.available"];
        check(
            &soft,
            &[
                (0, 150, 50, memory, &[]),
                (20, 150, 50, memory, &[]),
                // Enough for a moment: the time begins anew.
                (25, 300, 50, memory, &[]),
                (30, 150, 50, memory, &[]),
                (59, 150, 50, memory, &[]),
                (60, 150, 50, memory, due),
            ],
        );
    }

    #[test]
    fn a_threshold_once_crossed_wants_more_than_it_says() {
        let hard = settings("memory.available<100Mi", "", "", "memory.available=50Mi");
        let (memory, due): (&'static [&'static str], &'static [&'static str]) =
            (&["MemoryPressure"], &["memory.available"]);
        let looks: &[Look] = &[
            (0, 120, 50, &[], &[]),
            (10, 99, 50, memory, due),
            (20, 149, 50, memory, due),
            (30, 150, 50, memory, &[]),
            (40, 120, 50, memory, &[]),
        ];
        check(&hard, looks);
    }

    #[test]
    fn room_that_is_enough_caps_shares_of_disks_alone() {
        let mut eviction = settings("memory.available<10%,nodefs.available<10%", "", "", "");
        eviction.enough_room = Some(5 << 20);
        check(&eviction, &[(0, 99, 5, &["MemoryPressure"], &["memory.available"])]);
        check(&eviction, &[(0, 101, 4, &["DiskPressure"], &["nodefs.available"])]);
        let fixed = settings("nodefs.available<20Mi", "", "", "");
        check(&Eviction { enough_room: Some(1), ..fixed }, &[(0, 0, 19, &["DiskPressure"], &["nodefs.available"])]);
    }

    #[test]
    fn what_was_not_read_crosses_nothing() {
        let eviction = Eviction::default();
        let mut history = History::default();
        let judged = judge(&eviction, &mut history, &Readings::new(), Timestamp::UNIX_EPOCH);
        assert_eq!(judged, Judgement { pressures: vec![], due: vec![] });
        assert!(eviction.is_made_good(&Readings::new()));
    }
}

//! Cron schedules in the grammar of upstream's library, `robfig/cron`: five fields, descriptors such as `@daily`, and
//! `@every 90m`. What is read here is what is followed here.

mod error;
mod fields;

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

use crate::duration;
pub use error::{FieldProblem, ScheduleError};
use fields::Fields;

/// A schedule that does not come for so many years never comes.
const HORIZON_YEARS: i16 = 5;

/// A line that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    kind: Kind,
    /// The zone that the line itself names.
    zone: Option<TimeZone>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// Whole seconds, at least one.
    Every(Duration),
    Fields(Fields),
}

impl Schedule {
    /// Reads a line; the error is in the words of upstream's library.
    pub fn parse(line: &str) -> Result<Self, ScheduleError> {
        if line.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let (zone, line) = match ["TZ=", "CRON_TZ="].iter().find_map(|prefix| line.strip_prefix(prefix)) {
            Some(rest) => {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let zone = match name {
                    // As Go takes them.
                    "" | "UTC" => TimeZone::UTC,
                    name => TimeZone::get(name).map_err(|_| ScheduleError::Location(name.to_owned()))?,
                };
                (Some(zone), rest.trim())
            }
            None => (None, line),
        };
        let kind = if line.starts_with('@') { descriptor(line)? } else { Kind::Fields(Fields::parse(line)?) };
        Ok(Self { kind, zone })
    }

    /// Whether it counts from the last time instead of following the calendar.
    pub fn is_interval(&self) -> bool {
        matches!(self.kind, Kind::Every(_))
    }

    /// The first time after `after`, if there is one. `zone` is that of the calendar where the line names none.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.kind {
            Kind::Every(every) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*every).ok()?).ok()
            }
            Kind::Fields(fields) => follow(fields, after, self.zone.as_ref().unwrap_or(zone)),
        }
    }

    /// The last time that is later than `after` and not later than `now`.
    pub fn latest(&self, after: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let comes = |from: i64| {
            let next = self.next(Timestamp::from_second(from).ok()?, zone)?;
            (next <= now).then_some(next)
        };
        if let Kind::Every(every) = &self.kind {
            let step = i64::try_from(every.as_secs()).ok().filter(|step| *step > 0)?;
            let steps = (now.as_second() - after.as_second()).div_euclid(step);
            return (steps > 0).then(|| Timestamp::from_second(after.as_second() + steps * step).ok()).flatten();
        }
        // Times are whole minutes: the last one is where `next` stops being in the past.
        let (mut before, mut beyond) = (after.as_second(), now.as_second() + 1);
        let mut found = comes(before)?;
        while beyond - before > 1 {
            let middle = before + (beyond - before) / 2;
            match comes(middle) {
                Some(later) => (before, found) = (middle, later),
                None => beyond = middle,
            }
        }
        Some(found)
    }
}

fn descriptor(line: &str) -> Result<Kind, ScheduleError> {
    let fields = match line {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(text) = line.strip_prefix("@every ") else {
                return Err(ScheduleError::Descriptor(line.to_owned()));
            };
            let nanos =
                duration::parse(text).map_err(|error| ScheduleError::Duration { line: line.to_owned(), error })?;
            // Parts of a second do not count, and nothing comes more often than once in a second.
            let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or_default().max(1);
            return Ok(Kind::Every(Duration::from_secs(seconds)));
        }
    };
    Fields::parse(fields).map(Kind::Fields)
}

/// The first time after `after` that the fields name. A time that the clock skips does not come; one that the clock shows
/// twice comes twice.
fn follow(fields: &Fields, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let start = Timestamp::from_second(after.as_second()).ok()?.checked_add(1.second()).ok()?.to_zoned(zone.clone());
    let last_year = start.year().checked_add(HORIZON_YEARS)?;
    let mut date = start.date();
    // Some lines name no time at all, such as `, * * * *`.
    while !fields.are_empty() && date.year() <= last_year {
        if !fields.has_month(date.month()) {
            date = first_of_next_month(date)?;
            continue;
        }
        if fields.has_day(date) {
            let from = if date == start.date() { start.clone() } else { start_of(date, zone)? };
            if let Some(found) = within_day(fields, from, date) {
                return Some(found);
            }
        }
        date = date.tomorrow().ok()?;
    }
    None
}

fn first_of_next_month(date: Date) -> Option<Date> {
    date.first_of_month().checked_add(1.month()).ok()
}

fn start_of(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.to_zoned(zone.clone()).ok()?.start_of_day().ok()
}

/// The first time of a day from `from` on. Steps are steps in time, so that the clock may be set meanwhile.
fn within_day(fields: &Fields, from: Zoned, date: Date) -> Option<Timestamp> {
    let mut at = match i64::from(from.second()) {
        0 => from,
        seconds => from.checked_add((60 - seconds).seconds()).ok()?,
    };
    while at.date() == date {
        if !fields.has_hour(at.hour()) {
            at = at.checked_add((60 - i64::from(at.minute())).minutes()).ok()?;
        } else if !fields.has_minute(at.minute()) {
            at = at.checked_add(1.minute()).ok()?;
        } else {
            return Some(at.timestamp());
        }
    }
    None
}

#[cfg(test)]
mod tests;

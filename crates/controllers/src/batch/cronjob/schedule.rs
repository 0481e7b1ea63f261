//! Cron lines: five fields, names, steps, lists, `@hourly` and its kin, `@every 90m`; in a time zone.

use std::time::Duration;

use k8s_openapi::jiff::civil::{Date, DateTime, Time, time};
use k8s_openapi::jiff::tz::{AmbiguousOffset, TimeZone};
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan};

/// A leap day that is also a certain weekday comes within 28 years; no line needs to be followed for longer.
const HORIZON_DAYS: i64 = 366 * 28;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A line that was understood. Sets of numbers are bits.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Schedule {
    Every(Duration),
    Fields { minutes: u64, hours: u64, days: u64, months: u64, weekdays: u64, any_day: bool, any_weekday: bool },
}

impl Schedule {
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("@every ") {
            return duration(text)
                .filter(|every| !every.is_zero())
                .map(Self::Every)
                .ok_or_else(|| format!("failed to parse duration @every {text}"));
        }
        let line = match line {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(format!("unrecognized descriptor: {other}")),
            other => other,
        };
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        let is_any = |text: &str| text.starts_with('*') || text.starts_with('?');
        // Sunday is 0 and 7.
        let sundays = field(weekdays, 0, 7, &DAYS, 0)?;
        Ok(Self::Fields {
            minutes: field(minutes, 0, 59, &[], 0)?,
            hours: field(hours, 0, 23, &[], 0)?,
            days: field(days, 1, 31, &[], 0)?,
            months: field(months, 1, 12, &MONTHS, 1)?,
            weekdays: (sundays | (sundays >> 7)) & 0x7f,
            any_day: is_any(days),
            any_weekday: is_any(weekdays),
        })
    }

    /// The first time after `after`, if there ever is one.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if let Self::Every(every) = self {
            let whole = Timestamp::from_second(after.as_second()).ok()?;
            return whole.checked_add(SignedDuration::try_from(*every).ok()?).ok();
        }
        let start = zone.to_datetime(after).checked_add(1.minute()).ok()?;
        let mut date = start.date();
        let mut from = time(start.hour(), start.minute(), 0, 0);
        for _ in 0..HORIZON_DAYS {
            if self.is_day(date) {
                let found =
                    self.times(from).find_map(|at| self.instant(date.to_datetime(at), zone).filter(|at| *at > after));
                if found.is_some() {
                    return found;
                }
            }
            date = date.tomorrow().ok()?;
            from = Time::midnight();
        }
        None
    }

    /// The last time that is later than `after` and not later than `now`.
    pub(super) fn latest(&self, after: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if let Self::Every(every) = self {
            let step = i64::try_from(every.as_secs()).ok().filter(|step| *step > 0)?;
            let steps = (now.as_second() - after.as_second()).div_euclid(step);
            return (steps > 0).then(|| Timestamp::from_second(after.as_second() + steps * step).ok()).flatten();
        }
        let mut date = zone.to_datetime(now).date();
        for _ in 0..HORIZON_DAYS {
            if self.is_day(date) {
                let times = self.times(Time::midnight()).filter_map(|at| self.instant(date.to_datetime(at), zone));
                if let Some(found) = times.filter(|at| *at <= now).max() {
                    return (found > after).then_some(found);
                }
            }
            if self.instant(date.to_datetime(Time::midnight()), zone).is_some_and(|midnight| midnight <= after) {
                return None;
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    /// When both kinds of days are restricted, either will do.
    fn is_day(&self, date: Date) -> bool {
        let Self::Fields { days, months, weekdays, any_day, any_weekday, .. } = self else { return true };
        let has = |set: u64, number: i8| u32::try_from(number).is_ok_and(|number| set >> number & 1 == 1);
        let day = has(*days, date.day());
        let weekday = has(*weekdays, date.weekday().to_sunday_zero_offset());
        let fits = if *any_day || *any_weekday { day && weekday } else { day || weekday };
        has(*months, date.month()) && fits
    }

    /// The times of a day from `from` on.
    fn times(&self, from: Time) -> impl Iterator<Item = Time> + use<> {
        let (minutes, hours) = match self {
            Self::Fields { minutes, hours, .. } => (*minutes, *hours),
            Self::Every(_) => (0, 0),
        };
        let has = |set: u64, number: i8| u32::try_from(number).is_ok_and(|number| set >> number & 1 == 1);
        (0..24)
            .filter(move |hour| has(hours, *hour))
            .flat_map(move |hour| {
                (0..60).filter(move |minute| has(minutes, *minute)).map(move |minute| time(hour, minute, 0, 0))
            })
            .filter(move |at| *at >= from)
    }

    /// A time that the clock skips does not come; one that comes twice comes the first time.
    fn instant(&self, at: DateTime, zone: &TimeZone) -> Option<Timestamp> {
        let ambiguous = zone.to_ambiguous_timestamp(at);
        match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => None,
            _ => ambiguous.earlier().ok(),
        }
    }
}

/// One field as bits: `*`, `*/5`, `1-5`, `10-20/2`, `mon,wed`.
fn field(text: &str, lowest: u32, highest: u32, names: &[&str], first_name: u32) -> Result<u64, String> {
    let number = |word: &str| -> Result<u32, String> {
        let lower = word.to_ascii_lowercase();
        if let Some(at) = names.iter().position(|name| *name == lower) {
            return Ok(u32::try_from(at).unwrap_or_default() + first_name);
        }
        word.parse().map_err(|_| format!("failed to parse int from {word}"))
    };
    let mut bits = 0u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (part, None),
        };
        let (first, last) = match range {
            "*" | "?" => (lowest, if names.len() == 7 { 6 } else { highest }),
            range => match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None if step.is_some() => (number(range)?, highest),
                None => (number(range)?, number(range)?),
            },
        };
        if first < lowest {
            return Err(format!("beginning of range ({first}) below minimum ({lowest}): {part}"));
        }
        if last > highest {
            return Err(format!("end of range ({last}) above maximum ({highest}): {part}"));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
        let step = step.unwrap_or(1);
        if step == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        for value in (first..=last).step_by(step as usize) {
            bits |= 1 << value;
        }
    }
    Ok(bits)
}

/// Go's durations as far as they make sense here: `1h30m`, `90s`.
fn duration(text: &str) -> Option<Duration> {
    let (mut total, mut number) = (0u64, String::new());
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    number.is_empty().then(|| Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, zone: &str, after: &str, expected: Option<&str>) {
        let schedule = Schedule::parse(line).expect("a schedule");
        let zone = TimeZone::get(zone).expect("a time zone");
        let after: Timestamp = after.parse().expect("a time");
        let next = schedule.next(after, &zone);
        assert_eq!(next.map(|at| at.to_string()).as_deref(), expected, "{line} after {after}");
        if let Some(next) = next {
            assert_eq!(schedule.latest(after, next, &zone), Some(next), "{line} backwards");
            let before = next.checked_sub(SignedDuration::from_secs(1)).expect("a time");
            assert_eq!(schedule.latest(after, before, &zone), None, "{line} backwards, a second before");
        }
    }

    #[test]
    fn lines_are_followed() {
        check("*/5 * * * *", "UTC", "2026-01-01T00:00:00Z", Some("2026-01-01T00:05:00Z"));
        check("0 0 1 1 *", "UTC", "2026-01-01T00:00:00Z", Some("2027-01-01T00:00:00Z"));
        check("30 9 * * mon-fri", "UTC", "2026-01-02T10:00:00Z", Some("2026-01-05T09:30:00Z"));
        check("0 12 13 * 5", "UTC", "2026-01-01T00:00:00Z", Some("2026-01-02T12:00:00Z"));
        check("0 0 * * 7", "UTC", "2026-01-01T00:00:00Z", Some("2026-01-04T00:00:00Z"));
        check("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", Some("2028-02-29T00:00:00Z"));
        check("0 0 31 2 *", "UTC", "2026-01-01T00:00:00Z", None);
        check("@every 90m", "UTC", "2026-01-01T00:00:00Z", Some("2026-01-01T01:30:00Z"));
        check("@hourly", "UTC", "2026-01-01T00:30:00Z", Some("2026-01-01T01:00:00Z"));
        check("0 9 * * *", "America/New_York", "2026-01-01T00:00:00Z", Some("2026-01-01T14:00:00Z"));
        // The clock goes from 2 to 3 in the morning of 29 March: half past two does not come that day.
        check("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", Some("2026-03-30T00:30:00Z"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["", "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "@sometimes", "@every x"] {
            assert!(Schedule::parse(line).is_err(), "{line}");
        }
    }
}

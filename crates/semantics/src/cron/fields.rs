//! The five fields of a cron line as sets of numbers.

use jiff::civil::Date;

use super::error::{FieldProblem, ScheduleError};

/// A set of small numbers as bits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Set {
    bits: u64,
    /// Written as `*`, alone or in a list, without a step: such a field of days does not restrict the other one.
    any: bool,
}

impl Set {
    fn has(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits >> number & 1 == 1)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fields {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
}

struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const MINUTE: Bounds = Bounds { low: 0, high: 59, names: &[] };
const HOUR: Bounds = Bounds { low: 0, high: 23, names: &[] };
const DAY: Bounds = Bounds { low: 1, high: 31, names: &[] };
const MONTH: Bounds = Bounds { low: 1, high: 12, names: &MONTHS };
const WEEKDAY: Bounds = Bounds { low: 0, high: 6, names: &DAYS };

impl Fields {
    pub(super) fn parse(line: &str) -> Result<Self, ScheduleError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = words[..] else {
            return Err(ScheduleError::Fields { found: words.len(), line: words.join(" ") });
        };
        Ok(Self {
            minutes: field(minutes, &MINUTE)?,
            hours: field(hours, &HOUR)?,
            days: field(days, &DAY)?,
            months: field(months, &MONTH)?,
            weekdays: field(weekdays, &WEEKDAY)?,
        })
    }

    /// Whether no time of a day is named.
    pub(super) fn are_empty(&self) -> bool {
        self.minutes.bits == 0 || self.hours.bits == 0
    }

    pub(super) fn has_month(&self, month: i8) -> bool {
        self.months.has(month)
    }

    pub(super) fn has_hour(&self, hour: i8) -> bool {
        self.hours.has(hour)
    }

    pub(super) fn has_minute(&self, minute: i8) -> bool {
        self.minutes.has(minute)
    }

    /// When both kinds of days are restricted, either will do.
    pub(super) fn has_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        if self.days.any || self.weekdays.any { day && weekday } else { day || weekday }
    }
}

/// One field: a list of `*`, `*/5`, `1-5`, `10-20/2`, `mon`. Empty entries of the list do not count.
fn field(text: &str, bounds: &Bounds) -> Result<Set, ScheduleError> {
    let mut set = Set { bits: 0, any: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let part = range(part, bounds)?;
        set = Set { bits: set.bits | part.bits, any: set.any || part.any };
    }
    Ok(set)
}

fn range(text: &str, bounds: &Bounds) -> Result<Set, ScheduleError> {
    let wrong = |problem: FieldProblem| ScheduleError::Field { part: text.to_owned(), problem };
    let steps: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let mut any = false;
    let (start, mut end) = if ends[0] == "*" || ends[0] == "?" {
        any = true;
        (bounds.low, bounds.high)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        match ends[..] {
            [_] => (start, start),
            [_, last] => (start, number_or_name(last, bounds)?),
            _ => return Err(wrong(FieldProblem::TooManyHyphens)),
        }
    };
    let step = match steps[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            // `5/15` goes on to the end.
            if ends.len() == 1 {
                end = bounds.high;
            }
            any &= step <= 1;
            step
        }
        _ => return Err(wrong(FieldProblem::TooManySlashes)),
    };
    let (low, high) = (bounds.low, bounds.high);
    if start < low {
        return Err(wrong(FieldProblem::Below { start, minimum: low }));
    }
    if end > high {
        return Err(wrong(FieldProblem::Above { end, maximum: high }));
    }
    if start > end {
        return Err(wrong(FieldProblem::Backwards { start, end }));
    }
    if step == 0 {
        return Err(wrong(FieldProblem::NoStep));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok(Set { bits: (start..=end).step_by(step).fold(0, |bits, number| bits | 1 << number), any })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(index) => Ok(bounds.low + index as u64),
        None => number(text),
    }
}

/// A number as Go's `strconv.Atoi` reads it, and refuses it.
fn number(text: &str) -> Result<u64, ScheduleError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let problem = match text.parse::<i64>() {
        Ok(number) => match u64::try_from(number) {
            Ok(number) => return Ok(number),
            Err(_) => FieldProblem::Negative(number),
        },
        Err(error) => FieldProblem::NoNumber { too_large: matches!(error.kind(), PosOverflow | NegOverflow) },
    };
    Err(ScheduleError::Field { part: text.to_owned(), problem })
}

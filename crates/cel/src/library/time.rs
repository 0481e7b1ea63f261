//! Durations and points in time.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use super::{Outcome, text};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

const SECOND: i64 = 1_000_000_000;

/// Go's durations: `1h30m`, `-1.5s`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    parse(text, false)
}

/// The same with days and weeks, as schemas allow them.
pub(crate) fn parse_duration_with_days(text: &str) -> Option<i64> {
    parse(text, false).or_else(|| parse(&text.replace(' ', ""), true))
}

fn parse(text: &str, days: bool) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after) = rest.split_at(whole);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after),
        };
        if digits.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND.into(),
            "m" => i128::from(SECOND) * 60,
            "h" => i128::from(SECOND) * 3600,
            "d" | "day" | "days" if days => i128::from(SECOND) * 86400,
            "w" | "week" | "weeks" if days => i128::from(SECOND) * 86400 * 7,
            "sec" | "secs" | "second" | "seconds" if days => SECOND.into(),
            "min" | "mins" | "minute" | "minutes" if days => i128::from(SECOND) * 60,
            "hr" | "hrs" | "hour" | "hours" if days => i128::from(SECOND) * 3600,
            _ => return None,
        };
        let digits: i128 = if digits.is_empty() { 0 } else { digits.get(..30.min(digits.len()))?.parse().ok()? };
        total = total.checked_add(digits.checked_mul(unit)?)?;
        let mut part = unit;
        for digit in fraction.bytes() {
            // Digits beyond the nanosecond do not count.
            part /= 10;
            total += i128::from(digit - b'0') * part;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// As Go shows durations.
pub(crate) fn show_duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let amount = nanos.unsigned_abs();
    if amount < 1_000_000_000 {
        let (unit, name) = match amount {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        return format!("{sign}{}{name}", decimal(amount, unit));
    }
    let (hours, minutes) = (amount / 3_600_000_000_000, amount / 60_000_000_000 % 60);
    let seconds = decimal(amount % 60_000_000_000, 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(amount: u64, unit: u64) -> String {
    let (whole, rest) = (amount / unit, amount % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

/// As CEL's `string` shows durations: seconds alone.
pub(crate) fn show_seconds(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    format!("{sign}{}s", decimal(nanos.unsigned_abs(), 1_000_000_000))
}

pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    // Only the form of RFC 3339 counts; jiff reads more.
    let shape = text.len() >= 20 && text.as_bytes()[10].eq_ignore_ascii_case(&b't');
    let zone = text.ends_with(['Z', 'z']) || text.get(text.len().saturating_sub(6)..)?.starts_with(['+', '-']);
    if !shape || !zone || text.contains('[') {
        return None;
    }
    text.parse().ok()
}

pub(crate) fn show_timestamp(at: Timestamp) -> String {
    at.to_string()
}

pub(crate) fn shift(at: Timestamp, nanos: i64) -> Result<Timestamp, Error> {
    let overflow = || Error::new("timestamp overflow");
    let sum = at.as_nanosecond().checked_add(nanos.into()).ok_or_else(overflow)?;
    let moved = Timestamp::from_nanosecond(sum).map_err(|_| overflow())?;
    let year = Offset::UTC.to_datetime(moved).year();
    if (1..=9999).contains(&year) { Ok(moved) } else { Err(overflow()) }
}

/// The time of a call's first argument in the zone of its second.
fn civil(arguments: &[Value<'_>]) -> Result<DateTime, Error> {
    let Value::Timestamp(at) = &arguments[0] else { return Err(Error::no_such_overload()) };
    if arguments.len() < 2 {
        return Ok(Offset::UTC.to_datetime(*at));
    }
    let zone = text(arguments, 1)?;
    let unknown = || Error::new(format!("unknown time zone {}", &**zone));
    if let Some((hours, minutes)) = zone.split_once(':') {
        let negative = hours.starts_with('-');
        let hours: i32 = hours.parse().map_err(|_| unknown())?;
        let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
        let minutes = if negative { -minutes } else { minutes };
        let offset = Offset::from_seconds(hours.saturating_mul(3600).saturating_add(minutes.saturating_mul(60)));
        return Ok(offset.map_err(|_| unknown())?.to_datetime(*at));
    }
    let zone = if zone.is_empty() { TimeZone::UTC } else { TimeZone::get(zone).map_err(|_| unknown())? };
    Ok(zone.to_datetime(*at))
}

fn of<'a>(arguments: &[Value<'a>], part: fn(DateTime) -> i64) -> Outcome<'a> {
    Ok(Value::Int(part(civil(arguments)?)))
}

fn of_either<'a>(arguments: &[Value<'a>], part: fn(DateTime) -> i64, unit: i64) -> Outcome<'a> {
    match &arguments[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => of(arguments, part),
    }
}

macro_rules! parts {
    ($($name:ident: $part:expr;)*) => {
        $(pub(crate) fn $name<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
            of(arguments, $part)
        })*
    };
}

parts! {
    date: |at| at.day().into();
    day_of_month: |at| i64::from(at.day()) - 1;
    day_of_week: |at| at.weekday().to_sunday_zero_offset().into();
    day_of_year: |at| i64::from(at.day_of_year()) - 1;
    year: |at| at.year().into();
    month: |at| i64::from(at.month()) - 1;
}

pub(crate) fn hours<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of_either(arguments, |at| at.hour().into(), 3600 * SECOND)
}

pub(crate) fn minutes<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of_either(arguments, |at| at.minute().into(), 60 * SECOND)
}

pub(crate) fn seconds<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of_either(arguments, |at| at.second().into(), SECOND)
}

pub(crate) fn milliseconds<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    of_either(arguments, |at| at.millisecond().into(), SECOND / 1000)
}

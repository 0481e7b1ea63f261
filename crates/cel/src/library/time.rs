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
    ferry_semantics::duration::parse(text).ok()
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

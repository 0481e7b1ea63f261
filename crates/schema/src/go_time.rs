//! Times as Go reads and writes them: RFC 3339 in, UTC out, and Go's words for what is wrong.

use jiff::Timestamp;

/// The layouts, as Go's errors print them.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Why a text is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error("parsing time {} as {}: cannot parse {} as {}", quote(text), quote(layout), quote(rest), quote(element))]
    Element { text: String, layout: &'static str, rest: String, element: &'static str },
    #[error("parsing time {}: {what} out of range", quote(text))]
    OutOfRange { text: String, what: &'static str },
    #[error("parsing time {}: extra text: {}", quote(text), quote(rest))]
    ExtraText { text: String, rest: String },
}

/// Canonical text of a `Time`; None for the zero time, which Go writes as null.
pub fn time(text: &str) -> Result<Option<String>, TimeError> {
    canonical(text, SECONDS)
}

/// Canonical text of a `MicroTime`.
pub fn micro_time(text: &str) -> Result<Option<String>, TimeError> {
    canonical(text, MICROS)
}

/// Go's zero time is the first second of year 1.
const ZERO: i64 = -62_135_596_800;

fn canonical(text: &str, layout: &'static str) -> Result<Option<String>, TimeError> {
    // The common case: nothing to complain about.
    if layout == SECONDS
        && is_canonical(text)
        && let Ok(at) = text.parse::<Timestamp>()
        && at.as_second() != ZERO
        // Leap seconds are none to Go.
        && ferry_meta::time::time(at) == text
    {
        return Ok(Some(text.to_owned()));
    }
    let (seconds, nanos) = Reader { text, rest: text, layout }.read()?;
    if (seconds, nanos) == (ZERO, 0) {
        return Ok(None);
    }
    let shown = of_unix(seconds, nanos, layout == MICROS);
    shown.map(Some).ok_or_else(|| TimeError::OutOfRange { text: text.to_owned(), what: "year" })
}

/// The last day of the year 9999 is a time in Go, and people write it for "never"; [`Timestamp`] ends a day before. A year earlier
/// it has the same months and days.
const YEAR: i64 = 365 * 86_400;

/// Seconds since 1970 and nanoseconds of a text in UTC.
pub(crate) fn unix(text: &str) -> Option<(i64, i32)> {
    let parse = ferry_meta::time::parse;
    let (at, later) = match parse(text) {
        Some(at) => (at, 0),
        None => (parse(&format!("9998-{}", text.strip_prefix("9999-")?))?, YEAR),
    };
    let nanos = i64::from(at.subsec_nanosecond()).rem_euclid(1_000_000_000);
    Some((at.as_millisecond().div_euclid(1000) + later, i32::try_from(nanos).ok()?))
}

/// The text of a time: with six digits where `micro` says so. None where the year has more than four digits.
pub(crate) fn of_unix(seconds: i64, nanos: i32, micro: bool) -> Option<String> {
    let shown = |at: Timestamp| if micro { ferry_meta::time::micro_time(at) } else { ferry_meta::time::time(at) };
    if let Ok(at) = Timestamp::new(seconds, nanos) {
        return Some(shown(at));
    }
    let text = shown(Timestamp::new(seconds.checked_sub(YEAR)?, nanos).ok()?);
    Some(format!("9999-{}", text.strip_prefix("9998-")?))
}

fn is_canonical(text: &str) -> bool {
    text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    /// Seconds since 1970, and nanoseconds.
    fn read(&mut self) -> Result<(i64, i32), TimeError> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.digits(2, "01")?;
        let month_ok = (1..=12).contains(&month);
        if !month_ok {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        self.literal("T")?;
        let hour = self.digits(2, "15")?;
        if hour >= 24 {
            return Err(self.out_of_range("hour"));
        }
        self.literal(":")?;
        let minute = self.digits(2, "04")?;
        if minute >= 60 {
            return Err(self.out_of_range("minute"));
        }
        self.literal(":")?;
        let second = self.digits(2, "05")?;
        if second >= 60 {
            return Err(self.out_of_range("second"));
        }
        let nanos = self.fraction()?;
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(TimeError::ExtraText { text: self.text.to_owned(), rest: self.rest.to_owned() });
        }
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        if day < 1 || day > lengths[month as usize - 1] {
            return Err(self.out_of_range("day"));
        }
        let date =
            jiff::civil::Date::new(year as i16, month as i8, day as i8).map_err(|_| self.out_of_range("year"))?;
        let days = date.duration_since(jiff::civil::Date::constant(1970, 1, 1)).as_secs();
        Ok((days + (hour * 60 + minute) * 60 + second - offset, nanos as i32))
    }

    fn cannot(&self, element: &'static str) -> TimeError {
        TimeError::Element { text: self.text.to_owned(), layout: self.layout, rest: self.rest.to_owned(), element }
    }

    fn out_of_range(&self, what: &'static str) -> TimeError {
        TimeError::OutOfRange { text: self.text.to_owned(), what }
    }

    fn digits(&mut self, count: usize, element: &'static str) -> Result<i64, TimeError> {
        let found = self.rest.get(..count).filter(|d| d.bytes().all(|c| c.is_ascii_digit()));
        let value = found.and_then(|d| d.parse().ok()).ok_or_else(|| self.cannot(element))?;
        self.rest = &self.rest[count..];
        Ok(value)
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), TimeError> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.cannot(literal))?;
        Ok(())
    }

    /// Nanoseconds. Six digits are required where the layout has them; elsewhere any fraction may follow the seconds.
    fn fraction(&mut self) -> Result<i64, TimeError> {
        let digits = self.rest.strip_prefix(['.', ',']).map(|r| r.bytes().take_while(u8::is_ascii_digit).count());
        let length = if self.layout == MICROS {
            if digits.is_none_or(|d| d < 6) {
                return Err(self.cannot(".000000"));
            }
            6
        } else {
            match digits {
                None | Some(0) => return Ok(0),
                Some(count) => count,
            }
        };
        let text = &self.rest[1..=length];
        self.rest = &self.rest[length + 1..];
        Ok(format!("{text:0<9}").get(..9).and_then(|t| t.parse().ok()).unwrap_or(0))
    }

    /// Seconds east of UTC.
    fn zone(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let well_formed = bytes.len() >= 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|i| bytes[*i].is_ascii_digit());
        if !well_formed {
            return Err(self.cannot("Z07:00"));
        }
        let two = |at: usize| i64::from(bytes[at] - b'0') * 10 + i64::from(bytes[at + 1] - b'0');
        let (hours, minutes) = (two(1), two(4));
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        let seconds = (hours * 60 + minutes) * 60;
        let east = bytes[0] == b'+';
        self.rest = &self.rest[6..];
        Ok(if east { seconds } else { -seconds })
    }
}

/// A text in quotes as Go's clock shows it: everything but plain ASCII as bytes.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_day_of_all_is_a_time() {
        for (text, seconds) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799),
            ("9999-12-30T22:00:01Z", 253_402_207_201),
            ("2026-01-02T03:04:05Z", 1_767_323_045),
            ("0001-01-01T00:00:00Z", -62_135_596_800),
        ] {
            assert_eq!(unix(text), Some((seconds, 0)), "{text}");
            assert_eq!(of_unix(seconds, 0, false).as_deref(), Some(text));
        }
        assert_eq!(of_unix(253_402_300_800, 0, false), None);
        assert_eq!(of_unix(253_402_300_799, 5_000, true).as_deref(), Some("9999-12-31T23:59:59.000005Z"));
    }

    #[test]
    fn times_are_canonical() {
        assert_eq!(time("2024-01-02T03:04:05Z"), Ok(Some("2024-01-02T03:04:05Z".into())));
        assert_eq!(time("2024-01-02T03:04:05.123+02:00"), Ok(Some("2024-01-02T01:04:05Z".into())));
        assert_eq!(time("0001-01-01T00:00:00Z"), Ok(None));
        assert_eq!(micro_time("2024-01-02T03:04:05.123456Z"), Ok(Some("2024-01-02T03:04:05.123456Z".into())));
        assert_eq!(time("2024-02-29T00:00:00Z"), Ok(Some("2024-02-29T00:00:00Z".into())));
        assert_eq!(time("9999-12-31T23:59:59Z"), Ok(Some("9999-12-31T23:59:59Z".into())));
        assert_eq!(time("9999-12-31T23:59:59+01:00"), Ok(Some("9999-12-31T22:59:59Z".into())));
        assert!(time("9999-12-31T23:59:59-01:00").is_err());
    }

    #[test]
    fn errors_read_as_gos() {
        for (text, error) in [
            (
                "yesterday",
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2024-01-02", r#"parsing time "2024-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#),
            ("2024-02-30T00:00:00Z", r#"parsing time "2024-02-30T00:00:00Z": day out of range"#),
            ("2024-02-03T00:00:00Zx", r#"parsing time "2024-02-03T00:00:00Zx": extra text: "x""#),
        ] {
            assert_eq!(time(text).map_err(|found| found.to_string()), Err(error.to_owned()));
        }
        assert!(micro_time("2024-01-02T03:04:05Z").is_err());
    }
}

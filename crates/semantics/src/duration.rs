//! Go's durations, as flags, configuration files and fields have them: `1h30m`, `500ms`, `1.5s`.

use std::fmt;
use std::time::Duration;

/// Why a text is no duration, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    Invalid(String),
    MissingUnit(String),
    UnknownUnit { unit: String, text: String },
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(f, "time: invalid duration {}", quoted(text)),
            Self::MissingUnit(text) => write!(f, "time: missing unit in duration {}", quoted(text)),
            Self::UnknownUnit { unit, text } => {
                write!(f, "time: unknown unit {} in duration {}", quoted(unit), quoted(text))
            }
        }
    }
}

impl std::error::Error for DurationError {}

/// Go's quotes around a text: bytes that are not printable ASCII are shown as numbers.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='\x7f' => quoted.push(c),
            _ => {
                let mut bytes = [0; 4];
                quoted.extend(c.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\x{byte:02x}")));
            }
        }
    }
    quoted + "\""
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, the micro sign
    ("μs", 1_000), // U+03BC, the Greek letter
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The smallest number that no duration reaches, not even a negative one.
const BEYOND: u64 = 1 << 63;

/// The nanoseconds of a duration, to the last one as Go's `time.ParseDuration` has them.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let (mut total, mut rest) = (0u64, unsigned);
    while !rest.is_empty() {
        let (number, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if number.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let Some((_, unit)) = UNITS.iter().find(|(known, _)| *known == name) else {
            return Err(DurationError::UnknownUnit { unit: name.to_owned(), text: text.to_owned() });
        };
        let whole = whole(number).filter(|whole| *whole <= BEYOND / unit).ok_or_else(invalid)? * unit;
        // No sum of two numbers up to 2^63 overflows 64 bits, except for the two largest ones.
        let part = whole.checked_add(part_of(fraction, *unit)).filter(|part| *part <= BEYOND).ok_or_else(invalid)?;
        total = total.checked_add(part).filter(|total| *total <= BEYOND).ok_or_else(invalid)?;
        rest = after;
    }
    if negative { Ok(0i64.wrapping_sub_unsigned(total)) } else { i64::try_from(total).map_err(|_| invalid()) }
}

/// A duration that is not negative.
pub fn parse_unsigned(text: &str) -> Option<Duration> {
    parse(text).ok().and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

/// The nanoseconds of what schemas call a `duration`: Go's, or numbers and words anywhere in a text, such as `3 days`.
pub fn parse_format(text: &str) -> Option<i64> {
    if let Ok(nanos) = parse(text) {
        return Some(nanos);
    }
    let (mut total, mut rest) = (None, text);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (number, after) = split_digits(&rest[start..]);
        let word = after.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let length = word.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(word.len());
        let (word, behind) = word.split_at(length);
        rest = if word.is_empty() { after } else { behind };
        if word.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        if let Some(unit) = unit_of(&word.to_lowercase()) {
            // As Go adds: what is too much begins anew below zero.
            total = Some(total.unwrap_or(0i64).wrapping_add(number.wrapping_mul(unit)));
        }
    }
    total
}

/// The unit that a word of a schema's duration stands for; of long words the beginning counts.
fn unit_of(word: &str) -> Option<i64> {
    const WORDS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", 1_000_000_000),
        (&["m"], "min", 60_000_000_000),
        (&["h", "hr"], "hour", 3_600_000_000_000),
        (&["d"], "day", 86_400_000_000_000),
        (&["w", "wk"], "week", 604_800_000_000_000),
    ];
    let found = WORDS.iter().find(|(short, long, _)| short.contains(&word) || word.starts_with(long));
    found.map(|(_, _, unit)| *unit)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn whole(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|number| *number <= BEYOND)
    })
}

/// What the digits behind the point are of a unit. Go computes it in floating point, and ignores digits that do not fit.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as Go does")]
fn part_of(digits: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0u64, 1f64);
    for digit in digits.bytes() {
        let longer = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit - b'0')));
        let Some(longer) = longer.filter(|longer| number <= (BEYOND - 1) / 10 && *longer <= BEYOND) else { break };
        (number, scale) = (longer, scale * 10.0);
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

/// A duration as Go prints it: `1h30m0.5s`, `245ms`, `0s`.
pub fn show(nanos: i64) -> String {
    let text = show_magnitude(nanos.unsigned_abs().into());
    if nanos < 0 { format!("-{text}") } else { text }
}

/// The same for one that is not negative.
pub fn show_unsigned(duration: Duration) -> String {
    show_magnitude(duration.as_nanos())
}

/// In seconds alone, as protobuf and CEL write durations: `5400.5s`.
pub fn show_seconds(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    format!("{sign}{}s", decimal(nanos.unsigned_abs().into(), 9))
}

fn show_magnitude(nanos: u128) -> String {
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(nanos, 3) + "µs",
        1_000_000..1_000_000_000 => decimal(nanos, 6) + "ms",
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = decimal(nanos % 60_000_000_000, 9) + "s";
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

/// A number with so many of its digits behind the point, without zeros at the end.
fn decimal(number: u128, digits: u32) -> String {
    let unit = 10u128.pow(digits);
    let text = format!("{}.{:0width$}", number / unit, number % unit, width = digits as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, want) in [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("5s", 5 * SECOND),
            ("30s", 30 * SECOND),
            ("1478s", 1478 * SECOND),
            ("-5s", -5 * SECOND),
            ("+5s", 5 * SECOND),
            ("5.0s", 5 * SECOND),
            ("5.6s", 5_600_000_000),
            ("5.s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("-.5s", -SECOND / 2),
            ("1.0s", SECOND),
            ("1.00s", SECOND),
            ("1.004s", 1_004_000_000),
            ("1.0040s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("13ms", 13_000_000),
            ("14s", 14 * SECOND),
            ("15m", 900 * SECOND),
            ("16h", 57_600 * SECOND),
            ("1.5h", 5_400 * SECOND),
            ("3h30m", 12_600 * SECOND),
            ("10.5s4m", 250_500_000_000),
            ("-2m3.4s", -123_400_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("0.3333333333333333333h", 1_200 * SECOND),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("9223372036s854ms775us807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("0.100000000000000000000h", 360 * SECOND),
            ("0.830103483285477580700h", 2_988_372_539_827),
        ] {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_in_gos_words() {
        for (text, want) in [
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            (".", "time: invalid duration \".\""),
            ("-.", "time: invalid duration \"-.\""),
            (".s", "time: invalid duration \".s\""),
            ("+.s", "time: invalid duration \"+.s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1 h", "time: unknown unit \" h\" in duration \"1 h\""),
            ("1h 2m", "time: unknown unit \"h \" in duration \"1h 2m\""),
            ("1.2.3s", "time: missing unit in duration \"1.2.3s\""),
            ("--1s", "time: invalid duration \"--1s\""),
            ("1e3s", "time: unknown unit \"e\" in duration \"1e3s\""),
            ("1\u{85}2", "time: unknown unit \"\\xc2\\x85\" in duration \"1\\xc2\\x852\""),
            ("hello \"x\" \\", "time: invalid duration \"hello \\\"x\\\" \\\\\""),
            ("9223372036854775810ns", "time: invalid duration \"9223372036854775810ns\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("-9223372036854775809ns", "time: invalid duration \"-9223372036854775809ns\""),
            ("9223372036854776us", "time: invalid duration \"9223372036854776us\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("9223372036854775.808us", "time: invalid duration \"9223372036854775.808us\""),
            ("9223372036854ms775us808ns", "time: invalid duration \"9223372036854ms775us808ns\""),
            ("99999999999999999999999h", "time: invalid duration \"99999999999999999999999h\""),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_go_shows_them() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (245_000_000, "245ms"),
            (3_300_000_000, "3.3s"),
            (60 * SECOND, "1m0s"),
            (245 * SECOND, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
            (-1_500_000_000, "-1.5s"),
        ] {
            assert_eq!(show(nanos), want);
            assert_eq!(parse(want), Ok(nanos), "{want}");
        }
        for (nanos, want) in [(0, "0s"), (5_400_500_000_000, "5400.5s"), (-1, "-0.000000001s")] {
            assert_eq!(show_seconds(nanos), want);
        }
        assert_eq!(show_unsigned(Duration::from_millis(5_400_500)), "1h30m0.5s");
    }

    #[test]
    fn schemas_allow_words() {
        for (text, want) in [
            ("1.5h", Some(5_400 * SECOND)),
            ("3 days", Some(3 * 86_400 * SECOND)),
            ("1 week 2d", Some(9 * 86_400 * SECOND)),
            ("5 Minutes", Some(300 * SECOND)),
            ("1hr", Some(3_600 * SECOND)),
            ("about 2 secs", Some(2 * SECOND)),
            ("12 µs", Some(12_000)),
            ("7 nanoseconds", Some(7)),
            ("1.5 days", Some(5 * 86_400 * SECOND)),
            ("3 apples 1 s", Some(SECOND)),
            ("3 apples", None),
            ("days", None),
            ("5", None),
            ("", None),
            ("99999999999999999999 s", None),
        ] {
            assert_eq!(parse_format(text), want, "{text}");
        }
    }

    #[test]
    fn unsigned_ones_are_not_negative() {
        assert_eq!(parse_unsigned("1m"), Some(Duration::from_secs(60)));
        assert_eq!((parse_unsigned("-1m"), parse_unsigned("1")), (None, None));
    }
}

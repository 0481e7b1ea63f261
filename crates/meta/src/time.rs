//! Times as they stand on the wire: `Time` has seconds, `MicroTime` six digits, both in UTC with a `Z`.

use jiff::Timestamp;

pub fn now() -> Timestamp {
    Timestamp::now()
}

/// RFC 3339 with whole seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// RFC 3339 with exactly six fractional digits.
pub fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// So many seconds later, or as late as can be told: whoever writes a number of seconds may write any. Never before 1970.
pub fn later(at: Timestamp, seconds: i64) -> Timestamp {
    let beyond = if seconds < 0 { Timestamp::UNIX_EPOCH } else { Timestamp::MAX };
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(beyond).max(Timestamp::UNIX_EPOCH)
}

pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_seconds_is_a_time() {
        let at = parse("2026-01-02T03:04:05Z").expect("a time");
        assert_eq!(time(later(at, 30)), "2026-01-02T03:04:35Z");
        assert_eq!(time(later(at, -5)), "2026-01-02T03:04:00Z");
        for seconds in [i64::MAX, i64::MAX / 1000, i64::MIN, -400_000_000_000] {
            assert!(parse(&time(later(at, seconds))).is_some(), "{seconds}");
        }
    }

    #[test]
    fn times_print_as_upstream() {
        let at = parse("2026-01-02T03:04:05.6789Z").expect("a time");
        assert_eq!(time(at), "2026-01-02T03:04:05Z");
        assert_eq!(micro_time(at), "2026-01-02T03:04:05.678900Z");
    }
}

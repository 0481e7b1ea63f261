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

pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_upstream() {
        let at = parse("2026-01-02T03:04:05.6789Z").expect("a time");
        assert_eq!(time(at), "2026-01-02T03:04:05Z");
        assert_eq!(micro_time(at), "2026-01-02T03:04:05.678900Z");
    }
}

//! Growing delays between attempts: restarts of a crashing container and pulls of a missing image.

use std::time::Duration;

use jiff::Timestamp;

/// The first delay after a failure.
pub(crate) const FIRST: Duration = Duration::from_secs(10);
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// The delay of one container or image. It doubles with every attempt and is forgotten after a long quiet time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    delay: Duration,
    updated: Timestamp,
}

impl Backoff {
    /// The state after one more attempt, made because of something that happened at `since`.
    #[must_use]
    pub(crate) fn next(previous: Option<Self>, since: Timestamp, now: Timestamp) -> Self {
        let delay = match previous {
            Some(backoff) if !backoff.is_forgotten(since) => (backoff.delay * 2).min(LONGEST),
            _ => FIRST,
        };
        Self { delay, updated: now }
    }

    /// When the next attempt may be made after something that ended at `since`. None: at once.
    pub(crate) fn not_before(&self, since: Timestamp) -> Option<Timestamp> {
        if self.is_forgotten(since) {
            return None;
        }
        since.checked_add(self.delay).ok()
    }

    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    pub(crate) fn updated(&self) -> Timestamp {
        self.updated
    }

    fn is_forgotten(&self, since: Timestamp) -> bool {
        since.duration_since(self.updated) > (LONGEST * 2).try_into().unwrap_or(jiff::SignedDuration::MAX)
    }
}

/// A duration as Go prints it, to the millisecond: `1m20s`, `10s`, `245ms`, `1.204s`.
pub(crate) fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, rest) = (millis / 1000 % 60, millis % 1000);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if hours > 0 || minutes > 0 {
        text.push_str(&format!("{minutes}m"));
    }
    let fraction = format!("{rest:03}");
    match fraction.trim_end_matches('0') {
        "" => text.push_str(&format!("{seconds}s")),
        digits => text.push_str(&format!("{seconds}.{digits}s")),
    }
    text
}

/// A duration as Go reads it: `1m30s`, `500ms`, `1.5h`. None for anything else and for negative ones.
pub(crate) fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| end + at);
        let seconds = match &rest[end..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn delays_double_up_to_five_minutes_and_are_forgotten() {
        let mut backoff = None;
        let mut delays = Vec::new();
        for attempt in 0..7 {
            backoff = Some(Backoff::next(backoff, at(attempt), at(attempt)));
            delays.push(backoff.map(|b| b.delay().as_secs()));
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300].map(Some));
        let last = backoff.expect("a backoff");
        assert_eq!(last.not_before(at(100)), Some(at(400)));
        assert_eq!(last.not_before(at(1000)), None);
        assert_eq!(Backoff::next(Some(last), at(1000), at(1000)).delay().as_secs(), 10);
    }

    #[test]
    fn durations_are_read_as_go_does() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(parse_go_duration(text), millis.map(Duration::from_millis), "{text}");
        };
        check("1m30s", Some(90_000));
        check("1.5h", Some(5_400_000));
        check("500ms", Some(500));
        check("0", Some(0));
        check("10", None);
        check("-1s", None);
        check("", None);
        check("1d", None);
        check("s", None);
    }

    #[test]
    fn durations_print_as_go_does() {
        let check = |millis: u64, text: &str| assert_eq!(go_duration(Duration::from_millis(millis)), text);
        check(0, "0s");
        check(245, "245ms");
        check(1204, "1.204s");
        check(10_000, "10s");
        check(80_000, "1m20s");
        check(300_000, "5m0s");
        check(3_600_000, "1h0m0s");
    }
}

//! Growing delays between attempts: restarts of a crashing container and pulls of a missing image.

use std::time::Duration;

use jiff::Timestamp;

/// The first delay after a failure.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// After a quiet time as long as this, an attempt is a first one.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The first delay and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartDelays {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for RestartDelays {
    fn default() -> Self {
        Self { first: FIRST, longest: LONGEST }
    }
}

impl RestartDelays {
    /// Those of the feature gate `ReduceDefaultCrashLoopBackOffDecay`.
    pub const REDUCED: Self = Self { first: Duration::from_secs(1), longest: Duration::from_secs(60) };
}

/// The delay of one container or image. It doubles with every attempt and is forgotten after a long quiet time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    delay: Duration,
    updated: Timestamp,
}

impl Backoff {
    /// The state after one more attempt, made because of something that happened at `since`.
    #[must_use]
    pub(crate) fn next(previous: Option<Self>, since: Timestamp, now: Timestamp, delays: RestartDelays) -> Self {
        let delay = match previous {
            Some(backoff) if !backoff.is_forgotten(since) => (backoff.delay * 2).min(delays.longest),
            _ => delays.first.min(delays.longest),
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
        since.duration_since(self.updated) > FORGOTTEN.try_into().unwrap_or(jiff::SignedDuration::MAX)
    }
}

/// A duration as Go prints it, to the millisecond: `1m20s`, `10s`, `245ms`, `1.204s`.
pub(crate) fn go_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    ferry_semantics::duration::show_unsigned(Duration::from_millis(millis))
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
            backoff = Some(Backoff::next(backoff, at(attempt), at(attempt), RestartDelays::default()));
            delays.push(backoff.map(|b| b.delay().as_secs()));
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300].map(Some));
        let last = backoff.expect("a backoff");
        assert_eq!(last.not_before(at(100)), Some(at(400)));
        assert_eq!(last.not_before(at(1000)), None);
        assert_eq!(Backoff::next(Some(last), at(1000), at(1000), RestartDelays::default()).delay().as_secs(), 10);
    }

    #[test]
    fn no_delay_is_longer_than_the_longest() {
        let delays = |first: u64, longest: u64| {
            let limits = RestartDelays { first: Duration::from_secs(first), longest: Duration::from_secs(longest) };
            let (mut backoff, mut delays) = (None, Vec::new());
            for attempt in 0..5 {
                backoff = Some(Backoff::next(backoff, at(attempt), at(attempt), limits));
                delays.extend(backoff.map(|b| b.delay().as_secs()));
            }
            delays
        };
        assert_eq!(delays(10, 60), [10, 20, 40, 60, 60]);
        assert_eq!(delays(10, 4), [4, 4, 4, 4, 4]);
        assert_eq!(delays(1, 6), [1, 2, 4, 6, 6]);
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

//! Delays between attempts that fail one after the other: each twice as long as the one before, up to a longest.

use std::time::Duration;

/// The delays of one thing that is tried again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Counts a failure, and says how long to wait before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        delay(self.first, self.longest, self.failures)
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How long to wait after so many failures in a row; not at all after none.
pub fn delay(first: Duration, longest: Duration, failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    first.saturating_mul(2_u32.saturating_pow(doublings)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let seen: Vec<u128> = (0..6).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(seen, [100, 200, 400, 800, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.next_delay(), Duration::from_millis(100));
    }

    #[test]
    fn a_delay_is_known_by_the_number_of_failures() {
        let after = |failures| delay(Duration::from_secs(10), Duration::from_secs(600), failures).as_secs();
        assert_eq!([0, 1, 2, 6, 7, 8, u32::MAX].map(after), [0, 10, 20, 320, 600, 600, 600]);
        assert_eq!(delay(Duration::MAX, Duration::MAX, 40), Duration::MAX);
    }
}

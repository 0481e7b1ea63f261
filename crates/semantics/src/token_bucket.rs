//! A rate with a burst: tokens come back with time, up to as many as the burst.

use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    most: f64,
    tokens: f64,
    at: Option<Instant>,
}

impl TokenBucket {
    pub fn new(per_second: u32, burst: u32) -> Self {
        let most = f64::from(burst);
        Self { per_second: f64::from(per_second), most, tokens: most, at: None }
    }

    /// Takes a token. Without one, the time until there is one again; never where the rate or the burst is zero.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.tokens = passed.mul_add(self.per_second, self.tokens).min(self.most);
        self.at = Some(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let wait = if self.most < 1.0 { f64::INFINITY } else { (1.0 - self.tokens) / self.per_second };
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_with_time() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(2, 3);
        let mut taken = |millis: u64, count: usize| {
            let at = start + Duration::from_millis(millis);
            (0..count).filter(|_| bucket.take(at).is_ok()).count()
        };
        assert_eq!(taken(0, 5), 3);
        assert_eq!(taken(250, 5), 0);
        assert_eq!(taken(500, 5), 1);
        assert_eq!(taken(10_000, 5), 3);
        assert_eq!(bucket.take(start + Duration::from_secs(10)), Err(Duration::from_millis(500)));
        assert_eq!(TokenBucket::new(5, 0).take(start), Err(Duration::MAX));
        let mut once = TokenBucket::new(0, 1);
        assert_eq!((once.take(start), once.take(start)), (Ok(()), Err(Duration::MAX)));
    }
}

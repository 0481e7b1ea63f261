//! How many images are pulled at one time, and how many per second.

use std::sync::Arc;
use std::time::Instant;

use ferry_semantics::token_bucket::TokenBucket;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::Pulls;

pub(crate) struct PullLimits {
    turns: Option<Arc<Semaphore>>,
    rate: Option<Mutex<TokenBucket>>,
}

impl PullLimits {
    pub(crate) fn new(pulls: Pulls) -> Self {
        let most = pulls.at_once.map(|count| count.min(Semaphore::MAX_PERMITS));
        Self {
            turns: most.map(|count| Arc::new(Semaphore::new(count))),
            rate: pulls.rate.map(|(per_second, burst)| Mutex::new(TokenBucket::new(per_second, burst))),
        }
    }

    /// Waits for a turn, which lasts as long as what is given back.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turns = self.turns.clone()?;
        turns.acquire_owned().await.ok()
    }

    /// Whether one more pull may begin now; it does not wait, so that the pod says why it has no image.
    pub(crate) fn admit(&self, now: Instant) -> Result<(), String> {
        match &self.rate {
            Some(rate) => rate.lock().take(now).map_err(|_| "pull QPS exceeded".to_owned()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_per_second_are_limited_behind_a_burst() {
        let start = Instant::now();
        let limits = PullLimits::new(Pulls { at_once: None, rate: Some((2, 3)) });
        assert_eq!((0..5).filter(|_| limits.admit(start).is_ok()).count(), 3);
        assert_eq!(limits.admit(start), Err("pull QPS exceeded".to_owned()));
        let unlimited = PullLimits::new(Pulls::default());
        assert!((0..100).all(|_| unlimited.admit(start).is_ok()));
    }

    #[tokio::test]
    async fn a_pull_waits_for_its_turn() {
        let limits = PullLimits::new(Pulls { at_once: Some(2), rate: None });
        let (first, second) = (limits.turn().await, limits.turn().await);
        assert!(first.is_some() && second.is_some());
        let third = limits.turn();
        tokio::pin!(third);
        assert!(futures::poll!(third.as_mut()).is_pending());
        drop(first);
        assert!(third.await.is_some());
        assert!(PullLimits::new(Pulls::default()).turn().await.is_none());
    }
}

//! How long to wait after pods have failed: 10 s, doubled with each failure in a row, up to 10 minutes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::pod;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) failures: i32,
    last: Option<Timestamp>,
}

impl Record {
    /// With pods that have ended since.
    pub(super) fn with(self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let last_success = succeeded.iter().filter_map(|ended| pod::ended(ended)).max();
        let after: Vec<Timestamp> = failed
            .iter()
            .filter_map(|ended| pod::ended(ended))
            .filter(|at| last_success.is_none_or(|success| *at > success))
            .collect();
        let before = if succeeded.is_empty() { self } else { Self::default() };
        let failures = i32::try_from(after.len()).unwrap_or(i32::MAX);
        Self { failures: before.failures.saturating_add(failures), last: before.last.max(after.into_iter().max()) }
    }

    pub(super) fn remaining(self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// What is left of the wait after that many failures, the last of them at `last`.
pub(super) fn remaining(failures: i32, last: Timestamp, now: Timestamp) -> Duration {
    let wait = ferry_semantics::backoff::delay(FIRST, LONGEST, u32::try_from(failures).unwrap_or(0));
    wait.saturating_sub(Duration::try_from(now.duration_since(last)).unwrap_or_default())
}

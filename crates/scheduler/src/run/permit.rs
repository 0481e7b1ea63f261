//! Pods that a plugin holds back at Permit, until it decides or the time is up.

use std::time::Duration;

use ferry_semantics::duration::show_unsigned;
use futures::future::try_join_all;

use crate::framework::{Decision, Profile};
use crate::metrics::Metrics;

/// No plugin holds a pod back for longer.
const LONGEST: Duration = Duration::from_secs(15 * 60);

pub(super) struct Wait {
    pub(super) plugin: &'static str,
    pub(super) longest: Duration,
    pub(super) decision: Decision,
}

/// Who rejected a pod, and why.
pub(super) type Refusal = (&'static str, String);

/// All who hold it back must allow it; the first who does not ends the wait.
pub(super) async fn decided(waits: Vec<Wait>, metrics: &Metrics) -> Result<(), Refusal> {
    if waits.is_empty() {
        return Ok(());
    }
    let begin = std::time::Instant::now();
    let decisions = waits.into_iter().map(|Wait { plugin, longest, decision }| async move {
        let longest = longest.min(LONGEST);
        let decided = tokio::time::timeout(longest, decision).await;
        let reason = match decided {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => reason,
            Err(_) => format!("rejected due to timeout after waiting {} at plugin {plugin}", show_unsigned(longest)),
        };
        Err((plugin, reason))
    });
    let decided = try_join_all(decisions).await.map(drop);
    metrics.permit_wait(decided.is_ok(), begin.elapsed());
    decided
}

pub(super) fn timed<T, E>(
    metrics: Option<&Metrics>,
    point: &str,
    profile: &Profile,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let begin = std::time::Instant::now();
    let outcome = work();
    if let Some(metrics) = metrics {
        metrics.point(point, &profile.scheduler_name, outcome.is_ok(), begin.elapsed());
    }
    outcome
}

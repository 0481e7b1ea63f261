//! Pods that a plugin holds back at Permit, until it decides or the time is up.

use std::fmt::Write;
use std::time::Duration;

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
            Err(_) => format!("rejected due to timeout after waiting {} at plugin {plugin}", go_duration(longest)),
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

/// As Go prints it: `1m0s`, `1.5s`, `20ms`.
fn go_duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_secs_f64() * 1e3);
    }
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
    let seconds = (duration.as_secs() % 60) as f64 + f64::from(duration.subsec_nanos()) / 1e9;
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{seconds}s");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_like_gos() {
        for (millis, expected) in
            [(20, "20ms"), (0, "0ms"), (1500, "1.5s"), (60_000, "1m0s"), (900_000, "15m0s"), (3_723_000, "1h2m3s")]
        {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
    }
}

//! What a loop that keeps a table waits for, where there is anything to wait for: without it, for ever.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Changed, Watch};

/// The next change of the ruleset.
pub async fn changed(watch: &mut Option<Watch>) -> std::io::Result<Changed> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// Whether others have taken rules away from a table. `has_rules` looks into the kernel, on a thread that may block.
pub async fn is_lost(
    changed: std::io::Result<Changed>,
    table: &str,
    has_rules: impl FnOnce() -> bool + Send + 'static,
) -> bool {
    match changed {
        Ok(changed) if changed.concerns(table) => true,
        // One's own changes may have been too many to be told as well: those are no reason to make them again.
        Ok(changed) if changed.is_unknown() => !matches!(tokio::task::spawn_blocking(has_rules).await, Ok(true)),
        Ok(_) => false,
        Err(error) => {
            tracing::error!("changes that others make to packet rules are no longer told: {error}");
            true
        }
    }
}

pub async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

pub async fn after(delay: Option<Duration>) {
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

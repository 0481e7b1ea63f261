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

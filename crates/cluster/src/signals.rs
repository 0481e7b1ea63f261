//! The signals that end a process in good order.

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Returns at the first SIGTERM or SIGINT.
pub async fn wait() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => tracing::info!("told to stop"),
        _ = interrupt.recv() => tracing::info!("interrupted"),
    }
    Ok(())
}

/// What comes of the work, or an error where this process is told to stop before that: what was begun can then be ended.
pub async fn unless_told<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        outcome = work => outcome,
        told = wait() => {
            told?;
            bail!("told to stop")
        }
    }
}

//! The signals that end a process in good order.

use anyhow::Result;
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

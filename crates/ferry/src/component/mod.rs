//! What components that run as processes of their own have in common: health and metrics over HTTPS, identities, durations.

pub mod accounts;
pub mod server;

use std::time::Duration;

/// Reads a duration as Go writes it: `15s`, `1m30s`, `100ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let nanos = ferry_schema::go_time::duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| format!("{text:?} is no duration; write it like 15s or 1m30s"))
}

/// A name for this process among others of its kind.
pub fn identity() -> String {
    format!("{}_{}", crate::config::host_name(), uuid::Uuid::new_v4())
}

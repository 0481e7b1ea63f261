//! What components that run as processes of their own have in common: health and metrics over HTTPS, identities, durations.

pub mod accounts;
pub mod server;

/// A name for this process among others of its kind.
pub fn identity() -> String {
    format!("{}_{}", crate::config::host_name(), uuid::Uuid::new_v4())
}

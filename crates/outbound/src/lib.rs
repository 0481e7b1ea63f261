//! Calls from the server to others: admission webhooks, audit and authentication webhooks, identity providers.
//!
//! One HTTPS client for all of them: connections are kept, answers bounded, failures worded as upstream words them.
//! Knows nothing of what is sent. Must not depend on any Ferry crate but `meta` and `tasks`.

mod connect;
mod error;
mod pinned;
mod remote;
mod trust;

pub use connect::{Connector, HttpsClient, Resolver, deepest, https};
pub use error::Error;
pub use remote::{Answer, Remote};
pub use trust::{Identity, Trust, client_config, roots};

//! Why a call could not be prepared or was not answered.

use std::path::PathBuf;

/// Each step says what failed; the words reach logs, Events and callers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Kubeconfig(String),
    #[error("{field}-data is no base64: {source}")]
    Base64 { field: String, source: base64::DecodeError },
    #[error("the token cannot stand in a header")]
    Token,
    #[error("unable to load root certificates: {0}")]
    Roots(String),
    #[error("{0}")]
    Identity(String),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The innermost cause: what is around it only repeats that a call failed.
    #[error("{0}")]
    Call(String),
    #[error("context deadline exceeded")]
    Deadline,
}

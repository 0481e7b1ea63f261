//! The authentication chain.

use ferry_meta::UserInfo;
use rustls_pki_types::CertificateDer;

/// What a connection and its request carry to prove who is calling.
pub struct Credentials<'a> {
    pub headers: &'a http::HeaderMap,
    /// Verified against the client CA by TLS already; the leaf comes first. Empty without a client certificate.
    pub certificates: &'a [CertificateDer<'static>],
}

#[derive(Debug, thiserror::Error)]
pub enum AuthnError {
    /// Credentials were presented and are wrong: 401.
    #[error("invalid credentials: {0}")]
    Invalid(String),
}

#[async_trait::async_trait]
pub trait Authenticator: Send + Sync {
    /// `None`: these credentials are not of this authenticator's kind; ask the next one.
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<UserInfo>, AuthnError>;
}

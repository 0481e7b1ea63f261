//! The contracts of authentication: what a request carries, and who may say whose it is.

use ferry_meta::UserInfo;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

/// What a connection and its request carry to prove who is calling.
pub struct Credentials<'a> {
    pub headers: &'a http::HeaderMap,
    /// The client has their keys, which TLS has seen; who vouches for them, the authenticators find out. The leaf comes first.
    /// Empty without a client certificate.
    pub certificates: &'a [CertificateDer<'static>],
    /// The request's path.
    pub path: &'a str,
}

/// What is to be said of a request beside who makes it, found on the way: for its answer and for its audit record.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<&'static str>>,
    annotations: Mutex<Vec<(&'static str, String)>>,
}

impl Notes {
    pub fn warn(&self, text: &'static str) {
        self.warnings.lock().push(text);
    }

    pub fn annotate(&self, key: &'static str, value: String) {
        self.annotations.lock().push((key, value));
    }

    /// For headers of the answer.
    pub fn warnings(&self) -> Vec<&'static str> {
        self.warnings.lock().clone()
    }

    /// For the audit record.
    pub fn annotations(&self) -> Vec<(&'static str, String)> {
        self.annotations.lock().clone()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AuthnError {
    /// Credentials were presented and are wrong: 401.
    #[error("invalid credentials: {0}")]
    Invalid(String),
    /// It cannot be read whom the request is for: 400.
    #[error("{0}")]
    Unreadable(String),
}

#[async_trait::async_trait]
pub trait Authenticator: Send + Sync {
    /// `None`: these credentials are not of this authenticator's kind; ask the next one.
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<UserInfo>, AuthnError>;
}

/// Why a token is not accepted by the authenticator whose kind it is. The texts are upstream's where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// None of the keys that are known signed it.
    #[error("{0}")]
    Signature(&'static str),
    /// It is not good yet, or not any more.
    #[error("{0}")]
    Time(&'static str),
    #[error("{0}")]
    Audience(String),
    /// A claim is missing, cannot be read, or is not as it has to be.
    #[error("{0}")]
    Claim(String),
    /// Its account is gone or another one, or what it is bound to, or it was revoked.
    #[error("{0}")]
    Invalidated(String),
    /// Who knows about it could not be asked, or gave an answer that means nothing.
    #[error("{0}")]
    Unanswered(String),
    /// Who was asked about it says this.
    #[error("{0}")]
    Refused(String),
}

/// The owner of a token, and for whom the token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIdentity {
    pub user: UserInfo,
    /// Those of the asked audiences that the token was made for.
    pub audiences: Vec<String>,
}

#[async_trait::async_trait]
pub trait TokenAuthenticator: Send + Sync {
    /// `None`: not a token of this kind.
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError>;

    /// The same, by those who have something to say of the token's use.
    async fn authenticate_noting(
        &self,
        token: &str,
        audiences: &[String],
        _notes: &Notes,
    ) -> Result<Option<TokenIdentity>, TokenError> {
        self.authenticate_token(token, audiences).await
    }
}

/// A token that cannot be read is a token, and a wrong one: its sender is not nobody.
fn authorization(headers: &http::HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.as_bytes();
    let of_a_bearer = value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    std::str::from_utf8(value).ok().or(of_a_bearer.then_some("Bearer \u{fffd}"))
}

/// The token of an `Authorization: Bearer` header. An empty token is no token, as upstream has it.
pub fn bearer_token(headers: &http::HeaderMap) -> Option<&str> {
    let value = authorization(headers)?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Two spaces before the token: it is not looked at, and its sender is told.
pub fn has_stray_space(headers: &http::HeaderMap) -> bool {
    let value = authorization(headers).unwrap_or_default();
    let parts: Vec<&str> = value.trim().splitn(3, ' ').collect();
    matches!(parts.as_slice(), [scheme, "", _] if scheme.eq_ignore_ascii_case("bearer"))
}

const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The token browsers send as a WebSocket subprotocol, since they cannot set headers.
/// It counts only beside another protocol, which is the one to answer with.
pub fn websocket_token(headers: &http::HeaderMap) -> Option<String> {
    use base64::Engine;
    if !headers.get(http::header::UPGRADE)?.to_str().ok()?.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let protocols: Vec<&str> = headers
        .get_all(http::header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let mut tokens = protocols.iter().filter_map(|protocol| protocol.strip_prefix(WEBSOCKET_PREFIX));
    let encoded = tokens.next()?;
    if tokens.next().is_some() || protocols.len() < 2 {
        return None;
    }
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok()?;
    String::from_utf8(bytes).ok().filter(|token| !token.is_empty())
}

/// Whether a WebSocket subprotocol is a token in disguise: it must not be answered or logged.
pub fn is_token_protocol(protocol: &str) -> bool {
    protocol.starts_with(WEBSOCKET_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_tokens_are_read_as_upstream_reads_them() {
        for (value, want) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  BEARER abc  ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic YWRtaW46YWRtaW4=", None),
            ("Bearer abc def", Some("abc")),
            ("Bearer jörg", Some("jörg")),
        ] {
            let mut headers = http::HeaderMap::new();
            let value_bytes = http::HeaderValue::from_bytes(value.as_bytes()).expect("a header");
            headers.insert(http::header::AUTHORIZATION, value_bytes);
            assert_eq!(bearer_token(&headers), want, "{value}");
        }
        for (value, want) in [(&b"Bearer j\xf6rg"[..], Some("\u{fffd}")), (b"Basic j\xf6rg", None), (b"\xf6", None)] {
            let mut headers = http::HeaderMap::new();
            headers.insert(http::header::AUTHORIZATION, http::HeaderValue::from_bytes(value).expect("a header"));
            assert_eq!(bearer_token(&headers), want, "{value:?}");
        }
    }

    #[test]
    fn a_websocket_token_needs_another_protocol() {
        let mut headers = http::HeaderMap::new();
        headers.insert(http::header::UPGRADE, "websocket".parse().expect("a header"));
        let alone = "base64url.bearer.authorization.k8s.io.YWJj";
        headers.insert(http::header::SEC_WEBSOCKET_PROTOCOL, alone.parse().expect("a header"));
        assert_eq!(websocket_token(&headers), None);
        headers.append(http::header::SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io".parse().expect("a header"));
        assert_eq!(websocket_token(&headers).as_deref(), Some("abc"));
    }
}

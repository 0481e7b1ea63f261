//! The authentication chain: certificate, then tokens in order, then anonymous. The first match wins.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ferry_meta::UserInfo;
use ferry_meta::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS};

use crate::authenticate::{
    Authenticator, AuthnError, Credentials, Notes, TokenAuthenticator, TokenError, TokenIdentity, bearer_token,
    has_stray_space, websocket_token,
};

/// Built once at start: `Chain::new(api_audiences).with(x509).with_tokens(loopback)…`.
pub struct Chain {
    audiences: Vec<String>,
    requests: Vec<Arc<dyn Authenticator>>,
    tokens: Vec<Arc<dyn TokenAuthenticator>>,
    settings: ArcSwap<Settings>,
    /// Asked when nobody else knows a token.
    last: Vec<Arc<dyn TokenAuthenticator>>,
}

/// What an `AuthenticationConfiguration` says, and may say differently while the server runs.
#[derive(Clone)]
pub struct Settings {
    /// Identity providers.
    pub providers: Vec<Arc<dyn TokenAuthenticator>>,
    /// Without credentials a caller is `system:anonymous` unless this is switched off: then it is 401.
    pub anonymous: bool,
    /// Without credentials a caller gets to these paths alone; empty: everywhere.
    pub anonymous_paths: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { providers: Vec::new(), anonymous: true, anonymous_paths: Vec::new() }
    }
}

impl Chain {
    /// `audiences` are what tokens of this API server are made for; its issuer by default.
    pub fn new(audiences: Vec<String>) -> Self {
        Self { audiences, requests: Vec::new(), tokens: Vec::new(), settings: ArcSwap::default(), last: Vec::new() }
    }

    /// An authenticator of whole requests, such as [`crate::X509`]. They are asked before tokens.
    #[must_use]
    pub fn with(mut self, authenticator: Arc<dyn Authenticator>) -> Self {
        self.requests.push(authenticator);
        self
    }

    #[must_use]
    pub fn with_tokens(mut self, authenticator: Arc<dyn TokenAuthenticator>) -> Self {
        self.tokens.push(authenticator);
        self
    }

    /// Asked after all others, identity providers among them.
    #[must_use]
    pub fn with_last(mut self, authenticator: Arc<dyn TokenAuthenticator>) -> Self {
        self.last.push(authenticator);
        self
    }

    /// Other providers and another say on callers without credentials, from now on.
    pub fn set(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }

    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Who makes the request.
    pub async fn authenticate(&self, credentials: &Credentials<'_>, notes: &Notes) -> Result<UserInfo, AuthnError> {
        let mut errors = Vec::new();
        for authenticator in &self.requests {
            match authenticator.authenticate(credentials).await {
                Ok(Some(user)) => return Ok(authenticated(user)),
                Ok(None) => {}
                Err(AuthnError::Invalid(error)) => errors.push(error),
                Err(unreadable) => return Err(unreadable),
            }
        }
        if has_stray_space(credentials.headers) {
            notes
                .warn("the provided Authorization header contains extra space before the bearer token, and is ignored");
        }
        let from_protocol;
        let token = match bearer_token(credentials.headers) {
            Some(token) => Some(token),
            None => {
                from_protocol = websocket_token(credentials.headers);
                from_protocol.as_deref()
            }
        };
        if let Some(token) = token {
            match self.review(token, &self.audiences, notes).await {
                Ok(identity) => return Ok(identity.user),
                Err(error) => errors.push(error.to_string()),
            }
        }
        if !errors.is_empty() {
            return Err(AuthnError::Invalid(aggregate(errors)));
        }
        let settings = self.settings.load();
        let paths = &settings.anonymous_paths;
        if settings.anonymous && (paths.is_empty() || paths.iter().any(|path| path == credentials.path)) {
            Ok(UserInfo::anonymous())
        } else {
            Err(AuthnError::Invalid("no credentials".into()))
        }
    }

    /// What a TokenReview answers: the token's owner and its audiences, or `status.error`.
    /// An empty `audiences` asks for this API server's own.
    pub async fn review(
        &self,
        token: &str,
        audiences: &[String],
        notes: &Notes,
    ) -> Result<TokenIdentity, NobodysToken> {
        let audiences = if audiences.is_empty() { &self.audiences } else { audiences };
        let mut errors = Vec::new();
        let settings = self.settings.load_full();
        for authenticator in self.tokens.iter().chain(&settings.providers).chain(&self.last) {
            match authenticator.authenticate_noting(token, audiences, notes).await {
                Ok(Some(identity)) => {
                    return Ok(TokenIdentity { user: authenticated(identity.user), audiences: identity.audiences });
                }
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        Err(NobodysToken(errors))
    }
}

/// No authenticator accepts a token, for these reasons; there are none where it is of no known kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NobodysToken(pub Vec<TokenError>);

impl fmt::Display for NobodysToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.0.iter().map(TokenError::to_string);
        f.write_str(&aggregate(std::iter::once("invalid bearer token".to_owned()).chain(reasons).collect()))
    }
}

impl std::error::Error for NobodysToken {}

/// Everyone with a name of their own is in `system:authenticated`.
fn authenticated(mut user: UserInfo) -> UserInfo {
    if user.name != ANONYMOUS && !user.in_group(ALL_AUTHENTICATED) && !user.in_group(ALL_UNAUTHENTICATED) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}

/// Several errors stand in brackets, one alone does not.
pub fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match errors.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// For tokens that carry no audience: good for this API server and nobody else.
pub(crate) fn own_audiences(asked: &[String], own: &[String]) -> Option<Vec<String>> {
    let both: Vec<String> = asked.iter().filter(|audience| own.contains(audience)).cloned().collect();
    (!both.is_empty()).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::StaticTokens;

    async fn user(chain: &Chain, authorization: Option<&str>) -> Result<UserInfo, AuthnError> {
        let mut headers = http::HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(http::header::AUTHORIZATION, value.parse().expect("a header"));
        }
        chain.authenticate(&Credentials { headers: &headers, certificates: &[], path: "/" }, &Notes::default()).await
    }

    fn chain() -> Chain {
        let own = vec!["https://kubernetes.default.svc.cluster.local".to_owned()];
        let file = "bobtoken,bob,bob-uid,\"devs\"\nadmintoken,admin,admin-uid,\"system:masters\"\n";
        let tokens = StaticTokens::parse(file, own.clone()).expect("a token file");
        Chain::new(own).with_tokens(Arc::new(tokens))
    }

    #[tokio::test]
    async fn the_first_match_wins_and_everyone_known_is_authenticated() {
        let chain = chain();
        let bob = user(&chain, Some("Bearer bobtoken")).await.expect("bob");
        assert_eq!((bob.name.as_str(), bob.uid.as_str()), ("bob", "bob-uid"));
        assert_eq!(bob.groups, ["devs", "system:authenticated"]);
        assert_eq!(user(&chain, None).await.expect("anonymous"), UserInfo::anonymous());
        assert_eq!(user(&chain, Some("Basic eA==")).await.expect("anonymous").name, ANONYMOUS);
        assert!(user(&chain, Some("Bearer nope")).await.is_err());
        let headers =
            [(http::header::AUTHORIZATION, "Bearer  bobtoken".parse().expect("a header"))].into_iter().collect();
        let notes = Notes::default();
        let strays = chain.authenticate(&Credentials { headers: &headers, certificates: &[], path: "/" }, &notes).await;
        assert_eq!(strays.expect("anonymous").name, ANONYMOUS);
        assert!(notes.warnings()[0].contains("extra space before the bearer token"));
        chain.set(Settings { anonymous: false, ..Settings::default() });
        assert!(user(&chain, None).await.is_err());
        chain.set(Settings { anonymous_paths: vec!["/".into()], ..Settings::default() });
        assert!(user(&chain, None).await.is_ok());
        chain.set(Settings { anonymous_paths: vec!["/healthz".into()], ..Settings::default() });
        assert!(user(&chain, None).await.is_err());
    }

    #[tokio::test]
    async fn reviews_answer_with_the_shared_audiences() {
        let chain = chain();
        let asked = ["https://kubernetes.default.svc.cluster.local".to_owned(), "other".to_owned()];
        let notes = Notes::default();
        let identity = chain.review("bobtoken", &asked, &notes).await.expect("bob");
        assert_eq!(identity.audiences, asked[..1]);
        for (token, audiences) in [("bobtoken", &["nobody".to_owned()][..]), ("nope", &[])] {
            let error = chain.review(token, audiences, &notes).await.expect_err("nobody's");
            assert_eq!((&error, error.to_string()), (&NobodysToken(Vec::new()), "invalid bearer token".to_owned()));
        }
    }
}

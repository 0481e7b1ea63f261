//! The authentication chain: certificate, then tokens in order, then anonymous. The first match wins.

use std::sync::Arc;

use ferry_meta::UserInfo;
use ferry_meta::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS};

use crate::authenticate::{
    Authenticator, AuthnError, Credentials, TokenAuthenticator, TokenIdentity, bearer_token, websocket_token,
};

/// Built once at start: `Chain::new(api_audiences).with(x509).with_tokens(loopback)…`.
pub struct Chain {
    audiences: Vec<String>,
    requests: Vec<Arc<dyn Authenticator>>,
    tokens: Vec<Arc<dyn TokenAuthenticator>>,
    anonymous: bool,
    /// Only to these paths; empty: everywhere.
    anonymous_paths: Vec<String>,
}

impl Chain {
    /// `audiences` are what tokens of this API server are made for; its issuer by default.
    pub fn new(audiences: Vec<String>) -> Self {
        Self { audiences, requests: Vec::new(), tokens: Vec::new(), anonymous: true, anonymous_paths: Vec::new() }
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

    /// Without credentials a caller is `system:anonymous` unless this is switched off: then it is 401.
    #[must_use]
    pub fn anonymous(mut self, allowed: bool) -> Self {
        self.anonymous = allowed;
        self
    }

    /// Without credentials a caller gets to these paths alone; empty: everywhere.
    #[must_use]
    pub fn anonymous_paths(mut self, paths: Vec<String>) -> Self {
        self.anonymous_paths = paths;
        self
    }

    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Who makes the request. An error is always answered with 401.
    pub async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<UserInfo, AuthnError> {
        let mut errors = Vec::new();
        for authenticator in &self.requests {
            match authenticator.authenticate(credentials).await {
                Ok(Some(user)) => return Ok(authenticated(user)),
                Ok(None) => {}
                Err(AuthnError::Invalid(error)) => errors.push(error),
            }
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
            match self.review(token, &self.audiences).await {
                Ok(identity) => return Ok(identity.user),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(AuthnError::Invalid(aggregate(errors)));
        }
        let open = self.anonymous_paths.is_empty() || self.anonymous_paths.iter().any(|p| p == credentials.path);
        if self.anonymous && open {
            Ok(UserInfo::anonymous())
        } else {
            Err(AuthnError::Invalid("no credentials".into()))
        }
    }

    /// What a TokenReview answers: the token's owner and its audiences, or the text of `status.error`.
    /// An empty `audiences` asks for this API server's own.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<TokenIdentity, String> {
        let audiences = if audiences.is_empty() { &self.audiences } else { audiences };
        let mut errors = vec!["invalid bearer token".to_owned()];
        for authenticator in &self.tokens {
            match authenticator.authenticate_token(token, audiences).await {
                Ok(Some(identity)) => {
                    return Ok(TokenIdentity { user: authenticated(identity.user), audiences: identity.audiences });
                }
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        Err(aggregate(errors))
    }
}

/// Everyone with a name of their own is in `system:authenticated`.
fn authenticated(mut user: UserInfo) -> UserInfo {
    if user.name != ANONYMOUS && !user.in_group(ALL_AUTHENTICATED) && !user.in_group(ALL_UNAUTHENTICATED) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}

/// Several errors stand in brackets, one alone does not.
pub(crate) fn aggregate(mut errors: Vec<String>) -> String {
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
        chain.authenticate(&Credentials { headers: &headers, certificates: &[], path: "/" }).await
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
        assert!(user(&chain.anonymous(false), None).await.is_err());
    }

    #[tokio::test]
    async fn reviews_answer_with_the_shared_audiences() {
        let chain = chain();
        let asked = ["https://kubernetes.default.svc.cluster.local".to_owned(), "other".to_owned()];
        let identity = chain.review("bobtoken", &asked).await.expect("bob");
        assert_eq!(identity.audiences, asked[..1]);
        assert_eq!(chain.review("bobtoken", &["nobody".into()]).await, Err("invalid bearer token".into()));
        assert_eq!(chain.review("nope", &[]).await, Err("invalid bearer token".into()));
    }
}

//! OpenID Connect: tokens of an identity provider, verified with the keys it publishes.
//!
//! The same checks serve the flags of old and the structured `AuthenticationConfiguration`: both become a [`Provider`].

mod config;
mod distributed;
mod jwk;
mod mapping;
mod published;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object::text;
use ferry_outbound::Remote;
use ferry_tasks::Tasks;
use tokio::sync::watch;

pub use config::{AnonymousConfig, AuthenticationConfig, OidcError, OidcFlags, Provider};

use crate::authenticate::{TokenAuthenticator, TokenError, TokenIdentity};
use crate::chain::own_audiences;
use distributed::Distributed;
use jwk::Jws;
use published::Published;

const RETRY: Duration = Duration::from_secs(10);
const LONGEST: usize = 64 * 1024;

pub struct Oidc {
    provider: Provider,
    remote: Remote,
    published: Published,
    distributed: Distributed,
    ready: watch::Sender<bool>,
    /// This API server's own audiences: what a good token is good for.
    audiences: Vec<String>,
}

impl Oidc {
    /// Finds the provider's keys in the background; until then its tokens are refused.
    pub fn start(
        provider: Provider,
        audiences: Vec<String>,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, ferry_outbound::Error> {
        let remote = Remote::new(&provider.issuer, provider.ca.as_deref(), tasks)?;
        let oidc = Arc::new(Self {
            published: Published::new(&provider.issuer, &provider.discovery_url),
            distributed: Distributed::default(),
            provider,
            remote,
            ready: watch::Sender::new(false),
            audiences,
        });
        let discovering = oidc.clone();
        tasks.spawn_until_stopped("oidc discovery", async move {
            while let Err(why) = discovering.published.discover(&discovering.remote).await {
                tracing::warn!("oidc: the provider {} cannot be used yet: {why}", discovering.provider.issuer);
                tokio::time::sleep(RETRY).await;
            }
            discovering.ready.send_replace(true);
        });
        Ok(oidc)
    }

    /// Returns once the provider's keys are known.
    pub async fn wait(&self) {
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    async fn identity(&self, token: &str, asked: &[String], now: i64) -> Result<Option<TokenIdentity>, TokenError> {
        let Some(jws) = Jws::parse(token).filter(|_| token.len() <= LONGEST) else { return Ok(None) };
        if text(&jws.claims, "/iss") != self.provider.issuer {
            return Ok(None);
        }
        let Some(audiences) = own_audiences(asked, &self.audiences) else { return Ok(None) };
        let (provider, remote) = (&self.provider, &self.remote);
        self.published.verify(remote, &jws, &provider.algorithms, &provider.audiences, now).await?;
        let expanded = self
            .distributed
            .expand(provider, remote, &jws.claims, now)
            .await
            .map_err(|why| TokenError::Claim(format!("oidc: could not expand distributed claims: {why}")))?;
        let claims = expanded.as_ref().unwrap_or(&jws.claims);
        let user = self.provider.user(claims).map_err(TokenError::Claim)?;
        Ok(Some(TokenIdentity { user, audiences }))
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for Oidc {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        self.identity(token, audiences, ferry_meta::time::now().as_second()).await
    }
}

//! OpenID Connect: tokens of an identity provider, verified with the keys it publishes.
//!
//! The same checks serve the flags of old and the structured `AuthenticationConfiguration`: both become a [`Provider`].

mod config;
mod jwk;
mod mapping;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use ferry_meta::object::{items, text};
use ferry_outbound::Remote;
use ferry_tasks::Tasks;
use serde_json::Value;
use tokio::sync::{Mutex, watch};

pub use config::{AnonymousConfig, AuthenticationConfig, OidcFlags, Provider};

use crate::authenticate::{TokenAuthenticator, TokenIdentity};
use crate::chain::own_audiences;
use jwk::{Jws, Key};

const PATIENCE: Duration = Duration::from_secs(30);
/// Keys are asked for again after this at the earliest: anyone can send a token with an unknown key.
const REFRESH: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(10);
/// What go-oidc allows a token to be early by.
const EARLY_SECONDS: i64 = 300;
const LONGEST: usize = 64 * 1024;

pub struct Oidc {
    provider: Provider,
    remote: Remote,
    keys: ArcSwapOption<Keys>,
    refreshing: Mutex<()>,
    ready: watch::Sender<bool>,
    /// This API server's own audiences: what a good token is good for.
    audiences: Vec<String>,
}

struct Keys {
    uri: String,
    keys: Vec<Key>,
    fetched: Instant,
}

impl Oidc {
    /// Finds the provider's keys in the background; until then its tokens are refused.
    pub fn start(provider: Provider, audiences: Vec<String>, tasks: &Tasks) -> Result<Arc<Self>, String> {
        let remote = Remote::new(&provider.issuer, provider.ca.as_deref(), tasks)?;
        let oidc = Arc::new(Self {
            provider,
            remote,
            keys: ArcSwapOption::empty(),
            refreshing: Mutex::default(),
            ready: watch::Sender::new(false),
            audiences,
        });
        let discovering = oidc.clone();
        tasks.spawn_until_stopped("oidc discovery", async move {
            while let Err(why) = discovering.discover().await {
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

    async fn fetch(&self, url: &str) -> Result<Value, String> {
        let answer = self.remote.get(url, PATIENCE).await?;
        if !answer.is_success() {
            return Err(format!("{url} answered {}", answer.code));
        }
        serde_json::from_slice(&answer.body).map_err(|error| format!("{url} is no JSON: {error}"))
    }

    async fn discover(&self) -> Result<(), String> {
        let document = self.fetch(&self.provider.discovery_url).await?;
        let issuer = text(&document, "/issuer");
        if issuer != self.provider.issuer {
            return Err(format!("issuer did not match: expected {:?}, got {issuer:?}", self.provider.issuer));
        }
        let uri = text(&document, "/jwks_uri");
        if uri.is_empty() {
            return Err("the discovery document names no jwks_uri".into());
        }
        self.load(uri.to_owned()).await
    }

    async fn load(&self, uri: String) -> Result<(), String> {
        let document = self.fetch(&uri).await?;
        let keys: Vec<Key> = items(&document, "/keys").iter().filter_map(Key::read).collect();
        self.keys.store(Some(Arc::new(Keys { uri, keys, fetched: Instant::now() })));
        Ok(())
    }

    /// The claims of a token whose signature is good. Keys change: an unknown one is looked for once.
    async fn verify(&self, jws: &Jws<'_>) -> Result<(), String> {
        let Some(known) = self.keys.load_full() else { return Err("oidc: authenticator not initialized".into()) };
        if jws.verify(&known.keys, &self.provider.algorithms) {
            return Ok(());
        }
        let failed =
            || "oidc: verify token: failed to verify signature: failed to verify id token signature".to_owned();
        if known.fetched.elapsed() < REFRESH || jws.is_known(&known.keys) {
            return Err(failed());
        }
        let _one = self.refreshing.lock().await;
        let newest = self.keys.load_full().unwrap_or(known.clone());
        if Arc::ptr_eq(&newest, &known) {
            self.load(known.uri.clone()).await.map_err(|why| format!("oidc: fetching keys: {why}"))?;
        }
        let keys = self.keys.load_full().unwrap_or(known);
        if jws.verify(&keys.keys, &self.provider.algorithms) { Ok(()) } else { Err(failed()) }
    }

    async fn identity(&self, token: &str, asked: &[String], now: i64) -> Result<Option<TokenIdentity>, String> {
        let Some(jws) = Jws::parse(token).filter(|_| token.len() <= LONGEST) else { return Ok(None) };
        if text(&jws.claims, "/iss") != self.provider.issuer {
            return Ok(None);
        }
        let Some(audiences) = own_audiences(asked, &self.audiences) else { return Ok(None) };
        self.verify(&jws).await?;
        let claims = &jws.claims;
        let theirs: Vec<&str> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !self.provider.audiences.iter().any(|own| theirs.contains(&own.as_str())) {
            return Err(format!(
                "oidc: verify token: oidc: expected audience in {:?} got {theirs:?}",
                self.provider.audiences
            ));
        }
        let seconds = |claim: &str| claims.get(claim).and_then(Value::as_f64).map(|s| s as i64);
        match seconds("exp") {
            Some(until) if now <= until => {}
            _ => return Err("oidc: verify token: oidc: token is expired".into()),
        }
        if seconds("nbf").is_some_and(|from| now + EARLY_SECONDS < from) {
            return Err("oidc: verify token: oidc: current time is before the nbf (not before) time".into());
        }
        let user = self.provider.user(claims)?;
        Ok(Some(TokenIdentity { user, audiences }))
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for Oidc {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, String> {
        self.identity(token, audiences, ferry_meta::time::now().as_second()).await
    }
}

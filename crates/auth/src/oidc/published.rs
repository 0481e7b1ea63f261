//! The keys that an issuer publishes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use ferry_meta::object::{items, text};
use ferry_outbound::Remote;
use serde_json::Value;
use tokio::sync::Mutex;

use super::jwk::{Jws, Key};
use crate::authenticate::TokenError;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Keys are asked for again after this at the earliest: anyone can send a token with an unknown key.
const REFRESH: Duration = Duration::from_secs(10);
/// What go-oidc allows a token to be early by.
const EARLY_SECONDS: i64 = 300;

pub(super) struct Published {
    pub issuer: String,
    discovery_url: String,
    keys: ArcSwapOption<Keys>,
    refreshing: Mutex<()>,
}

struct Keys {
    uri: String,
    keys: Vec<Key>,
    fetched: Instant,
}

impl Published {
    pub fn new(issuer: &str, discovery_url: &str) -> Self {
        Self {
            issuer: issuer.to_owned(),
            discovery_url: discovery_url.to_owned(),
            keys: ArcSwapOption::empty(),
            refreshing: Mutex::default(),
        }
    }

    pub fn is_known(&self) -> bool {
        self.keys.load().is_some()
    }

    /// Finds where the keys are, and reads them.
    pub async fn discover(&self, remote: &Remote) -> Result<(), String> {
        let document = fetch(remote, &self.discovery_url).await?;
        let issuer = text(&document, "/issuer");
        if issuer != self.issuer {
            return Err(format!("issuer did not match: expected {:?}, got {issuer:?}", self.issuer));
        }
        let uri = text(&document, "/jwks_uri");
        if uri.is_empty() {
            return Err("the discovery document names no jwks_uri".into());
        }
        self.load(remote, uri.to_owned()).await
    }

    async fn load(&self, remote: &Remote, uri: String) -> Result<(), String> {
        let document = fetch(remote, &uri).await?;
        let keys: Vec<Key> = items(&document, "/keys").iter().filter_map(Key::read).collect();
        self.keys.store(Some(Arc::new(Keys { uri, keys, fetched: Instant::now() })));
        Ok(())
    }

    /// Whether a token's signature is good. Keys change: an unknown one is looked for once.
    async fn verify_signature(&self, remote: &Remote, jws: &Jws<'_>, algorithms: &[String]) -> Result<(), TokenError> {
        let Some(known) = self.keys.load_full() else {
            return Err(TokenError::Unanswered("oidc: authenticator not initialized".to_owned()));
        };
        if jws.verify(&known.keys, algorithms) {
            return Ok(());
        }
        let failed = TokenError::Signature(
            "oidc: verify token: failed to verify signature: failed to verify id token signature",
        );
        if known.fetched.elapsed() < REFRESH || jws.is_known(&known.keys) {
            return Err(failed);
        }
        let _one = self.refreshing.lock().await;
        let newest = self.keys.load_full().unwrap_or(known.clone());
        if Arc::ptr_eq(&newest, &known) {
            let loaded = self.load(remote, known.uri.clone()).await;
            loaded.map_err(|why| TokenError::Unanswered(format!("oidc: fetching keys: {why}")))?;
        }
        let keys = self.keys.load_full().unwrap_or(known);
        if jws.verify(&keys.keys, algorithms) { Ok(()) } else { Err(failed) }
    }

    /// Whether a token is good at this time for one of the audiences.
    pub async fn verify(
        &self,
        remote: &Remote,
        jws: &Jws<'_>,
        algorithms: &[String],
        audiences: &[String],
        now: i64,
    ) -> Result<(), TokenError> {
        self.verify_signature(remote, jws, algorithms).await?;
        let claims = &jws.claims;
        let theirs: Vec<&str> = match claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !audiences.iter().any(|own| theirs.contains(&own.as_str())) {
            let why = format!("oidc: verify token: oidc: expected audience in {audiences:?} got {theirs:?}");
            return Err(TokenError::Audience(why));
        }
        let seconds = |claim: &str| claims.get(claim).and_then(Value::as_f64).map(|s| s as i64);
        match seconds("exp") {
            Some(until) if now <= until => {}
            _ => return Err(TokenError::Time("oidc: verify token: oidc: token is expired")),
        }
        if seconds("nbf").is_some_and(|from| now + EARLY_SECONDS < from) {
            let early = "oidc: verify token: oidc: current time is before the nbf (not before) time";
            return Err(TokenError::Time(early));
        }
        Ok(())
    }
}

async fn fetch(remote: &Remote, url: &str) -> Result<Value, String> {
    let answer = remote.get(url, PATIENCE).await.map_err(|why| why.to_string())?;
    if !answer.is_success() {
        return Err(format!("{url} answered {}", answer.code));
    }
    serde_json::from_slice(&answer.body).map_err(|error| format!("{url} is no JSON: {error}"))
}

//! Tokens that a webhook knows.

use std::time::Duration;

use ferry_meta::object::{items, text};
use ferry_outbound::Remote;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{ATTEMPTS, PATIENCE, review};
use crate::authenticate::{TokenAuthenticator, TokenError, TokenIdentity};
use crate::expiring::Expiring;

/// Longer tokens are nobody's: no webhook is bothered with them.
const LONGEST: usize = 64 * 1024;

pub struct TokenWebhook {
    remote: Remote,
    /// `v1` or `v1beta1`.
    version: String,
    audiences: Vec<String>,
    life: Duration,
    seen: Expiring<Option<TokenIdentity>>,
}

impl TokenWebhook {
    /// `audiences` are this API server's own, for webhooks that know none.
    pub fn new(remote: Remote, version: &str, audiences: Vec<String>, life: Duration) -> Self {
        Self { remote, version: version.to_owned(), audiences, life, seen: Expiring::new() }
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        let question = json!({
            "apiVersion": format!("authentication.k8s.io/{}", self.version), "kind": "TokenReview",
            "metadata": {"creationTimestamp": null}, "spec": {"token": token, "audiences": audiences}, "status": {"user": {}},
        });
        let answer = review(&self.remote, &question, ATTEMPTS, PATIENCE).await.map_err(TokenError::Unanswered)?;
        if answer.pointer("/status/authenticated") != Some(&Value::Bool(true)) {
            let error = text(&answer, "/status/error");
            return if error.is_empty() { Ok(None) } else { Err(TokenError::Refused(error.to_owned())) };
        }
        let user = answer.pointer("/status/user").cloned().unwrap_or_default();
        let user = serde_json::from_value(user)
            .map_err(|error| TokenError::Unanswered(format!("the webhook's user cannot be read: {error}")))?;
        let theirs: Vec<&str> = items(&answer, "/status/audiences").iter().filter_map(Value::as_str).collect();
        let good = |audience: &&String| {
            if theirs.is_empty() { self.audiences.contains(audience) } else { theirs.contains(&audience.as_str()) }
        };
        let shared: Vec<String> = audiences.iter().filter(good).cloned().collect();
        Ok((!shared.is_empty()).then_some(TokenIdentity { user, audiences: shared }))
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for TokenWebhook {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        if token.len() > LONGEST {
            return Ok(None);
        }
        let mut hasher = Sha256::new();
        for part in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let key: [u8; 32] = hasher.finalize().into();
        if let Some(known) = self.seen.get(&key) {
            return Ok(known);
        }
        let answer = self.ask(token, audiences).await?;
        self.seen.put(key, answer.clone(), self.life);
        Ok(answer)
    }
}

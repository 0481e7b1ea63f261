//! Tokens of Secrets, as they were before TokenRequest: without an end, good as long as their Secret holds them.

use std::sync::Arc;

use base64::Engine;
use ferry_meta::object::{items, text, uid};
use ferry_meta::{ObjectReader, UserInfo};
use serde_json::Value;
use tokio::sync::mpsc;

use super::keys::{Unverified, VerifyingKey};
use crate::authenticate::{Notes, TokenAuthenticator, TokenError, TokenIdentity};
use crate::chain::own_audiences;
use crate::resources::{SECRETS, SERVICE_ACCOUNTS};

const ISSUER: &str = "kubernetes/serviceaccount";
/// The day on which a token was last used.
pub const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.";
/// Uses that wait to be written down; the next use of a token that finds no place tries again.
const WAITING: usize = 256;

/// A Secret whose token was used on a day that its label does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedToken {
    pub namespace: String,
    pub secret: String,
    pub uid: String,
    pub day: String,
}

pub struct LegacyTokens {
    keys: Vec<VerifyingKey>,
    reader: Arc<dyn ObjectReader>,
    /// This API server's own audiences: what such a token is good for.
    audiences: Vec<String>,
    used: mpsc::Sender<UsedToken>,
}

impl LegacyTokens {
    /// Whoever has the other end writes uses down.
    pub fn new(
        keys: Vec<VerifyingKey>,
        audiences: Vec<String>,
        reader: Arc<dyn ObjectReader>,
    ) -> (Self, mpsc::Receiver<UsedToken>) {
        let (used, uses) = mpsc::channel(WAITING);
        (Self { keys, reader, audiences, used }, uses)
    }

    fn user(
        &self,
        token: &str,
        claims: &Value,
        today: jiff::civil::Date,
        notes: &Notes,
    ) -> Result<UserInfo, TokenError> {
        let claim = |name: &str, shown: &str| {
            let value = claims.get(format!("kubernetes.io/serviceaccount/{name}")).and_then(Value::as_str);
            let value = value.filter(|value| !value.is_empty());
            value.ok_or_else(|| TokenError::Claim(format!("{shown} claim is missing")))
        };
        let invalidated = |text: &str| TokenError::Invalidated(text.to_owned());
        let namespace = claim("namespace", "namespace")?;
        let secret_name = claim("secret.name", "secretName")?;
        let name = claim("service-account.name", "serviceAccountName")?;
        let account_uid = claim("service-account.uid", "serviceAccountUID")?;
        let user = UserInfo::service_account(namespace, name, account_uid);
        if text(claims, "/sub") != user.name {
            return Err(TokenError::Claim("sub claim is invalid".to_owned()));
        }
        let is_deleted = |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
        let secret = self
            .reader
            .get(&SECRETS, namespace, secret_name)
            .filter(|secret| !is_deleted(secret))
            .ok_or_else(|| invalidated("Token has been invalidated"))?;
        let kept = base64::engine::general_purpose::STANDARD.decode(text(&secret, "/data/token")).unwrap_or_default();
        if aws_lc_rs::constant_time::verify_slices_are_equal(&kept, token.as_bytes()).is_err() {
            return Err(invalidated("Token does not match server's copy"));
        }
        let account = self
            .reader
            .get(&SERVICE_ACCOUNTS, namespace, name)
            .ok_or_else(|| invalidated(&format!("serviceaccounts {name:?} not found")))?;
        if is_deleted(&account) {
            return Err(invalidated(&format!("ServiceAccount {namespace}/{name} has been deleted")));
        }
        if uid(&account) != account_uid {
            let found = uid(&account);
            return Err(invalidated(&format!("ServiceAccount UID ({found}) does not match claim ({account_uid})")));
        }
        let label =
            |key: &str| secret.pointer("/metadata/labels")?.get(key)?.as_str().filter(|value| !value.is_empty());
        let tomorrow = today.tomorrow().unwrap_or(today);
        if label(LAST_USED).is_none_or(|day| day != today.to_string() && day != tomorrow.to_string()) {
            let used = UsedToken {
                namespace: namespace.to_owned(),
                secret: secret_name.to_owned(),
                uid: uid(&secret).to_owned(),
                day: today.to_string(),
            };
            let _ = self.used.try_send(used);
        }
        if label(INVALID_SINCE).is_some() {
            notes.annotate("authentication.k8s.io/legacy-token-invalidated", format!("{secret_name}/{namespace}"));
            return Err(TokenError::Invalidated(format!(
                "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )));
        }
        // Secrets that an account names were made for it, in the days when every account got one.
        if items(&account, "/secrets").iter().any(|one| text(one, "/name") == secret_name) {
            notes.warn(GENERATED);
            notes.annotate("authentication.k8s.io/legacy-token-autogenerated-secret", secret_name.to_owned());
        } else {
            notes.annotate("authentication.k8s.io/legacy-token-manual-secret", secret_name.to_owned());
        }
        Ok(user)
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for LegacyTokens {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        self.authenticate_noting(token, audiences, &Notes::default()).await
    }

    async fn authenticate_noting(
        &self,
        token: &str,
        audiences: &[String],
        notes: &Notes,
    ) -> Result<Option<TokenIdentity>, TokenError> {
        let Some(unverified) = Unverified::parse(token) else { return Ok(None) };
        if text(&unverified.claims, "/iss") != ISSUER {
            return Ok(None);
        }
        if !unverified.verify(&self.keys) {
            return Err(TokenError::Signature("failed to verify token signature"));
        }
        let Some(audiences) = own_audiences(audiences, &self.audiences) else { return Ok(None) };
        let today = ferry_meta::time::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        let user = self.user(token, &unverified.claims, today, notes)?;
        Ok(Some(TokenIdentity { user, audiences }))
    }
}

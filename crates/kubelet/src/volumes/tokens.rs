//! Tokens of service accounts for pods, asked of the API server and renewed in time.

use std::collections::HashMap;
use std::time::Duration;

use ferry_client::{Api, Clock};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::Client;
use kube::api::PostParams;
use parking_lot::Mutex;

use crate::pod;

/// No token is used longer than this, however long it would be valid.
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) refresh_at: Timestamp,
    pub(super) expires_at: Timestamp,
}

/// One projection of one pod.
type Key = (String, String, i64);

pub(super) struct Tokens {
    client: Client,
    clock: Clock,
    known: Mutex<HashMap<Key, Token>>,
}

impl Tokens {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, known: Mutex::default() }
    }

    pub(super) fn forget(&self, uid: &str) {
        self.known.lock().retain(|(owner, ..), _| owner != uid);
    }

    pub(super) async fn get(&self, pod: &Pod, wanted: &ServiceAccountTokenProjection) -> Result<Token, String> {
        let audience = wanted.audience.clone().unwrap_or_default();
        let seconds = wanted.expiration_seconds.unwrap_or(3600);
        let key = (pod::uid(pod).to_owned(), audience.clone(), seconds);
        let known = self.known.lock().get(&key).cloned();
        let now = self.clock.now();
        if let Some(token) = known.as_ref().filter(|t| t.refresh_at > now) {
            return Ok(token.clone());
        }
        match self.request(pod, audience, seconds, now).await {
            Ok(token) => {
                self.known.lock().insert(key, token.clone());
                Ok(token)
            }
            // A token that is due but still valid goes on while the server is away.
            Err(why) => match known.filter(|t| t.expires_at > now) {
                Some(token) => {
                    tracing::warn!(pod = pod::name(pod), "a token could not be renewed: {why}");
                    let again = now.checked_add(Duration::from_secs(30)).unwrap_or(now);
                    Ok(Token { refresh_at: again, ..token })
                }
                None => Err(format!("failed to fetch token: {why}")),
            },
        }
    }

    async fn request(&self, pod: &Pod, audience: String, seconds: i64, now: Timestamp) -> Result<Token, String> {
        let account = pod::spec(pod).service_account_name.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        let audiences = if audience.is_empty() { None } else { Some(vec![audience]) };
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences,
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(pod::name(pod).into()),
                    uid: Some(pod::uid(pod).into()),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), pod::namespace(pod));
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let status = answer.map_err(|e| ferry_client::write::short(&e))?.status;
        let status = status.and_then(|s| s.token.zip(s.expiration_timestamp));
        let (text, expires_at) = status.ok_or_else(|| "the answer has no token".to_owned())?;
        let expires_at = expires_at.0;
        let valid = Duration::try_from(expires_at.duration_since(now)).unwrap_or(Duration::ZERO);
        let used = valid.mul_f64(0.8).min(LONGEST_USE);
        Ok(Token { text, refresh_at: now.checked_add(used).unwrap_or(expires_at), expires_at })
    }
}

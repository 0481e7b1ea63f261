//! Verifies service-account tokens, and that what they are bound to is still there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_meta::object::{text, uid};
use ferry_meta::{GroupResource, ObjectReader, UserInfo};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::keys::{Unverified, VerifyingKey};
use crate::CREDENTIAL_ID;
use crate::authenticate::{TokenAuthenticator, TokenError, TokenIdentity};
use crate::resources::{NODES, PODS, SECRETS, SERVICE_ACCOUNTS};

/// Clocks of machines differ; and an object deleted this recently still vouches for its tokens.
const LEEWAY_SECONDS: i64 = 60;
/// How many verified tokens are remembered, in each of two generations.
const REMEMBERED: usize = 4096;

pub struct ServiceAccountTokens {
    issuers: Vec<String>,
    keys: Vec<VerifyingKey>,
    reader: Arc<dyn ObjectReader>,
    verified: Mutex<Remembered>,
}

/// Claims whose signature was verified, by the token's digest. Only the signature is remembered: times and bound
/// objects are looked at on every use.
#[derive(Default)]
struct Remembered {
    young: HashMap<[u8; 32], Arc<Value>>,
    old: HashMap<[u8; 32], Arc<Value>>,
}

impl Remembered {
    fn get(&mut self, key: &[u8; 32]) -> Option<Arc<Value>> {
        if let Some(claims) = self.young.get(key) {
            return Some(claims.clone());
        }
        let claims = self.old.remove(key)?;
        self.put(*key, claims.clone());
        Some(claims)
    }

    fn put(&mut self, key: [u8; 32], claims: Arc<Value>) {
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, claims);
    }
}

impl ServiceAccountTokens {
    /// `issuers`: the one that new tokens name, and former ones that are still accepted.
    pub fn new(issuers: Vec<String>, keys: Vec<VerifyingKey>, reader: Arc<dyn ObjectReader>) -> Self {
        Self { issuers, keys, reader, verified: Mutex::default() }
    }

    /// The keys that tokens may be signed with, for the JWKS document.
    pub fn keys(&self) -> &[VerifyingKey] {
        &self.keys
    }

    fn identity(&self, token: &str, audiences: &[String], now: i64) -> Result<Option<TokenIdentity>, TokenError> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let remembered = self.verified.lock().get(&digest);
        let claims = match remembered {
            Some(claims) => claims,
            None => {
                let Some(unverified) = Unverified::parse(token) else { return Ok(None) };
                if !self.issuers.iter().any(|issuer| issuer == text(&unverified.claims, "/iss")) {
                    return Ok(None);
                }
                if !unverified.verify(&self.keys) {
                    return Err(TokenError::Signature("failed to verify token signature"));
                }
                let claims = Arc::new(unverified.claims);
                self.verified.lock().put(digest, claims.clone());
                claims
            }
        };
        let audiences = shared_audiences(&claims, audiences)?;
        Ok(Some(TokenIdentity { user: self.user(&claims, now)?, audiences }))
    }

    fn user(&self, claims: &Value, now: i64) -> Result<UserInfo, TokenError> {
        let wrong = |text: &str| TokenError::Claim(text.to_owned());
        let seconds = |claim: &str| {
            claims.get(claim).and_then(|v| v.as_i64().or_else(|| v.as_f64().map(|seconds| seconds as i64)))
        };
        let expires = seconds("exp").ok_or_else(|| wrong("service account token has no expiry"))?;
        if now > expires.saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::Time("service account token has expired"));
        }
        if [seconds("nbf"), seconds("iat")].into_iter().flatten().any(|from| now < from.saturating_sub(LEEWAY_SECONDS))
        {
            return Err(TokenError::Time("service account token is not valid yet"));
        }
        let private =
            claims.get("kubernetes.io").ok_or_else(|| wrong("service account token has no private claims"))?;
        let namespace = text(private, "/namespace");
        let (name, account_uid) = (text(private, "/serviceaccount/name"), text(private, "/serviceaccount/uid"));
        let mut user = UserInfo::service_account(namespace, name, account_uid);
        if text(claims, "/sub") != user.name {
            return Err(wrong("service account token's subject does not match its account"));
        }
        let account = self
            .reader
            .get(&SERVICE_ACCOUNTS, namespace, name)
            .ok_or_else(|| TokenError::Invalidated(format!("serviceaccounts {name:?} not found")))?;
        if deleted_before(&account, now - LEEWAY_SECONDS) {
            return Err(TokenError::Invalidated(format!("service account {namespace}/{name} has been deleted")));
        }
        if uid(&account) != account_uid {
            let why = format!("service account UID ({}) does not match claim ({account_uid})", uid(&account));
            return Err(TokenError::Invalidated(why));
        }
        self.check_bound(private, "secret", &SECRETS, namespace, now)?;
        self.check_bound(private, "pod", &PODS, namespace, now)?;
        // The node of a pod-bound token is for information; only a token bound to the node itself dies with it.
        if private.get("pod").is_none() {
            self.check_bound(private, "node", &NODES, "", now)?;
        }

        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(key.to_owned(), vec![value.to_owned()]);
            }
        };
        let id = text(claims, "/jti");
        if !id.is_empty() {
            add(CREDENTIAL_ID, &format!("JTI={id}"));
        }
        add("authentication.kubernetes.io/pod-name", text(private, "/pod/name"));
        add("authentication.kubernetes.io/pod-uid", text(private, "/pod/uid"));
        add("authentication.kubernetes.io/node-name", text(private, "/node/name"));
        add("authentication.kubernetes.io/node-uid", text(private, "/node/uid"));
        user.extra = extra;
        Ok(user)
    }

    fn check_bound(
        &self,
        private: &Value,
        kind: &str,
        resource: &GroupResource,
        namespace: &str,
        now: i64,
    ) -> Result<(), TokenError> {
        let Some(reference) = private.get(kind) else { return Ok(()) };
        let (name, wanted) = (text(reference, "/name"), text(reference, "/uid"));
        let object = self
            .reader
            .get(resource, namespace, name)
            .filter(|object| !deleted_before(object, now - LEEWAY_SECONDS))
            .ok_or_else(|| TokenError::Invalidated("service account token has been invalidated".to_owned()))?;
        if uid(&object) != wanted {
            let found = uid(&object);
            let why = format!("{kind} UID ({found}) does not match service account {kind} ref claim ({wanted})");
            return Err(TokenError::Invalidated(why));
        }
        Ok(())
    }
}

fn deleted_before(object: &Value, time: i64) -> bool {
    ferry_meta::time::parse(text(object, "/metadata/deletionTimestamp")).is_some_and(|at| at.as_second() < time)
}

/// A token without audiences is good for nobody.
fn shared_audiences(claims: &Value, asked: &[String]) -> Result<Vec<String>, TokenError> {
    let own: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let shared: Vec<String> = own.iter().filter(|a| asked.iter().any(|b| b == *a)).map(|a| (*a).to_owned()).collect();
    if shared.is_empty() {
        let list = |items: Vec<&str>| items.into_iter().map(ferry_meta::field::quote).collect::<Vec<_>>().join(" ");
        return Err(TokenError::Audience(format!(
            "token audiences [{}] is invalid for the target audiences [{}]",
            list(own),
            list(asked.iter().map(String::as_str).collect())
        )));
    }
    Ok(shared)
}

#[async_trait::async_trait]
impl TokenAuthenticator for ServiceAccountTokens {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        self.identity(token, audiences, ferry_meta::time::now().as_second())
    }
}

#[cfg(test)]
mod tests;

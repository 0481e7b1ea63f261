//! Claims that are not in the token but elsewhere: the token says where, and another token there holds them.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_outbound::Remote;
use parking_lot::Mutex;
use serde_json::Value;

use super::Provider;
use super::config::{OidcError, check_issuer, discovery_of};
use super::jwk::Jws;
use super::mapping::Source;
use super::published::{PATIENCE, Published};

/// Issuers of such tokens whose keys are remembered.
const MOST_ISSUERS: usize = 64;

#[derive(Default)]
pub(super) struct Distributed {
    issuers: Mutex<HashMap<String, Arc<Published>>>,
}

impl Distributed {
    /// The claims with that of the groups in them, where it is elsewhere; None where it is not.
    pub async fn expand(
        &self,
        provider: &Provider,
        remote: &Remote,
        claims: &Value,
        now: i64,
    ) -> Result<Option<Value>, String> {
        let Some(Source::Claim { name: claim, .. }) = &provider.mapping.groups else { return Ok(None) };
        let Some((url, access)) = endpoint(claims, claim)? else { return Ok(None) };
        let getting = |why: String| format!("while getting distributed claim {claim:?}: {why}");
        let answer = remote.get_as(&url, access.as_deref(), PATIENCE).await;
        let answer = answer.map_err(|why| getting(why.to_string()))?;
        if !answer.is_success() {
            return Err(getting(format!("error while getting distributed claim JWT: {}", answer.code)));
        }
        let token = String::from_utf8_lossy(&answer.body).trim().to_owned();
        let no_token =
            || format!("getting untrusted issuer from endpoint {url} failed for claim {claim:?}: malformed token");
        let jws = Jws::parse(&token).ok_or_else(no_token)?;
        let issuer = jws.claims.get("iss").and_then(Value::as_str).ok_or_else(no_token)?;
        let unknown = |why: String| format!("verifying untrusted issuer {issuer} failed: {why}");
        let published = self.issuer(issuer).map_err(|error| unknown(error.to_string()))?;
        if !published.is_known() {
            published.discover(remote).await.map_err(unknown)?;
        }
        let verified = published.verify(remote, &jws, &provider.algorithms, &provider.audiences, now).await;
        verified.map_err(|why| format!("verify distributed claim token: {why}"))?;
        let value = jws.claims.get(claim).ok_or_else(|| {
            format!("jwt returned by distributed claim endpoint {url:?} did not contain claim: {claim}")
        })?;
        let mut expanded = claims.clone();
        expanded[claim] = value.clone();
        Ok(Some(expanded))
    }

    fn issuer(&self, issuer: &str) -> Result<Arc<Published>, OidcError> {
        check_issuer(issuer)?;
        let mut issuers = self.issuers.lock();
        if let Some(known) = issuers.get(issuer) {
            return Ok(known.clone());
        }
        if issuers.len() >= MOST_ISSUERS {
            issuers.clear();
        }
        let published = Arc::new(Published::new(issuer, &discovery_of(issuer)));
        issuers.insert(issuer.to_owned(), published.clone());
        Ok(published)
    }
}

/// Where the claim is, and what to show there.
fn endpoint(claims: &Value, claim: &str) -> Result<Option<(String, Option<String>)>, String> {
    if claims.get(claim).is_some() {
        return Ok(None);
    }
    let Some(names) = claims.get("_claim_names") else { return Ok(None) };
    let names = names.as_object().ok_or("oidc: error parsing distributed claim names: it is no object")?;
    let sources = claims.get("_claim_sources").ok_or("oidc: no claim sources")?;
    let sources = sources.as_object().ok_or("oidc: could not parse claim sources: it is no object")?;
    let Some(source) = names.get(claim) else { return Ok(None) };
    let source = source.as_str().ok_or("oidc: error parsing distributed claim names: a name is no string")?;
    let found = sources
        .get(source)
        .ok_or_else(|| format!("id token _claim_names contained a source {source} missing in _claims_sources"))?;
    let text = |key: &str| found.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    // Without a URL it is an aggregated claim, which nobody here reads.
    Ok(text("endpoint").map(|url| (url, text("access_token"))))
}

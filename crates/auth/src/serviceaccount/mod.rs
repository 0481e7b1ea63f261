//! Service-account tokens: JWTs signed by this API server, bound to an account and often to a pod.

mod issuer;
mod keys;
mod legacy;
mod verifier;

pub use issuer::TokenIssuer;
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub use legacy::{LAST_USED, LegacyTokens, UsedToken};
pub use verifier::ServiceAccountTokens;

use serde_json::{Value, json};

/// Tokens that pods get by default are asked for with this life; they live a year, and are warned about after this.
pub(crate) const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
pub(crate) const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// The `/openid/v1/jwks` document.
pub fn jwks(keys: &[VerifyingKey]) -> Value {
    json!({"keys": keys.iter().map(VerifyingKey::jwk).collect::<Vec<_>>()})
}

/// The `/.well-known/openid-configuration` document.
pub fn openid_configuration(issuer: &str, jwks_uri: &str, keys: &[VerifyingKey]) -> Value {
    let mut algorithms: Vec<&str> = keys.iter().map(VerifyingKey::algorithm).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

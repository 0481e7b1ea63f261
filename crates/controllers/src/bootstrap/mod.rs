//! Bootstrap tokens: `cluster-info` signed with each of them, and those that expired taken away.

mod sign;
pub(crate) mod signer;
pub(crate) mod token_cleaner;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;

const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
const NAMESPACE: &str = "kube-system";

fn field<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    let ByteString(bytes) = secret.data.as_ref()?.get(name)?;
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

fn is_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(TOKEN_TYPE) && secret.metadata.namespace.as_deref() == Some(NAMESPACE)
}

/// When the token ends; one whose time cannot be read has ended.
fn expiration(secret: &Secret) -> Option<Timestamp> {
    field(secret, "expiration").map(|text| text.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

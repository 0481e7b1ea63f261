//! Bootstrap tokens: `id.secret`, kept as Secrets in kube-system, for nodes that join the cluster.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use ferry_meta::object::text;
use ferry_meta::{ObjectReader, UserInfo};
use serde_json::Value;

use crate::authenticate::{TokenAuthenticator, TokenError, TokenIdentity};
use crate::chain::own_audiences;
use crate::resources::SECRETS;

const GROUP: &str = "system:bootstrappers";

pub struct BootstrapTokens {
    reader: Arc<dyn ObjectReader>,
    audiences: Vec<String>,
}

impl BootstrapTokens {
    pub fn new(reader: Arc<dyn ObjectReader>, audiences: Vec<String>) -> Self {
        Self { reader, audiences }
    }

    /// `None` for everything that is not a valid token: a caller must not learn which part was wrong.
    fn user(&self, token: &str, now: jiff::Timestamp) -> Option<UserInfo> {
        let (id, secret) = split(token)?;
        let object = self.reader.get(&SECRETS, "kube-system", &format!("bootstrap-token-{id}"))?;
        if ferry_meta::object::is_being_deleted(&object) || text(&object, "/type") != "bootstrap.kubernetes.io/token" {
            return None;
        }
        let stored = field(&object, "token-secret")?;
        verify_slices_are_equal(stored.as_bytes(), secret.as_bytes()).ok()?;
        if field(&object, "token-id")? != id || field(&object, "usage-bootstrap-authentication")? != "true" {
            return None;
        }
        if let Some(expiration) = field(&object, "expiration").filter(|text| !text.is_empty())
            && ferry_meta::time::parse(&expiration)? <= now
        {
            return None;
        }
        let mut groups = vec![GROUP.to_owned()];
        for group in field(&object, "auth-extra-groups").unwrap_or_default().split(',').filter(|g| !g.is_empty()) {
            if !is_bootstrap_group(group) {
                return None;
            }
            if !groups.iter().any(|known| known == group) {
                groups.push(group.to_owned());
            }
        }
        groups.sort();
        Some(UserInfo { name: format!("system:bootstrap:{id}"), groups, ..UserInfo::default() })
    }
}

/// A token has six letters or digits, a dot, and sixteen more.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

fn is_bootstrap_group(group: &str) -> bool {
    group.strip_prefix("system:bootstrappers:").is_some_and(|rest| {
        rest.len() <= 256
            && rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b':' || b == b'-')
            && rest.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
    })
}

fn field(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok()
}

#[async_trait::async_trait]
impl TokenAuthenticator for BootstrapTokens {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        let Some(user) = self.user(token, ferry_meta::time::now()) else { return Ok(None) };
        Ok(own_audiences(audiences, &self.audiences).map(|audiences| TokenIdentity { user, audiences }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Objects;
    use serde_json::json;

    #[test]
    fn only_a_complete_and_current_token_is_accepted() {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let good = json!({
            "token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"), "expiration": encode("2026-06-01T00:00:00Z"),
            "auth-extra-groups": encode("system:bootstrappers:workers"),
        });
        let now = ferry_meta::time::parse("2026-01-01T00:00:00Z").expect("a time");
        let check = |change: Value, token: &str| {
            let mut data = good.clone();
            for (key, value) in change.as_object().expect("a map") {
                data[key] = json!(encode(value.as_str().expect("a text")));
            }
            let objects = Objects::default();
            objects.put(
                "",
                "secrets",
                json!({
                    "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
                    "type": "bootstrap.kubernetes.io/token", "data": data,
                }),
            );
            BootstrapTokens::new(Arc::new(objects), vec![]).user(token, now)
        };
        let user = check(json!({}), "abcdef.0123456789abcdef").expect("a user");
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:workers"]);
        assert!(check(json!({}), "abcdef.0123456789abcdeX").is_none());
        assert!(check(json!({}), "abcdef.0123456789abcdee").is_none());
        assert!(check(json!({"expiration": "2025-01-01T00:00:00Z"}), "abcdef.0123456789abcdef").is_none());
        assert!(check(json!({"usage-bootstrap-authentication": "no"}), "abcdef.0123456789abcdef").is_none());
        assert!(check(json!({"auth-extra-groups": "system:masters"}), "abcdef.0123456789abcdef").is_none());
    }
}

//! Tokens known by heart: the static token file, and the loopback tokens of our own components.
//!
//! Both are looked up by the token's SHA-256, so how long a lookup takes says nothing about the tokens themselves.

use std::collections::HashMap;

use base64::Engine;
use ferry_meta::UserInfo;
use parking_lot::RwLock;
use rand::TryRngCore;
use sha2::{Digest, Sha256};

use crate::authenticate::{TokenAuthenticator, TokenError, TokenIdentity};
use crate::chain::own_audiences;

type Hash = [u8; 32];

fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

/// The users of a token file: lines of `token,user,uid,"group1,group2"`.
#[derive(Debug)]
pub struct StaticTokens {
    users: HashMap<Hash, UserInfo>,
    audiences: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("line {0}: a token file has at least 3 columns (token, user name, user uid), found {1}")]
    Columns(usize, usize),
    #[error("line {0}: the token is empty")]
    Empty(usize),
    #[error("line {0}: a quote is not closed")]
    Quote(usize),
}

impl StaticTokens {
    pub fn parse(text: &str, audiences: Vec<String>) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields = fields(line).ok_or(TokenFileError::Quote(number))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(TokenFileError::Columns(number, fields.len()));
            };
            if token.is_empty() {
                return Err(TokenFileError::Empty(number));
            }
            let groups = rest.first().map_or("", String::as_str);
            let user = UserInfo {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.split(',').map(str::trim).filter(|g| !g.is_empty()).map(str::to_owned).collect(),
                ..UserInfo::default()
            };
            if users.insert(hash(token), user).is_some() {
                tracing::warn!(line = number, "a token occurs twice in the token file; the last line counts");
            }
        }
        Ok(Self { users, audiences })
    }
}

/// The fields of one CSV line; quotes may enclose a field and are doubled inside it.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line.trim_end_matches('\r');
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let mut field = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let end = quoted.find('"')?;
                field.push_str(&quoted[..end]);
                quoted = &quoted[end + 1..];
                match quoted.strip_prefix('"') {
                    Some(after) => {
                        field.push('"');
                        quoted = after;
                    }
                    None => break,
                }
            }
            let end = quoted.find(',').unwrap_or(quoted.len());
            rest = &quoted[end..];
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            field.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Some(fields),
        }
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for StaticTokens {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        let Some(user) = self.users.get(&hash(token)) else { return Ok(None) };
        Ok(own_audiences(audiences, &self.audiences).map(|audiences| TokenIdentity { user: user.clone(), audiences }))
    }
}

/// Tokens for the components inside this process: made at start, never written anywhere.
pub struct LoopbackTokens {
    users: RwLock<HashMap<Hash, UserInfo>>,
    audiences: Vec<String>,
}

impl LoopbackTokens {
    pub fn new(audiences: Vec<String>) -> Self {
        Self { users: RwLock::default(), audiences }
    }

    /// A new token of 256 random bits. Panics only when the operating system has no randomness left to give.
    pub fn issue(&self, user: UserInfo) -> String {
        let mut bytes = [0_u8; 32];
        if let Err(error) = rand::rngs::OsRng.try_fill_bytes(&mut bytes) {
            // Going on with a guessable token would open the cluster to everyone.
            panic!("the system's random source failed: {error}");
        }
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        self.users.write().insert(hash(&token), user);
        token
    }

    /// Makes a token worthless; false when it was not known.
    pub fn revoke(&self, token: &str) -> bool {
        self.users.write().remove(&hash(token)).is_some()
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for LoopbackTokens {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Result<Option<TokenIdentity>, TokenError> {
        let Some(user) = self.users.read().get(&hash(token)).cloned() else { return Ok(None) };
        Ok(own_audiences(audiences, &self.audiences).map(|audiences| TokenIdentity { user, audiences }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_files_are_read_with_their_quotes() {
        let tokens =
            StaticTokens::parse("a,ann,1,\"x, y\"\n\n# no one\nb,\"bob \"\"b\"\"\",2\r\n", vec![]).expect("a file");
        assert_eq!(tokens.users[&hash("a")].groups, ["x", "y"]);
        assert_eq!(tokens.users[&hash("b")].name, "bob \"b\"");
        assert!(tokens.users[&hash("b")].groups.is_empty());
    }

    #[test]
    fn a_broken_token_file_says_where() {
        for (text, want) in [
            ("a,b", "line 1: a token file has at least 3 columns (token, user name, user uid), found 2"),
            ("a,b,c\n,b,c", "line 2: the token is empty"),
            ("a,b,c,\"d", "line 1: a quote is not closed"),
        ] {
            assert_eq!(StaticTokens::parse(text, vec![]).expect_err("an error").to_string(), want);
        }
    }

    #[tokio::test]
    async fn loopback_tokens_work_until_revoked() {
        let own = vec!["api".to_owned()];
        let tokens = LoopbackTokens::new(own.clone());
        let token = tokens.issue(UserInfo::new("system:kube-scheduler", &[]));
        assert_eq!(token.len(), 43);
        let found = tokens.authenticate_token(&token, &own).await.expect("no error").expect("a user");
        assert_eq!(found.user.name, "system:kube-scheduler");
        assert!(tokens.revoke(&token));
        assert_eq!(tokens.authenticate_token(&token, &own).await, Ok(None));
    }
}

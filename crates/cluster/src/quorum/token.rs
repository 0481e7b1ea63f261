//! What makes a machine a server: a token for joining, and the key of what is handed over to it.
//!
//! `abcdef.0123456789abcdef.KEY@sha256:…`. The key is in no cluster: who reads all of its objects still cannot read what a new
//! server is given. A node's token has none, so that it cannot be used for a server.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};

use crate::fleet::token::JoinToken;

pub const KEY_BYTES: usize = 32;

#[derive(Clone)]
pub struct ServerToken {
    pub join: JoinToken,
    pub key: [u8; KEY_BYTES],
}

const SHAPE: &str = "a server's token looks like abcdef.0123456789abcdef.KEY@sha256:… with 64 characters as the key and as the \
                     hash; print a whole one with `ferry token create --server` on a server";

impl FromStr for ServerToken {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.parse::<JoinToken>().is_ok() {
            bail!("this token is for nodes; a server joins with one that `ferry token create --server` printed");
        }
        let parsed = || {
            let (head, hash) = text.trim().split_once('@')?;
            let (token, key) = head.rsplit_once('.')?;
            let join = format!("{token}@{hash}").parse().ok()?;
            let digits =
                key.as_bytes().chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            let bytes: Vec<u8> = digits.collect::<Option<_>>()?;
            let plain = key.len() == KEY_BYTES * 2 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
            Some(Self { join, key: bytes.try_into().ok().filter(|_| plain)? })
        };
        // The text is a secret, so that it is not repeated.
        parsed().ok_or_else(|| anyhow!("this is not a whole token: {SHAPE}"))
    }
}

impl fmt::Display for ServerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.join.id, self.join.secret)?;
        for byte in self.key {
            write!(f, "{byte:02x}")?;
        }
        write!(f, "@sha256:{}", self.join.ca)
    }
}

impl ServerToken {
    pub fn new(join: JoinToken) -> Result<Self> {
        let mut key = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut key).map_err(|_| anyhow!("the system gives no random numbers"))?;
        Ok(Self { join, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_token_is_no_servers_token_and_the_other_way_round() {
        let folder = tempfile::tempdir().unwrap();
        let pki = ferry_server::pki::Pki::open(folder.path()).unwrap();
        let token = ServerToken::new(JoinToken::new(pki.ca_certificate()).unwrap()).unwrap();
        let again: ServerToken = token.to_string().parse().unwrap();
        assert!(again.join == token.join && again.key == token.key);
        let error = token.join.to_string().parse::<ServerToken>().err().unwrap().to_string();
        assert!(error.contains("for nodes"), "{error}");
        let error = token.to_string().parse::<JoinToken>().unwrap_err().to_string();
        assert!(error.contains("for servers"), "{error}");
        let (head, hash) = token.to_string().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        for bad in [head.clone(), format!("{}@{hash}", &head[1..]), format!("{}@{hash}", &head[..head.len() - 2])] {
            let error = bad.parse::<ServerToken>().err().unwrap().to_string();
            assert!(error.contains("not a whole token") && !error.contains(&token.join.secret), "{error}");
        }
    }
}

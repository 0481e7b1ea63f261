//! Tokens in the compact form of JWS, taken apart.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// The parts of a token; nothing in them may be believed before the signature is verified.
pub(crate) struct Parts<'a> {
    /// What is signed: header and claims as they were sent.
    pub(crate) message: &'a str,
    pub(crate) signature: Vec<u8>,
    pub(crate) header: Value,
    pub(crate) claims: Value,
}

impl<'a> Parts<'a> {
    /// `None` when the text is no compact JWS with JSON claims.
    pub(crate) fn of(token: &'a str) -> Option<Self> {
        if token.len() > crate::LONGEST_TOKEN {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let read = |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
        let header = read(header)?;
        // A critical extension that is not understood must not be ignored, and none is understood.
        if header.get("crit").is_some() {
            return None;
        }
        Some(Self { message, signature: URL_SAFE_NO_PAD.decode(signature).ok()?, header, claims: read(claims)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_tokens_are_taken_apart() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = |header: &str, claims: &str| format!("{}.{}.{}", part(header), part(claims), part("signed"));
        let whole = token(r#"{"alg":"ES256"}"#, r#"{"sub":"a"}"#);
        let parts = Parts::of(&whole).expect("a token");
        assert_eq!((&parts.header["alg"], &parts.claims["sub"]), (&"ES256".into(), &"a".into()));
        assert_eq!((parts.message, &*parts.signature), (&whole[..whole.rfind('.').expect("a dot")], &b"signed"[..]));
        let long = token(r#"{"alg":"ES256"}"#, &format!("\"{}\"", "x".repeat(crate::LONGEST_TOKEN)));
        for bad in [
            "",
            "a.b",
            "a.b.c",
            &token("{}", "no JSON"),
            &token(r#"{"crit":["x"]}"#, "{}"),
            &format!("{whole}="),
            &long,
        ] {
            assert!(Parts::of(bad).is_none(), "{bad:.40}");
        }
    }
}

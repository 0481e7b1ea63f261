//! Basic authentication against the lines of an htpasswd file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::table::BasicAuth;

pub fn admits(auth: &BasicAuth, headers: &HeaderMap) -> bool {
    let Some((user, password)) = credentials(headers) else { return false };
    auth.users.get(user.as_str()).is_some_and(|hash| verify(hash, &password))
}

fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let decoded = STANDARD.decode(rest.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(decoded).ok()?;
    text.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

fn verify(hash: &str, password: &str) -> bool {
    if let Some(expected) = hash.strip_prefix("{SHA}") {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
        return STANDARD.decode(expected).is_ok_and(|expected| same(&expected, digest.as_ref()));
    }
    hash.strip_prefix("{PLAIN}").is_some_and(|expected| same(expected.as_bytes(), password.as_bytes()))
}

/// In a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_password_comes_in() {
        let users = [("a", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="), ("b", "{PLAIN}open"), ("c", "$unknown$x")];
        let users = users.iter().map(|(user, hash)| ((*user).into(), (*hash).into())).collect();
        let auth = BasicAuth { realm: "r".into(), users };
        for (text, want) in [
            ("a:password", true),
            ("a:Password", false),
            ("b:open", true),
            ("b:", false),
            ("c:x", false),
            ("nobody:password", false),
            ("a", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, format!("Basic {}", STANDARD.encode(text)).parse().unwrap());
            assert_eq!(admits(&auth, &headers), want, "{text}");
        }
        assert!(!admits(&auth, &HeaderMap::new()));
    }
}

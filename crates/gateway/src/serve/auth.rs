//! Basic authentication against the lines of an htpasswd file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::apr1;
use crate::table::BasicAuth;

/// Hashes that are made to be slow are computed so many at a time.
const AT_ONCE: usize = 2;
/// A password that was right is known for a while: browsers send it with every request.
const KNOWN: Duration = Duration::from_secs(300);
const MOST_KNOWN: usize = 1024;
/// A hash of this cost takes about a second; nobody gets more of the machine's time.
const MOST_COST: u32 = 14;
const MOST_PASSWORD: usize = 1024;

pub struct Passwords {
    slow: Arc<Semaphore>,
    /// Digests of hash and password.
    known: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { slow: Arc::new(Semaphore::new(AT_ONCE)), known: Mutex::default() }
    }
}

impl Passwords {
    pub async fn admits(&self, auth: &BasicAuth, headers: &HeaderMap) -> bool {
        let Some((user, password)) = credentials(headers) else { return false };
        let Some(hash) = auth.users.get(user.as_str()) else { return false };
        match Kind::of(hash) {
            Kind::Fast => verify(hash, &password),
            Kind::Slow => self.verify_slowly(hash, password).await,
            Kind::Unknown => false,
        }
    }

    async fn verify_slowly(&self, hash: &str, password: String) -> bool {
        let digest: [u8; 32] =
            Sha256::new().chain_update(hash).chain_update([0]).chain_update(&password).finalize().into();
        if self.known.lock().get(&digest).is_some_and(|since| since.elapsed() < KNOWN) {
            return true;
        }
        let Ok(permit) = self.slow.clone().acquire_owned().await else { return false };
        let hash = hash.to_owned();
        let verified = tokio::task::spawn_blocking(move || {
            // A client that hangs up does not end the work, and so does not make room for more of it.
            let _permit = permit;
            verify(&hash, &password)
        });
        let right = verified.await.unwrap_or(false);
        if right {
            let mut known = self.known.lock();
            if known.len() >= MOST_KNOWN {
                known.retain(|_, since| since.elapsed() < KNOWN);
            }
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(digest, Instant::now());
        }
        right
    }
}

fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let decoded = STANDARD.decode(rest.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    (password.len() <= MOST_PASSWORD).then(|| (user.to_owned(), password.to_owned()))
}

enum Kind {
    Fast,
    Slow,
    Unknown,
}

impl Kind {
    fn of(hash: &str) -> Self {
        if hash.starts_with("{SHA}") || hash.starts_with("{PLAIN}") {
            return Self::Fast;
        }
        let cost = ["$2y$", "$2a$", "$2b$"].iter().find_map(|prefix| hash.strip_prefix(prefix));
        let cost = cost.and_then(|rest| rest.split('$').next()?.parse::<u32>().ok());
        if cost.is_some_and(|cost| cost <= MOST_COST) || hash.starts_with(apr1::PREFIX) {
            return Self::Slow;
        }
        Self::Unknown
    }
}

fn verify(hash: &str, password: &str) -> bool {
    if let Some(expected) = hash.strip_prefix("{SHA}") {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
        return STANDARD.decode(expected).is_ok_and(|expected| same(&expected, digest.as_ref()));
    }
    if let Some(expected) = hash.strip_prefix("{PLAIN}") {
        return same(expected.as_bytes(), password.as_bytes());
    }
    if hash.starts_with(apr1::PREFIX) {
        return apr1::hash(hash, password).is_some_and(|computed| same(computed.as_bytes(), hash.as_bytes()));
    }
    bcrypt::verify(password, hash).unwrap_or(false)
}

/// In a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_who_knows_the_password_comes_in() {
        let users = [
            ("a", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="),
            ("b", "{PLAIN}open"),
            ("c", "$unknown$x"),
            ("d", &*bcrypt::hash("secret", 4).unwrap().replacen("$2b$", "$2y$", 1)),
            ("e", "$apr1$TqI9WECO$LHZB2DqRlk9nObiB6vJG9."),
            ("f", "$2y$31$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzabcdef"),
        ];
        let users = users.iter().map(|(user, hash)| ((*user).into(), (*hash).into())).collect();
        let auth = BasicAuth { realm: "r".into(), users };
        let passwords = Passwords::default();
        for (text, want) in [
            ("a:password", true),
            ("a:Password", false),
            ("b:open", true),
            ("b:", false),
            ("c:x", false),
            ("d:secret", true),
            // Known by now.
            ("d:secret", true),
            ("d:Secret", false),
            ("e:secret", true),
            ("e:not it", false),
            ("f:x", false),
            ("nobody:password", false),
            ("a", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, format!("Basic {}", STANDARD.encode(text)).parse().unwrap());
            assert_eq!(passwords.admits(&auth, &headers).await, want, "{text}");
        }
        assert!(!passwords.admits(&auth, &HeaderMap::new()).await);
    }

    /// Whoever asked and hung up a thousand times had a thousand hashes computed at once.
    #[test]
    fn who_hangs_up_makes_no_room_for_more_work() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
        runtime.block_on(async {
            let (go_on, held) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || held.recv());
            let passwords = Passwords::default();
            for _ in 0..3 {
                let asked = passwords.verify_slowly("$2y$04$abcdefghijklmnopqrstuu", "x".to_owned());
                assert_eq!(futures::FutureExt::now_or_never(asked), None);
            }
            assert_eq!(passwords.slow.available_permits(), 0, "the work still has to be done");
            go_on.send(()).expect("somebody waits");
            busy.await.expect("done").expect("told");
            let all = u32::try_from(AT_ONCE).expect("a number");
            drop(passwords.slow.acquire_many(all).await.expect("open"));
        });
    }
}

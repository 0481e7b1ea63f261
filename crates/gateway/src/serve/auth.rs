//! Basic authentication against the lines of an htpasswd file.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use super::apr1;
use crate::table::BasicAuth;

/// Hashes that are made to be slow are computed so many at a time, and one of each owner.
const AT_ONCE: usize = 2;
/// So many passwords of one owner wait for theirs. Requests with the same one wait together: a browser sends many at once.
const MOST_WAITING: usize = 32;
/// A password that was right is known for a while: browsers send it with every request.
const KNOWN: Duration = Duration::from_secs(300);
/// Of one owner.
const MOST_KNOWN: usize = 1024;
/// Owners beyond are looked through for those that nobody asks any more.
const MANY_OWNERS: usize = 256;
/// A hash of this cost takes about a second; nobody gets more of the machine's time.
const MOST_COST: u32 = 14;
const MOST_PASSWORD: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    Yes,
    No,
    /// It would have to wait for too many others.
    Busy,
}

impl From<bool> for Admitted {
    fn from(is_right: bool) -> Self {
        if is_right { Self::Yes } else { Self::No }
    }
}

pub struct Passwords {
    slow: Arc<Semaphore>,
    owners: Mutex<HashMap<Arc<str>, Arc<Owner>>>,
}

/// Whoever writes slow hashes makes nobody else wait for them, nor forgotten.
struct Owner {
    turn: Arc<Semaphore>,
    places: Arc<Semaphore>,
    under_way: Mutex<HashMap<Digested, Weak<OnceCell<bool>>>>,
    known: Mutex<HashMap<Digested, Instant>>,
}

/// Of hash and password.
type Digested = [u8; 32];

impl Default for Owner {
    fn default() -> Self {
        let (turn, places) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(MOST_WAITING)));
        Self { turn, places, under_way: Mutex::default(), known: Mutex::default() }
    }
}

impl Owner {
    fn knows(&self, digest: &Digested) -> bool {
        self.known.lock().get(digest).is_some_and(|since| since.elapsed() < KNOWN)
    }

    fn remember(&self, digest: Digested) {
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            known.retain(|_, since| since.elapsed() < KNOWN);
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(digest, Instant::now());
    }

    /// Where those with this password wait for what comes of it.
    fn under_way(&self, digest: Digested) -> Arc<OnceCell<bool>> {
        let mut all = self.under_way.lock();
        if let Some(found) = all.get(&digest).and_then(Weak::upgrade) {
            return found;
        }
        all.retain(|_, one| one.strong_count() > 0);
        let new = Arc::default();
        all.insert(digest, Arc::downgrade(&new));
        new
    }

    fn is_quiet(&self) -> bool {
        let all_old = self.known.lock().values().all(|since| since.elapsed() >= KNOWN);
        all_old && self.places.available_permits() == MOST_WAITING
    }
}

impl Default for Passwords {
    fn default() -> Self {
        Self { slow: Arc::new(Semaphore::new(AT_ONCE)), owners: Mutex::default() }
    }
}

impl Passwords {
    pub async fn admits(&self, auth: &BasicAuth, headers: &HeaderMap) -> Admitted {
        let Some((user, password)) = credentials(headers) else { return Admitted::No };
        let Some(hash) = auth.users.hash(&user) else { return Admitted::No };
        match Kind::of(hash) {
            Kind::Fast => verify(hash, &password).into(),
            Kind::Slow => self.verify_slowly(&auth.owner, hash, password).await,
            Kind::Unknown => Admitted::No,
        }
    }

    fn owner(&self, name: &Arc<str>) -> Arc<Owner> {
        let mut owners = self.owners.lock();
        if owners.len() >= MANY_OWNERS && !owners.contains_key(name) {
            owners.retain(|_, owner| Arc::strong_count(owner) > 1 || !owner.is_quiet());
        }
        owners.entry(name.clone()).or_default().clone()
    }

    async fn verify_slowly(&self, owner: &Arc<str>, hash: &str, password: String) -> Admitted {
        let digest = Sha256::new().chain_update(hash).chain_update([0]).chain_update(&password).finalize().into();
        let owner = self.owner(owner);
        if owner.knows(&digest) {
            return Admitted::Yes;
        }
        let under_way = owner.under_way(digest);
        // If the first of them hangs up, the next one goes on.
        match under_way.get_or_try_init(|| self.compute(&owner, digest, hash, &password)).await {
            Ok(is_right) => (*is_right).into(),
            Err(refused) => refused,
        }
    }

    async fn compute(
        &self,
        owner: &Arc<Owner>,
        digest: Digested,
        hash: &str,
        password: &str,
    ) -> Result<bool, Admitted> {
        let place = owner.places.clone().try_acquire_owned().map_err(|_| Admitted::Busy)?;
        let turn = owner.turn.clone().acquire_owned().await.map_err(|_| Admitted::No)?;
        // Somebody who has hung up since may have brought the same.
        if owner.knows(&digest) {
            return Ok(true);
        }
        let permit = self.slow.clone().acquire_owned().await.map_err(|_| Admitted::No)?;
        let (hash, password, owner) = (hash.to_owned(), password.to_owned(), owner.clone());
        let verified = tokio::task::spawn_blocking(move || {
            // A client that hangs up does not end the work, and so does not make room for more of it.
            let _held = (permit, turn, place);
            let is_right = verify(&hash, &password);
            if is_right {
                owner.remember(digest);
            }
            is_right
        });
        Ok(verified.await.unwrap_or(false))
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
    use crate::table::Users;

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
        let lines: String = users.iter().map(|(user, hash)| format!("{user}:{hash}\n")).collect();
        let auth = BasicAuth { realm: "r".into(), owner: "n".into(), users: Arc::new(Users::read(&lines)) };
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
            assert_eq!(passwords.admits(&auth, &headers).await, Admitted::from(want), "{text}");
        }
        assert_eq!(passwords.admits(&auth, &HeaderMap::new()).await, Admitted::No);
    }

    /// Whoever asked and hung up a thousand times had a thousand hashes computed at once; and whoever asked for very slow ones
    /// made all others wait.
    #[test]
    fn who_asks_too_often_makes_nobody_else_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
        runtime.block_on(async {
            let (go_on, held) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || held.recv());
            let passwords = Passwords::default();
            let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
            let ask = |owner, password: usize| {
                passwords.verify_slowly(owner, "$2y$04$abcdefghijklmnopqrstuu", password.to_string())
            };
            for password in 0..3 {
                assert_eq!(futures::FutureExt::now_or_never(ask(&a, password)), None);
            }
            assert_eq!(passwords.slow.available_permits(), AT_ONCE - 1, "one of them is under way");
            let mut waiting: Vec<_> = (1..MOST_WAITING).map(|password| Box::pin(ask(&a, password))).collect();
            // Those who bring what somebody else has brought take no place.
            waiting.extend((0..2 * MOST_WAITING).map(|_| Box::pin(ask(&a, 7))));
            for one in &mut waiting {
                assert_eq!(futures::FutureExt::now_or_never(one), None);
            }
            assert_eq!(futures::FutureExt::now_or_never(ask(&a, 1000)), Some(Admitted::Busy));
            assert_eq!(futures::FutureExt::now_or_never(ask(&b, 0)), None);
            assert_eq!(passwords.slow.available_permits(), 0, "another one has its turn at once");
            go_on.send(()).expect("somebody waits");
            busy.await.expect("done").expect("told");
            for one in waiting {
                assert_eq!(one.await, Admitted::No);
            }
            let all = u32::try_from(AT_ONCE).expect("a number");
            drop(passwords.slow.acquire_many(all).await.expect("open"));
        });
    }
}

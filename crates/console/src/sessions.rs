//! Sessions and one-time codes: in memory only, bounded in number and in time.
//!
//! Ids and keys are kept as digests: who reads this memory cannot sign in with what stands there, and a lookup tells nothing
//! by the time it takes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::Digest as _;

use crate::Credential;

pub type Digest = [u8; 32];

/// A session is over after this time, however busy it is.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// A session that nobody uses is over earlier. An open page asks all the time.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// A code is handed over at once.
const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Of all users together, and of one: the one that was not used for longest makes room.
const MOST: usize = 1024;
const MOST_OF_ONE: usize = 16;

struct Entry {
    user: String,
    /// Of a code: empty.
    key: Digest,
    credential: Credential,
    began: Instant,
    used: Instant,
}

#[derive(Default)]
pub(crate) struct Sessions {
    sessions: HashMap<Digest, Entry>,
    codes: HashMap<Digest, Entry>,
}

pub(crate) fn digest(text: &str) -> Digest {
    sha2::Sha256::digest(text.as_bytes()).into()
}

/// 256 random bits, as text.
fn secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

impl Entry {
    fn new(user: &str, key: Digest, credential: Credential, now: Instant) -> Self {
        Self { user: user.to_owned(), key, credential, began: now, used: now }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= SESSION_LIFETIME
            || now.saturating_duration_since(self.used) >= IDLE
    }
}

impl Sessions {
    /// The id and the key of a new session.
    pub(crate) fn begin(&mut self, user: &str, credential: Credential, now: Instant) -> (String, String) {
        self.sessions.retain(|_, session| !session.is_over(now));
        make_room(&mut self.sessions, user);
        let (id, key) = (secret(), secret());
        self.sessions.insert(digest(&id), Entry::new(user, digest(&key), credential, now));
        (id, key)
    }

    pub(crate) fn find(&mut self, id: Digest, key: &str, now: Instant) -> Option<Credential> {
        let session = self.sessions.get_mut(&id)?;
        if session.is_over(now) {
            self.sessions.remove(&id);
            return None;
        }
        if session.key != digest(key) {
            return None;
        }
        session.used = now;
        Some(session.credential.clone())
    }

    pub(crate) fn end(&mut self, id: &Digest) {
        self.sessions.remove(id);
    }

    pub(crate) fn issue_code(&mut self, user: &str, credential: Credential, now: Instant) -> String {
        self.codes.retain(|_, code| now.saturating_duration_since(code.began) < CODE_LIFETIME);
        make_room(&mut self.codes, user);
        let code = secret();
        self.codes.insert(digest(&code), Entry::new(user, Digest::default(), credential, now));
        code
    }

    /// Once, whatever comes of it.
    pub(crate) fn redeem(&mut self, code: &str, now: Instant) -> Option<Credential> {
        let found = self.codes.remove(&digest(code))?;
        (now.saturating_duration_since(found.began) < CODE_LIFETIME).then_some(found.credential)
    }
}

/// One user's many sessions end before those of others do: also where all are too many, whoever has most loses one.
fn make_room(entries: &mut HashMap<Digest, Entry>, user: &str) {
    if let Some(id) = gives_way(entries, user) {
        entries.remove(&id);
    }
}

fn gives_way(entries: &HashMap<Digest, Entry>, user: &str) -> Option<Digest> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for entry in entries.values() {
        *counts.entry(&entry.user).or_default() += 1;
    }
    let count = |user: &str| counts.get(user).copied().unwrap_or_default();
    let most = counts.values().copied().max().unwrap_or_default();
    let may = |entry: &Entry| match count(user) >= MOST_OF_ONE {
        true => entry.user == user,
        false => entries.len() >= MOST && count(&entry.user) == most,
    };
    entries.iter().filter(|(_, entry)| may(entry)).min_by_key(|(_, entry)| entry.used).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn credential() -> Credential {
        Credential::Token(HeaderValue::from_static("Bearer token"))
    }

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let code = sessions.issue_code("bob", credential(), now);
        assert!(sessions.redeem("another", now).is_none());
        assert!(sessions.redeem(&code, now).is_some());
        assert!(sessions.redeem(&code, now).is_none(), "it was used");
        let late = sessions.issue_code("bob", credential(), now);
        assert!(sessions.redeem(&late, now + CODE_LIFETIME).is_none());
        assert!(sessions.redeem(&late, now).is_none(), "an expired code is gone");
    }

    #[test]
    fn a_session_ends_when_it_is_old_idle_or_ended() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let (id, key) = sessions.begin("bob", credential(), now);
        let mut time = now;
        while time + IDLE / 2 < now + SESSION_LIFETIME {
            assert!(sessions.find(digest(&id), &key, time).is_some());
            time += IDLE / 2;
        }
        assert!(sessions.find(digest(&id), &key, now + SESSION_LIFETIME).is_none(), "old");
        let (id, key) = sessions.begin("bob", credential(), now);
        assert!(sessions.find(digest(&id), &key, now + IDLE).is_none(), "idle");
        let (id, key) = sessions.begin("bob", credential(), now);
        sessions.end(&digest(&id));
        assert!(sessions.find(digest(&id), &key, now).is_none(), "ended");
    }

    #[test]
    fn a_cookie_without_its_key_opens_nothing() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let (id, key) = sessions.begin("bob", credential(), now);
        let (_, other) = sessions.begin("mallory", credential(), now);
        assert!(sessions.find(digest(&id), &other, now).is_none());
        assert!(sessions.find(digest(&id), "", now).is_none());
        assert!(sessions.find(digest(&id), &key, now).is_some(), "a wrong guess ends nothing");
    }

    #[test]
    fn many_sessions_of_one_user_end_no_others() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let (id, key) = sessions.begin("alice", credential(), now);
        for _ in 0..3 * MOST {
            sessions.begin("bob", credential(), now + Duration::from_secs(1));
        }
        assert_eq!(sessions.sessions.len(), MOST_OF_ONE + 1);
        assert!(sessions.find(digest(&id), &key, now).is_some());
        for number in 0..3 * MOST {
            sessions.begin(&number.to_string(), credential(), now + Duration::from_secs(1));
            sessions.issue_code(&number.to_string(), credential(), now);
        }
        assert_eq!((sessions.sessions.len(), sessions.codes.len()), (MOST, MOST));
    }

    /// Who can make accounts can make many: all of theirs together pushed out everybody else.
    #[test]
    fn many_accounts_with_many_sessions_end_no_others() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let (id, key) = sessions.begin("alice", credential(), now);
        for number in 0..2 * MOST {
            sessions.begin(&format!("mallory-{}", number % 100), credential(), now + Duration::from_secs(1));
        }
        assert_eq!(sessions.sessions.len(), MOST);
        assert!(sessions.find(digest(&id), &key, now).is_some());
    }
}

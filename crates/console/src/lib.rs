//! The console: web pages in the binary, and the sign-in of browsers.
//!
//! The pages are a client like any other. They read and write through the API with the viewer's own credential; a session
//! is nothing but that credential, kept in memory under a cookie. Nothing here decides who may do what, and nothing here
//! reads an object: it depends on `meta` alone.
//!
//! Where to look: the files of the pages → `web/` and `assets.rs`; who is let in by a cookie → `guard.rs`; what is kept of
//! them, for how long and of how many → `sessions.rs`.

mod assets;
mod guard;
mod sessions;

use std::sync::Arc;
use std::time::Instant;

use http::header::{AUTHORIZATION, HeaderValue};
use http::request::Parts;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

pub use assets::{compressed_size, respond};
pub use guard::{CODE_HEADER, COOKIE, KEY_HEADER, Refusal};
pub use sessions::{Digest, SESSION_LIFETIME};

use sessions::Sessions;

/// Where the pages are.
pub const ROOT: &str = "/console/";
/// Where a browser signs in (POST), asks who it is (GET) and signs out (DELETE).
pub const SESSION_PATH: &str = "/console/session";
/// Where a one-time code is asked for.
pub const CODE_PATH: &str = "/console/code";

/// The certificates of a client, the leaf first.
pub type Certificates = Arc<[CertificateDer<'static>]>;

/// What a caller proves themselves with. It is checked anew with every request: a token that was revoked and a
/// certificate that ran out end their sessions.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The `Authorization` header.
    Token(HeaderValue),
    Certificates(Certificates),
}

impl Credential {
    /// What a request shows; None where it shows nothing that could be shown again.
    pub fn of(headers: &http::HeaderMap, certificates: &Certificates) -> Option<Self> {
        match headers.get(AUTHORIZATION) {
            Some(token) => {
                let mut token = token.clone();
                token.set_sensitive(true);
                Some(Self::Token(token))
            }
            None => (!certificates.is_empty()).then(|| Self::Certificates(certificates.clone())),
        }
    }

    /// Makes it the credential of a request, and the only one.
    pub fn show(&self, headers: &mut http::HeaderMap, certificates: &mut Certificates) {
        headers.remove(AUTHORIZATION);
        *certificates = Arc::default();
        match self {
            Self::Token(token) => drop(headers.insert(AUTHORIZATION, token.clone())),
            Self::Certificates(own) => *certificates = own.clone(),
        }
    }
}

/// By what a request was let in, where it did not bring its own credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    Session(Digest),
    Code,
}

/// A session that has begun.
pub struct Began {
    /// For `Set-Cookie`.
    pub cookie: HeaderValue,
    /// What every request has to bring beside the cookie.
    pub key: String,
}

/// The sessions of one server.
#[derive(Default)]
pub struct Console {
    sessions: Mutex<Sessions>,
}

impl Console {
    /// Looks at a request before anything else does: takes out what is meant for the console alone, and puts the credential of
    /// a session in its place. Requests without a cookie or a code stay as they are.
    pub fn admit(&self, request: &mut Parts, certificates: &mut Certificates) -> Result<Option<Admitted>, Refusal> {
        let brought = guard::take(&mut request.headers);
        let Some(wanted) = guard::judge(request, certificates, brought)? else { return Ok(None) };
        let now = Instant::now();
        let (credential, admitted) = match wanted {
            guard::Wanted::Code(code) => {
                let credential = self.sessions.lock().redeem(&code, now).ok_or(Refusal::Code)?;
                (credential, Admitted::Code)
            }
            guard::Wanted::Session { id, key } => {
                let credential = self.sessions.lock().find(id, &key, now).ok_or(Refusal::Over)?;
                (credential, Admitted::Session(id))
            }
        };
        credential.show(&mut request.headers, certificates);
        Ok(Some(admitted))
    }

    /// A code that is good for one sign-in within a minute.
    pub fn issue_code(&self, user: &str, credential: Credential) -> String {
        self.sessions.lock().issue_code(user, credential, Instant::now())
    }

    pub fn begin(&self, user: &str, credential: Credential) -> Began {
        let (id, key) = self.sessions.lock().begin(user, credential, Instant::now());
        Began { cookie: guard::cookie(&id, SESSION_LIFETIME.as_secs()), key }
    }

    /// Returns what makes the browser forget it.
    pub fn end(&self, session: &Digest) -> HeaderValue {
        self.sessions.lock().end(session);
        guard::cookie("", 0)
    }
}

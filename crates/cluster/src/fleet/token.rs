//! What `ferry token create` prints and `ferry join` takes: a bootstrap token and the hash of the cluster's CA in one text.
//!
//! `abcdef.0123456789abcdef@sha256:…`: before the `@` it is upstream's bootstrap token, behind it what kubeadm calls the
//! discovery token's CA certificate hash.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub id: String,
    pub secret: String,
    /// SHA-256 of the public key of the CA, in hexadecimal.
    pub ca: String,
}

const SHAPE: &str = "a token looks like abcdef.0123456789abcdef@sha256:… with 64 characters behind the colon; \
                     print a whole one with `ferry token create` on a server";

impl FromStr for JoinToken {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.split('@').next().is_some_and(|token| token.split('.').count() == 3) {
            bail!(
                "this token is for servers; a node joins with one that `ferry token create` printed without --server"
            );
        }
        let parsed = || {
            let (token, ca) = text.trim().split_once("@sha256:")?;
            let (id, secret) = token.split_once('.')?;
            let is_word = |word: &str, length| {
                word.len() == length && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            };
            let is_hash = ca.len() == 64 && ca.bytes().all(|byte| byte.is_ascii_hexdigit());
            (is_word(id, 6) && is_word(secret, 16) && is_hash).then(|| Self {
                id: id.to_owned(),
                secret: secret.to_owned(),
                ca: ca.to_lowercase(),
            })
        };
        // The text is a secret, so that it is not repeated.
        parsed().ok_or_else(|| anyhow!("this is not a whole token: {SHAPE}"))
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@sha256:{}", self.id, self.secret, self.ca)
    }
}

/// Without the secret: it must not reach a log.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.id)
    }
}

impl JoinToken {
    /// A new one for the cluster with this CA.
    pub fn new(ca_pem: &str) -> Result<Self> {
        Ok(Self { id: random_word(6)?, secret: random_word(16)?, ca: ca_hash(ca_pem)? })
    }

    /// Of these certificates the CA that the token names; the others are nobody's: whoever knows the token's secret can sign a
    /// list with an authority of his own beside the cluster's. Fails where it is not among them.
    pub fn trusted_ca(&self, pem: &str) -> Result<String> {
        let all = certificates(pem)?;
        let mut named = Vec::new();
        for certificate in &all {
            if hash_of(certificate)? == self.ca {
                named.push(certificate);
            }
        }
        ensure!(
            !named.is_empty(),
            "the server's CA is not the one that the token names: the token is of another cluster, or somebody else answers at this address"
        );
        // The same text as the cluster's, where there is nothing to leave out: it is compared with what is on disk.
        if named.len() == all.len() { Ok(pem.to_owned()) } else { Ok(named.into_iter().map(pem_of).collect()) }
    }
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    // Base64 is ASCII.
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// Small letters and digits.
pub fn random_word(length: usize) -> Result<String> {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut word = String::new();
    while word.len() < length {
        let mut bytes = [0_u8; 32];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow!("the system gives no random numbers"))?;
        // 252 is the largest multiple of 36 in a byte: above it some letters would be likelier.
        let fair = bytes.iter().filter(|byte| **byte < 252).map(|byte| char::from(LETTERS[usize::from(byte % 36)]));
        word.extend(fair.take(length - word.len()));
    }
    Ok(word)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("not PEM")?;
    if all.is_empty() {
        bail!("there is no certificate in the cluster's CA");
    }
    Ok(all)
}

pub fn ca_hash(pem: &str) -> Result<String> {
    let all = certificates(pem)?;
    hash_of(&all[0])
}

fn hash_of(certificate: &CertificateDer<'_>) -> Result<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).context("the CA certificate is damaged")?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parsed.public_key().raw);
    Ok(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_printed() {
        let folder = tempfile::tempdir().unwrap();
        let pki = ferry_server::pki::Pki::open(folder.path()).unwrap();
        let token = JoinToken::new(pki.ca_certificate()).unwrap();
        assert_eq!(token.to_string().parse::<JoinToken>().unwrap(), token);
        assert_eq!(token.trusted_ca(pki.ca_certificate()).unwrap(), pki.ca_certificate());
        assert!(!format!("{token:?}").contains(&token.secret));

        let other = ferry_server::pki::Pki::open(&folder.path().join("other")).unwrap();
        let error = token.trusted_ca(other.ca_certificate()).unwrap_err().to_string();
        assert!(error.contains("another cluster"), "{error}");
    }

    #[test]
    fn an_authority_beside_the_clusters_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let pki = ferry_server::pki::Pki::open(folder.path()).unwrap();
        let other = ferry_server::pki::Pki::open(&folder.path().join("other")).unwrap();
        let token = JoinToken::new(pki.ca_certificate()).unwrap();
        let own = certificates(pki.ca_certificate()).unwrap();
        for both in [[pki.ca_certificate(), other.ca_certificate()], [other.ca_certificate(), pki.ca_certificate()]] {
            let trusted = token.trusted_ca(&both.join("\n")).unwrap();
            assert_eq!(certificates(&trusted).unwrap(), own);
        }
        // What cannot be read may be read by somebody else.
        let damaged = format!("{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", pki.ca_certificate());
        assert!(token.trusted_ca(&damaged).is_err());
    }

    #[test]
    fn half_a_token_is_refused_without_repeating_it() {
        let hash = "0".repeat(64);
        for bad in [
            String::new(),
            "abcdef".into(),
            "abcdef.0123456789abcdef".into(),
            format!("abcdef.0123456789abcde@sha256:{hash}"),
            format!("ABCDEF.0123456789abcdef@sha256:{hash}"),
            format!("abcdef.0123456789abcdef@sha256:{}", &hash[1..]),
            format!("abcdef.0123456789abcdef@sha1:{hash}"),
        ] {
            let error = bad.parse::<JoinToken>().unwrap_err().to_string();
            assert!(error.contains("not a whole token") && !error.contains("0123456789abcdef@sha256:0"), "{error}");
        }
        assert!(format!(" abcdef.0123456789abcdef@sha256:{hash}\n").parse::<JoinToken>().is_ok());
    }
}

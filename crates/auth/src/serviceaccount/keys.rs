//! Keys that sign and verify service-account tokens: ES256 (P-256) and RS256.
//!
//! A key knows the one algorithm it is for; what a token's header claims is only ever compared with it.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as ParsedSpki;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::jws::Parts;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("no PEM block with a key found")]
    NoPem,
    #[error("the key is neither RSA (2048 bits or more) nor ECDSA on P-256: {0}")]
    Unsupported(String),
    #[error("a key could not be generated")]
    Generate,
    #[error("signing failed")]
    Sign,
}

enum Private {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// The private key that new tokens are signed with.
pub struct SigningKey {
    private: Private,
    public: VerifyingKey,
}

/// A public key that tokens are verified with.
#[derive(Clone)]
pub struct VerifyingKey {
    id: String,
    algorithm: &'static str,
    key: std::sync::Arc<ParsedPublicKey>,
    jwk: Value,
}

impl SigningKey {
    /// A new P-256 key as PKCS#8 PEM, to be kept in a file only its owner may read.
    pub fn generate_pem() -> Result<String, KeyError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| KeyError::Generate)?;
        let encoded = STANDARD.encode(document.as_ref());
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        for line in encoded.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        Ok(pem)
    }

    /// Reads `PRIVATE KEY`, `EC PRIVATE KEY` and `RSA PRIVATE KEY` blocks.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let (_, der) = blocks(pem).find(|(label, _)| label.ends_with("PRIVATE KEY")).ok_or(KeyError::NoPem)?;
        if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &der) {
            let spki = spki(pair.public_key())?;
            return Ok(Self { private: Private::Ecdsa(pair), public: VerifyingKey::from_spki(&spki)? });
        }
        let pair = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der));
        let pair = pair.map_err(|e| KeyError::Unsupported(e.to_string()))?;
        let spki = spki(pair.public_key())?;
        Ok(Self { private: Private::Rsa(pair), public: VerifyingKey::from_spki(&spki)? })
    }

    /// A token over any claims, for tests of what is refused.
    #[cfg(any(test, feature = "testing"))]
    pub fn sign_for_tests(&self, claims: &Value) -> String {
        self.sign(claims).unwrap_or_default()
    }

    pub fn verifying_key(&self) -> &VerifyingKey {
        &self.public
    }

    /// A compact JWS over the claims.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": self.public.algorithm, "kid": self.public.id});
        let message =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match &self.private {
            Private::Ecdsa(pair) => {
                pair.sign(&random, message.as_bytes()).map_err(|_| KeyError::Sign)?.as_ref().to_vec()
            }
            Private::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature)
                    .map_err(|_| KeyError::Sign)?;
                signature
            }
        };
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn spki(key: &impl AsDer<PublicKeyX509Der<'static>>) -> Result<Vec<u8>, KeyError> {
    key.as_der().map(|der| der.as_ref().to_vec()).map_err(|_| KeyError::Unsupported("no public key".into()))
}

impl VerifyingKey {
    /// Reads `PUBLIC KEY` blocks, and takes the keys of certificates and the public half of private ones.
    pub fn all_from_pem(pem: &str) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for (label, der) in blocks(pem) {
            match label.as_str() {
                "PUBLIC KEY" => keys.push(Self::from_spki(&der)?),
                "CERTIFICATE" => {
                    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&der)
                        .map_err(|e| KeyError::Unsupported(e.to_string()))?;
                    keys.push(Self::from_spki(certificate.public_key().raw)?);
                }
                label if label.ends_with("PRIVATE KEY") => {
                    let block = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(&der));
                    keys.push(SigningKey::from_pem(&block)?.public);
                }
                _ => {}
            }
        }
        if keys.is_empty() { Err(KeyError::NoPem) } else { Ok(keys) }
    }

    /// The name that tokens call it by.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let unsupported = |why: &str| KeyError::Unsupported(why.to_owned());
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|e| KeyError::Unsupported(e.to_string()))?;
        let parsed = info.parsed().map_err(|e| KeyError::Unsupported(e.to_string()))?;
        // As upstream names keys: the digest of the whole public key structure.
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
        let (algorithm, verification, jwk): (_, &'static dyn signature::VerificationAlgorithm, _) = match parsed {
            ParsedSpki::EC(point) if point.data().len() == 65 && point.data()[0] == 4 => {
                let (x, y) = point.data()[1..].split_at(32);
                let jwk = json!({
                    "use": "sig", "kty": "EC", "kid": id, "crv": "P-256", "alg": "ES256",
                    "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
                });
                ("ES256", &ECDSA_P256_SHA256_FIXED, jwk)
            }
            ParsedSpki::RSA(rsa) => {
                let strip = |bytes: &[u8]| {
                    let start = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
                    URL_SAFE_NO_PAD.encode(&bytes[start..])
                };
                let jwk = json!({
                    "use": "sig", "kty": "RSA", "kid": id, "alg": "RS256",
                    "n": strip(rsa.modulus), "e": strip(rsa.exponent),
                });
                ("RS256", &RSA_PKCS1_2048_8192_SHA256, jwk)
            }
            _ => return Err(unsupported("another kind of public key")),
        };
        let key = ParsedPublicKey::new(verification, der).map_err(|e| KeyError::Unsupported(e.to_string()))?;
        Ok(Self { id, algorithm, key: std::sync::Arc::new(key), jwk })
    }

    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The key as an entry of a JWKS document.
    pub fn jwk(&self) -> &Value {
        &self.jwk
    }
}

/// A token taken apart; nothing in it may be believed before `verify`.
pub(crate) struct Unverified<'a> {
    message: &'a str,
    signature: Vec<u8>,
    algorithm: String,
    key_id: Option<String>,
    pub(crate) claims: Value,
}

impl<'a> Unverified<'a> {
    /// `None` when the text is no compact JWS with JSON claims.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        let Parts { message, signature, header, claims } = Parts::of(token)?;
        let algorithm = header.get("alg")?.as_str()?.to_owned();
        let key_id = header.get("kid").and_then(Value::as_str).map(str::to_owned);
        Some(Self { message, signature, algorithm, key_id, claims })
    }

    pub(crate) fn verify(&self, keys: &[VerifyingKey]) -> bool {
        keys.iter()
            .filter(|key| key.algorithm == self.algorithm)
            .filter(|key| self.key_id.as_ref().is_none_or(|id| *id == key.id))
            .any(|key| key.key.verify_sig(self.message.as_bytes(), &self.signature).is_ok())
    }
}

/// The PEM blocks of a text; lines between blocks and broken blocks are skipped.
fn blocks(pem: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    let mut rest = pem;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find("-----BEGIN ")?;
            let after = &rest[start + 11..];
            let (label, after) = after.split_once("-----")?;
            let end = format!("-----END {label}-----");
            let Some((body, following)) = after.split_once(end.as_str()) else {
                rest = after;
                continue;
            };
            rest = following;
            let compact: String = body.chars().filter(|c| !c.is_whitespace()).collect();
            if let Ok(der) = STANDARD.decode(compact) {
                return Some((label.to_owned(), der));
            }
        }
    })
}

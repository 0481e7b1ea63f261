//! The ciphers, in the byte forms upstream stores.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use bytes::Bytes;
use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead, KeyInit};

use super::kms::Kms;

const IV_LENGTH: usize = 16;
const BOX_NONCE_LENGTH: usize = 24;

/// Why a value could not be read.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It never will be.
    Damaged(String),
    /// Who has the key cannot be asked now.
    Unavailable(String),
}

pub(super) enum Provider {
    Identity,
    Gcm { prefix: Vec<u8>, key: LessSafeKey },
    Box { prefix: Vec<u8>, key: Box<XSalsa20Poly1305> },
    Kms(Kms),
    Cbc { prefix: Vec<u8>, encrypt: PaddedBlockEncryptingKey, decrypt: PaddedBlockDecryptingKey },
}

fn wrong_length(name: &str, length: usize) -> String {
    format!("key {name:?}: a secret has 16, 24 or 32 bytes, not {length}")
}

impl Provider {
    pub(super) fn gcm(name: &str, secret: &[u8]) -> Result<Self, String> {
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            length => return Err(wrong_length(name, length)),
        };
        let key = UnboundKey::new(algorithm, secret).map_err(|_| wrong_length(name, secret.len()))?;
        Ok(Self::Gcm { prefix: format!("k8s:enc:aesgcm:v1:{name}:").into_bytes(), key: LessSafeKey::new(key) })
    }

    pub(super) fn cbc(name: &str, secret: &[u8]) -> Result<Self, String> {
        let algorithm = match secret.len() {
            16 => &AES_128,
            24 => &AES_192,
            32 => &AES_256,
            length => return Err(wrong_length(name, length)),
        };
        let bad = |_| wrong_length(name, secret.len());
        let key = || UnboundCipherKey::new(algorithm, secret).map_err(bad);
        Ok(Self::Cbc {
            prefix: format!("k8s:enc:aescbc:v1:{name}:").into_bytes(),
            encrypt: PaddedBlockEncryptingKey::cbc_pkcs7(key()?).map_err(bad)?,
            decrypt: PaddedBlockDecryptingKey::cbc_pkcs7(key()?).map_err(bad)?,
        })
    }

    pub(super) fn secretbox(name: &str, secret: &[u8]) -> Result<Self, String> {
        let key = XSalsa20Poly1305::new_from_slice(secret)
            .map_err(|_| format!("key {name:?}: a secret has 32 bytes, not {}", secret.len()))?;
        Ok(Self::Box { prefix: format!("k8s:enc:secretbox:v1:{name}:").into_bytes(), key: Box::new(key) })
    }

    /// What follows this provider's prefix; None where another one wrote the value.
    pub(super) fn recognizes<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Identity => None,
            Self::Kms(kms) => kms.recognizes(value),
            Self::Gcm { prefix, .. } | Self::Cbc { prefix, .. } | Self::Box { prefix, .. } => {
                value.strip_prefix(&**prefix)
            }
        }
    }

    /// Whether this provider would write the value anew, and thereby differently.
    pub(super) fn is_stale(&self, value: &[u8]) -> bool {
        match self {
            Self::Identity => super::is_sealed(value),
            Self::Kms(kms) => kms.recognizes(value).is_none_or(|sealed| kms.is_stale(sealed)),
            _ => self.recognizes(value).is_none(),
        }
    }

    /// `key` is bound into the value where the cipher can do so: nobody can move a value to another name.
    pub(super) fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, String> {
        match self {
            Self::Identity => Ok(value.clone()),
            Self::Kms(kms) => kms.seal(key, value),
            Self::Gcm { prefix, key: cipher } => {
                let mut out = prefix.clone();
                seal_gcm(cipher, key, value, &mut out)?;
                Ok(out.into())
            }
            Self::Box { prefix, key: cipher } => {
                let mut nonce = [0; BOX_NONCE_LENGTH];
                fill(&mut nonce)?;
                let body = cipher.encrypt(&nonce.into(), &value[..]).map_err(|_| not_sealed())?;
                Ok([prefix, &nonce[..], &body].concat().into())
            }
            Self::Cbc { prefix, encrypt, .. } => {
                let mut iv = [0; IV_LENGTH];
                fill(&mut iv)?;
                let mut body = value.to_vec();
                let context = EncryptionContext::Iv128(FixedLength::from(iv));
                encrypt.less_safe_encrypt(&mut body, context).map_err(|_| not_sealed())?;
                Ok([prefix, &iv[..], &body].concat().into())
            }
        }
    }

    /// `sealed` is what follows the prefix.
    pub(super) async fn open(&self, key: &str, sealed: &[u8]) -> Result<Bytes, Failure> {
        match self {
            Self::Identity => Err(Failure::Damaged("it is not encrypted".into())),
            Self::Kms(kms) => kms.open(key, sealed).await,
            Self::Gcm { key: cipher, .. } => open_gcm(cipher, key, sealed),
            Self::Box { key: cipher, .. } => {
                let (nonce, body) = sealed.split_at_checked(BOX_NONCE_LENGTH).ok_or_else(damaged)?;
                let nonce: [u8; BOX_NONCE_LENGTH] = nonce.try_into().map_err(|_| damaged())?;
                cipher.decrypt(&nonce.into(), body).map(Bytes::from).map_err(|_| damaged())
            }
            Self::Cbc { decrypt, .. } => {
                let (iv, body) = sealed.split_at_checked(IV_LENGTH).ok_or_else(damaged)?;
                let iv: [u8; IV_LENGTH] = iv.try_into().map_err(|_| damaged())?;
                let mut body = body.to_vec();
                let context = DecryptionContext::Iv128(FixedLength::from(iv));
                let length = decrypt.decrypt(&mut body, context).map_err(|_| damaged())?.len();
                body.truncate(length);
                Ok(body.into())
            }
        }
    }
}

fn not_sealed() -> String {
    "the value could not be encrypted".to_owned()
}

pub(super) fn damaged() -> Failure {
    Failure::Damaged("it was damaged, moved from another key, or written with another secret".to_owned())
}

pub(super) fn fill(bytes: &mut [u8]) -> Result<(), String> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| "the system has no randomness".to_owned())
}

/// Appends a nonce, the value and its tag.
pub(super) fn seal_gcm(cipher: &LessSafeKey, key: &str, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut nonce = [0; NONCE_LEN];
    fill(&mut nonce)?;
    out.reserve(NONCE_LEN + value.len() + 16);
    out.extend_from_slice(&nonce);
    let mut body = value.to_vec();
    let aad = Aad::from(key.as_bytes());
    cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body).map_err(|_| not_sealed())?;
    out.extend_from_slice(&body);
    Ok(())
}

pub(super) fn open_gcm(cipher: &LessSafeKey, key: &str, sealed: &[u8]) -> Result<Bytes, Failure> {
    let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
    let mut body = body.to_vec();
    let aad = Aad::from(key.as_bytes());
    let length = cipher.open_in_place(nonce, aad, &mut body).map_err(|_| damaged())?.len();
    body.truncate(length);
    Ok(body.into())
}

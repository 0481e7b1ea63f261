//! The ciphers, in the byte forms upstream stores.

use aws_lc_rs::aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use bytes::Bytes;

const IV_LENGTH: usize = 16;

pub(super) enum Provider {
    Identity,
    Gcm { prefix: Vec<u8>, key: LessSafeKey },
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

    /// What follows this provider's prefix; None where another one wrote the value.
    pub(super) fn recognizes<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Identity => None,
            Self::Gcm { prefix, .. } | Self::Cbc { prefix, .. } => value.strip_prefix(&**prefix),
        }
    }

    /// `key` is bound into the value where the cipher can do so: nobody can move a value to another name.
    pub(super) fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, String> {
        let failed = |_| "the value could not be encrypted".to_owned();
        match self {
            Self::Identity => Ok(value.clone()),
            Self::Gcm { prefix, key: cipher } => {
                let mut nonce = [0; NONCE_LEN];
                aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
                let mut out = Vec::with_capacity(prefix.len() + NONCE_LEN + value.len() + 16);
                out.extend_from_slice(prefix);
                out.extend_from_slice(&nonce);
                let mut body = value.to_vec();
                let aad = Aad::from(key.as_bytes());
                cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body).map_err(failed)?;
                out.extend_from_slice(&body);
                Ok(out.into())
            }
            Self::Cbc { prefix, encrypt, .. } => {
                let mut iv = [0; IV_LENGTH];
                aws_lc_rs::rand::fill(&mut iv).map_err(failed)?;
                let mut body = value.to_vec();
                let context = EncryptionContext::Iv128(FixedLength::from(iv));
                encrypt.less_safe_encrypt(&mut body, context).map_err(failed)?;
                let mut out = Vec::with_capacity(prefix.len() + IV_LENGTH + body.len());
                out.extend_from_slice(prefix);
                out.extend_from_slice(&iv);
                out.extend_from_slice(&body);
                Ok(out.into())
            }
        }
    }

    /// `sealed` is what follows the prefix.
    pub(super) fn open(&self, key: &str, sealed: &[u8]) -> Result<Bytes, String> {
        let damaged = || "it was damaged, moved from another key, or written with another secret".to_owned();
        match self {
            Self::Identity => Err("it is not encrypted".into()),
            Self::Gcm { key: cipher, .. } => {
                let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or_else(damaged)?;
                let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
                let mut body = body.to_vec();
                let aad = Aad::from(key.as_bytes());
                let length = cipher.open_in_place(nonce, aad, &mut body).map_err(|_| damaged())?.len();
                body.truncate(length);
                Ok(body.into())
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

//! JSON web keys and signatures. A key is for the algorithms of its own kind; a token's header only picks among those
//! that the provider is allowed.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ferry_meta::object::text;
use serde_json::Value;

use crate::jws::Parts;

pub(super) const ALGORITHMS: [&str; 9] =
    ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"];

pub(super) struct Key {
    id: String,
    material: Material,
}

enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The curve's algorithm, and the point as it stands in certificates.
    Ec(&'static str, Vec<u8>),
}

impl Key {
    /// None for keys of a kind, or for a use, that is not ours.
    pub(super) fn read(jwk: &Value) -> Option<Self> {
        if !matches!(text(jwk, "/use"), "" | "sig") {
            return None;
        }
        let bytes = |field: &str| URL_SAFE_NO_PAD.decode(text(jwk, &format!("/{field}")).trim_end_matches('=')).ok();
        let material = match text(jwk, "/kty") {
            "RSA" => Material::Rsa { n: bytes("n")?, e: bytes("e")? },
            "EC" => {
                let (algorithm, length) = match text(jwk, "/crv") {
                    "P-256" => ("ES256", 32),
                    "P-384" => ("ES384", 48),
                    "P-521" => ("ES512", 66),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != length || y.len() != length {
                    return None;
                }
                Material::Ec(algorithm, [&[4], &*x, &*y].concat())
            }
            _ => return None,
        };
        Some(Self { id: text(jwk, "/kid").to_owned(), material })
    }

    fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Rsa { n, e } => {
                let parameters: &RsaParameters = match algorithm {
                    "RS256" => &RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &RSA_PSS_2048_8192_SHA256,
                    "PS384" => &RSA_PSS_2048_8192_SHA384,
                    "PS512" => &RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            Material::Ec(own, point) => {
                let verification = match (*own == algorithm, algorithm) {
                    (true, "ES256") => &ECDSA_P256_SHA256_FIXED,
                    (true, "ES384") => &ECDSA_P384_SHA384_FIXED,
                    (true, "ES512") => &ECDSA_P521_SHA512_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(verification, point).verify(message, signature).is_ok()
            }
        }
    }
}

/// A token taken apart; nothing in it may be believed before `verify`.
pub(super) struct Jws<'a> {
    message: &'a str,
    signature: Vec<u8>,
    algorithm: String,
    key_id: String,
    pub(super) claims: Value,
}

impl<'a> Jws<'a> {
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        let Parts { message, signature, header, claims } = Parts::of(token)?;
        let (algorithm, key_id) = (text(&header, "/alg").to_owned(), text(&header, "/kid").to_owned());
        Some(Self { message, signature, algorithm, key_id, claims })
    }

    fn fits(&self, key: &Key) -> bool {
        self.key_id.is_empty() || key.id.is_empty() || key.id == self.key_id
    }

    pub(super) fn is_known(&self, keys: &[Key]) -> bool {
        !self.key_id.is_empty() && keys.iter().any(|key| key.id == self.key_id)
    }

    pub(super) fn verify(&self, keys: &[Key], allowed: &[String]) -> bool {
        allowed.contains(&self.algorithm)
            && keys
                .iter()
                .filter(|key| self.fits(key))
                .any(|key| key.verify(&self.algorithm, self.message.as_bytes(), &self.signature))
    }
}

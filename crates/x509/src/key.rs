//! Public keys: of what kind they are, and whether a signature was made with their other half.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Ed25519,
    /// On the curve of this name.
    Elliptic(&'static str),
    /// With a modulus of so many bits, in whole bytes.
    Rsa(usize),
    /// None that anything here verifies with.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    pub kind: KeyKind,
    bytes: Vec<u8>,
}

impl PublicKey {
    /// From a SubjectPublicKeyInfo.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (rest, info) = SubjectPublicKeyInfo::from_der(der).map_err(|error| Error::Key(error.to_string()))?;
        if rest.is_empty() { Ok(Self::read(&info)) } else { Err(Error::Key("trailing data".to_owned())) }
    }

    /// The key that a certificate is for.
    pub fn of_certificate(der: &[u8]) -> Result<Self, Error> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| Error::Certificate(error.to_string()))?;
        Ok(Self::read(parsed.public_key()))
    }

    pub(crate) fn read(info: &SubjectPublicKeyInfo<'_>) -> Self {
        let curve = || info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        let kind = match info.algorithm.algorithm.to_id_string().as_str() {
            "1.3.101.112" => KeyKind::Ed25519,
            "1.2.840.10045.2.1" => match curve().map(|curve| curve.to_id_string()).as_deref() {
                Some("1.3.132.0.33") => KeyKind::Elliptic("P-224"),
                Some("1.2.840.10045.3.1.7") => KeyKind::Elliptic("P-256"),
                Some("1.3.132.0.34") => KeyKind::Elliptic("P-384"),
                Some("1.3.132.0.35") => KeyKind::Elliptic("P-521"),
                _ => KeyKind::Other,
            },
            "1.2.840.113549.1.1.1" => match info.parsed() {
                Ok(public_key::PublicKey::RSA(key)) => {
                    let zeros = key.modulus.iter().take_while(|byte| **byte == 0).count();
                    KeyKind::Rsa((key.modulus.len() - zeros) * 8)
                }
                _ => KeyKind::Other,
            },
            _ => KeyKind::Other,
        };
        Self { kind, bytes: info.subject_public_key.data.to_vec() }
    }

    /// Whether a message was signed with the other half of this key: by PSS with a salt as long as the hash where it is an RSA
    /// key, and over the message's SHA-256 for all but Ed25519.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self.kind {
            KeyKind::Ed25519 => &ED25519,
            KeyKind::Elliptic(_) => return self.verifies_over(256, message, signature),
            KeyKind::Rsa(_) => &RSA_PSS_2048_8192_SHA256,
            KeyKind::Other => return false,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
    }

    /// Whether a message was signed on a curve over a hash of so many bits: any of them goes with any curve.
    pub(crate) fn verifies_over(&self, bits: u32, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, bits) {
            (KeyKind::Elliptic("P-256"), 256) => &ECDSA_P256_SHA256_ASN1,
            (KeyKind::Elliptic("P-256"), 384) => &ECDSA_P256_SHA384_ASN1,
            (KeyKind::Elliptic("P-256"), 512) => &ECDSA_P256_SHA512_ASN1,
            (KeyKind::Elliptic("P-384"), 256) => &ECDSA_P384_SHA256_ASN1,
            (KeyKind::Elliptic("P-384"), 384) => &ECDSA_P384_SHA384_ASN1,
            (KeyKind::Elliptic("P-384"), 512) => &ECDSA_P384_SHA512_ASN1,
            (KeyKind::Elliptic("P-521"), 256) => &ECDSA_P521_SHA256_ASN1,
            (KeyKind::Elliptic("P-521"), 384) => &ECDSA_P521_SHA384_ASN1,
            (KeyKind::Elliptic("P-521"), 512) => &ECDSA_P521_SHA512_ASN1,
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
    }

    /// The same of an RSA key by PKCS#1 v1.5. Go takes keys from 1024 bits on; of more than 8192 each check costs too much.
    pub(crate) fn verifies_pkcs1(&self, bits: u32, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, bits) {
            (KeyKind::Rsa(_), 256) => &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            (KeyKind::Rsa(_), 512) => &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair as _,
    };
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData,
    };

    use super::*;

    #[test]
    fn keys_are_known_by_their_kind() {
        for (algorithm, kind) in [
            (&PKCS_ED25519, KeyKind::Ed25519),
            (&PKCS_ECDSA_P256_SHA256, KeyKind::Elliptic("P-256")),
            (&PKCS_ECDSA_P384_SHA384, KeyKind::Elliptic("P-384")),
        ] {
            let pair = KeyPair::generate_for(algorithm).expect("a key");
            let key = PublicKey::from_der(&pair.subject_public_key_info()).expect("a key");
            assert_eq!(key.kind, kind);
            let certificate = CertificateParams::default().self_signed(&pair).expect("a certificate");
            assert_eq!(PublicKey::of_certificate(certificate.der()), Ok(key));
        }
        assert!(PublicKey::from_der(b"none").is_err());
    }

    #[test]
    fn signatures_of_the_other_half_alone_hold() {
        let pair = Ed25519KeyPair::generate().expect("a key");
        let key = PublicKey { kind: KeyKind::Ed25519, bytes: pair.public_key().as_ref().to_vec() };
        let signature = pair.sign(b"message");
        assert!(key.verifies(b"message", signature.as_ref()));
        assert!(!key.verifies(b"another", signature.as_ref()) && !key.verifies(b"message", b""));

        for (algorithm, curve, bits) in [
            (&ECDSA_P256_SHA256_ASN1_SIGNING, "P-256", 256),
            (&ECDSA_P384_SHA384_ASN1_SIGNING, "P-384", 384),
            (&ECDSA_P521_SHA512_ASN1_SIGNING, "P-521", 512),
        ] {
            let pair = EcdsaKeyPair::generate(algorithm).expect("a key");
            let key = PublicKey { kind: KeyKind::Elliptic(curve), bytes: pair.public_key().as_ref().to_vec() };
            let signature = pair.sign(&SystemRandom::new(), b"message").expect("a signature");
            assert!(key.verifies_over(bits, b"message", signature.as_ref()), "{curve}");
            assert!(!key.verifies_over(bits, b"another", signature.as_ref()), "{curve}");
            for other in [256, 384, 512].into_iter().filter(|other| *other != bits) {
                assert!(!key.verifies_over(other, b"message", signature.as_ref()), "{curve} {other}");
            }
            assert_eq!(key.verifies(b"message", signature.as_ref()), bits == 256, "{curve}");
            assert!(!PublicKey { kind: KeyKind::Other, ..key }.verifies(b"message", signature.as_ref()));
        }
    }
}

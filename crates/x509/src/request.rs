//! Certificate requests (PKCS#10).

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ECDSA_WITH_SHA512, OID_X509_EXT_SUBJECT_ALT_NAME, Oid,
};
use x509_parser::prelude::FromDer;

use crate::{Error, KeyKind, PublicKey, Subject};

pub const REQUEST_LABEL: &str = "CERTIFICATE REQUEST";

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// All of it; what is signed is made of these very bytes.
    pub der: Vec<u8>,
    pub subject: Subject,
    /// The subject as it stands there.
    pub raw_subject: Vec<u8>,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub mails: usize,
    /// URIs, and names of kinds that nobody here knows.
    pub uris: usize,
}

impl Request {
    /// One PEM block, and nothing after it: who looks with another program sees the same request.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        Self::from_der(only_block(pem, REQUEST_LABEL)?)
    }

    pub fn from_der(der: Vec<u8>) -> Result<Self, Error> {
        let (rest, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|error| Error::Request(error.to_string()))?;
        if !rest.is_empty() {
            return Err(Error::Request("trailing data".to_owned()));
        }
        let info = &parsed.certification_request_info;
        let mut request = Self {
            subject: Subject::read(&info.subject)?,
            raw_subject: info.subject.as_raw().to_vec(),
            ..Self::default()
        };
        let mut extensions = Vec::new();
        let mut lists = 0;
        for attribute in info.iter_attributes() {
            if let ParsedCriAttribute::ExtensionRequest(list) = attribute.parsed_attribute() {
                lists += 1;
                extensions.extend(&list.extensions);
            }
        }
        for (index, extension) in extensions.iter().enumerate() {
            if lists > 1 || extensions[..index].iter().any(|other| other.oid == extension.oid) {
                return Err(Error::ExtensionsTwice);
            }
            if extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME {
                request.add_names(extension.parsed_extension())?;
            }
        }
        drop(extensions);
        request.der = der;
        Ok(request)
    }

    /// The key that the certificate is for.
    pub fn key(&self) -> Result<PublicKey, Error> {
        let parsed = X509CertificationRequest::from_der(&self.der);
        let (_, parsed) = parsed.map_err(|error| Error::Request(error.to_string()))?;
        Ok(PublicKey::read(&parsed.certification_request_info.subject_pki))
    }

    /// Refuses a request for the key of somebody else.
    pub fn check_signature(&self) -> Result<(), Error> {
        if self.is_signed_by_its_key() {
            return Ok(());
        }
        Err(Error::Signature(match self.key()?.kind {
            KeyKind::Ed25519 => "x509: Ed25519 verification failure",
            KeyKind::Elliptic(_) => "x509: ECDSA verification failure",
            KeyKind::Rsa(_) => "crypto/rsa: verification error",
            KeyKind::Other => "x509: cannot verify signature: algorithm unimplemented",
        }))
    }

    /// Whether whoever asks holds the key that the certificate is for.
    pub fn is_signed_by_its_key(&self) -> bool {
        let Ok((_, parsed)) = X509CertificationRequest::from_der(&self.der) else { return false };
        let info = &parsed.certification_request_info;
        let (key, signature) = (PublicKey::read(&info.subject_pki), &parsed.signature_value.data);
        let algorithm = &parsed.signature_algorithm.algorithm;
        let hash_of =
            |known: &[(Oid<'static>, u32)]| known.iter().find(|(oid, _)| oid == algorithm).map(|(_, bits)| *bits);
        let on_curve = hash_of(&[
            (OID_SIG_ECDSA_WITH_SHA256, 256),
            (OID_SIG_ECDSA_WITH_SHA384, 384),
            (OID_SIG_ECDSA_WITH_SHA512, 512),
        ]);
        let by_short_key = hash_of(&[(OID_PKCS1_SHA256WITHRSA, 256), (OID_PKCS1_SHA512WITHRSA, 512)]);
        // The parser knows fewer pairs of a curve and a hash, and takes no RSA key that is shorter than 2048 bits.
        match (on_curve, by_short_key) {
            (Some(bits), _) => key.verifies_over(bits, info.raw, signature),
            (_, Some(bits)) => key.verifies_pkcs1(bits, info.raw, signature),
            _ => parsed.verify_signature().is_ok(),
        }
    }

    /// The only common name, which may be missing; of several nobody can say which is meant.
    pub fn common_name(&self) -> Result<&str, Error> {
        match self.subject.common_names.as_slice() {
            [] => Ok(""),
            [one] => Ok(one),
            many => Err(Error::CommonNames(many.len())),
        }
    }

    fn add_names(&mut self, extension: &ParsedExtension<'_>) -> Result<(), Error> {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { return Err(Error::Names) };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => self.addresses.push(address(bytes).ok_or(Error::Names)?),
                GeneralName::RFC822Name(_) => self.mails += 1,
                GeneralName::Invalid(..) => return Err(Error::Names),
                _ => self.uris += 1,
            }
        }
        Ok(())
    }
}

pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// The bytes of the only PEM block. Text may stand before it, as `openssl req -text` prints it.
fn only_block(pem: &[u8], label: &'static str) -> Result<Vec<u8>, Error> {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    let wrong_type = || Error::Label(label);
    let text = std::str::from_utf8(pem).map_err(|_| wrong_type())?;
    let (before, block) = text.split_once(BEGIN).ok_or_else(wrong_type)?;
    let block = block.strip_prefix(label).and_then(|block| block.strip_prefix("-----")).ok_or_else(wrong_type)?;
    let (body, after) = block.split_once(END).ok_or_else(wrong_type)?;
    let after = after.strip_prefix(label).and_then(|after| after.strip_prefix("-----")).ok_or_else(wrong_type)?;
    let at_line_start = before.is_empty() || before.ends_with(['\n', '\r']);
    if !at_line_start || before.contains(END) || body.contains(BEGIN) || !after.trim().is_empty() {
        return Err(Error::Blocks(label));
    }
    let compact: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(compact).map_err(|_| Error::Base64)
}

#[cfg(test)]
mod tests;

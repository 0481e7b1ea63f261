//! Whom a certificate names and what a certificate request asks for, read one way by all who judge them: approver, signer,
//! admission, API server and kubelet. Two readers that disagree are a way to become somebody else.
//!
//! Reads bytes and nothing else; must not depend on any other crate of Ferry.

mod certificate;
mod error;
mod key;
pub mod pem;
mod request;
mod subject;

pub use certificate::Certificate;
pub use error::Error;
pub use key::{KeyKind, PublicKey};
pub use request::{REQUEST_LABEL, Request};
pub use subject::{Subject, UID_OID};

use x509_parser::prelude::{FromDer, X509Certificate};

/// Whom a certificate is made out to. Whether to believe it is the reader's to know.
pub fn subject_of_certificate(der: &[u8]) -> Result<Subject, Error> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| Error::Certificate(error.to_string()))?;
    if !rest.is_empty() {
        return Err(Error::Certificate("trailing data".to_owned()));
    }
    Subject::read(certificate.subject())
}

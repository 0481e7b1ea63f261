//! A server whose own certificate is in the bundle is trusted, as Go's verifier does: webpki takes authorities alone.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

#[derive(Debug)]
pub(crate) struct Pinned {
    pub authorities: Arc<WebPkiServerVerifier>,
    pub bundle: Vec<CertificateDer<'static>>,
}

impl Pinned {
    /// The authorities' part is done by being in the bundle; name, dates and purpose still count.
    fn itself(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::BadEncoding)?;
        let validity = certificate.validity();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > validity.not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        let usage = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
        if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(leaf)?, name)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.bundle.iter().any(|trusted| trusted == leaf) {
            return Self::itself(leaf, name, now).map(|()| ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(leaf, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;
    use crate::trust::roots;

    /// A certificate of an authority that no bundle has.
    fn leaf(change: impl FnOnce(&mut CertificateParams)) -> rcgen::Certificate {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(authority, KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(vec!["hook.example".into()]).unwrap();
        change(&mut params);
        params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap()
    }

    fn verdict(bundle: &str, shown: &rcgen::Certificate, name: &str) -> Result<(), Error> {
        let verifier = roots(Some(bundle.as_bytes())).unwrap().pinned().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(shown.der(), &[], &name, &[], UnixTime::now()).map(|_| ())
    }

    #[test]
    fn a_bundle_may_hold_the_servers_own_certificate() {
        let (one, other) = (leaf(|_| {}), leaf(|_| {}));
        assert_eq!(verdict(&one.pem(), &one, "hook.example"), Ok(()));
        assert!(verdict(&one.pem(), &other, "hook.example").is_err(), "another certificate of the same name");
        assert!(verdict(&one.pem(), &one, "other.example").is_err(), "the name counts");
        let both = format!("{}{}", other.pem(), one.pem());
        assert_eq!(verdict(&both, &one, "hook.example"), Ok(()));
        let old = leaf(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
        assert_eq!(verdict(&old.pem(), &old, "hook.example"), Err(CertificateError::Expired.into()));
        let early = leaf(|params| params.not_before = rcgen::date_time_ymd(3000, 1, 1));
        assert_eq!(verdict(&early.pem(), &early, "hook.example"), Err(CertificateError::NotValidYet.into()));
        let client = leaf(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
        assert_eq!(verdict(&client.pem(), &client, "hook.example"), Err(CertificateError::InvalidPurpose.into()));
        // Test servers often have one certificate that is its own authority.
        let mut params = CertificateParams::new(vec!["hook.example".into()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(verdict(&own.pem(), &own, "hook.example"), Ok(()));
    }
}

//! TLS to servers whose certificate is not looked at: pods behind `proxy`, probes, and APIServices that ask for it.
//!
//! The one place where verification is left out, so that whoever looks for it finds all of it. Must not depend on any
//! other crate of Ferry.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Takes any certificate. What is signed with it must still be signed rightly.
#[derive(Debug)]
pub struct Unverified(pub Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client without a certificate of its own that asks nobody for theirs.
pub fn unverified_client() -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::server::ResolvesServerCert;
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use rustls_pki_types::PrivateKeyDer;

    use super::*;

    /// Shows one certificate, whatever key it has.
    #[derive(Debug)]
    struct Shown(Arc<CertifiedKey>);

    impl ResolvesServerCert for Shown {
        fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }
    }

    /// Whether a handshake succeeds with a server that has this key.
    fn handshake(certificate: &CertificateDer<'static>, key: &KeyPair) -> Result<(), Error> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let key = provider.key_provider.load_private_key(key).expect("a key");
        let shown = Shown(Arc::new(CertifiedKey::new(vec![certificate.clone()], key)));
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(shown));
        let mut server = ServerConnection::new(Arc::new(config))?;
        let mut client =
            ClientConnection::new(unverified_client()?, ServerName::try_from("elsewhere").expect("a name"))?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).expect("written");
            server.read_tls(&mut sent.as_slice()).expect("read");
            server.process_new_packets()?;
            let mut answer = Vec::new();
            server.write_tls(&mut answer).expect("written");
            client.read_tls(&mut answer.as_slice()).expect("read");
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn any_certificate_will_do_but_its_key_has_to_be_there() {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["here".to_owned()]).expect("parameters");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        assert_eq!(handshake(&certificate, &key), Ok(()));
        let other = KeyPair::generate().expect("a key");
        assert!(handshake(&certificate, &other).is_err(), "somebody else's certificate");
    }
}

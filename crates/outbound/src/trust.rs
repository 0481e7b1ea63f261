//! Whom a call trusts, and what it shows of itself.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A client certificate and its key, as PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// The authorities of a PEM bundle; without one, those of this machine.
pub fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match pem {
        None => {
            let system = std::fs::read("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
            for certificate in CertificateDer::pem_slice_iter(&system).flatten() {
                // One odd certificate among the machine's must not take the others away.
                let _ = roots.add(certificate);
            }
        }
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate =
                    certificate.map_err(|error| format!("unable to load root certificates: {error:?}"))?;
                roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
            }
            if roots.is_empty() {
                return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
            }
        }
    }
    Ok(roots)
}

pub fn client_config(roots: RootCertStore, identity: Option<&Identity>) -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&identity.certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the client certificate cannot be read: {error:?}"))?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key)
        .map_err(|error| format!("the client key cannot be read: {error:?}"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("the client certificate and its key do not fit: {error}"))
}

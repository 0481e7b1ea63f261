//! Whom a call trusts, and what it shows of itself.

use std::sync::Arc;

use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

use crate::error::Error;
use crate::pinned::Pinned;

/// A configuration that does not say yet whom it trusts.
type WantsTrust = ConfigBuilder<ClientConfig, WantsVerifier>;

/// A client certificate and its key, as PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// Whom a call trusts: authorities, and servers' own certificates, for a bundle may hold either.
pub struct Trust {
    roots: RootCertStore,
    /// What the bundle holds, byte by byte.
    bundle: Vec<CertificateDer<'static>>,
}

/// The certificates of a PEM bundle; without one, this machine's authorities.
pub fn roots(pem: Option<&[u8]>) -> Result<Trust, Error> {
    let mut roots = RootCertStore::empty();
    let mut bundle = Vec::new();
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
                let certificate = certificate.map_err(|error| Error::Roots(format!("{error:?}")))?;
                roots.add(certificate.clone()).map_err(|error| Error::Roots(error.to_string()))?;
                bundle.push(certificate);
            }
            if roots.is_empty() {
                return Err(Error::Roots("unable to parse bytes as PEM block".into()));
            }
        }
    }
    Ok(Trust { roots, bundle })
}

impl Trust {
    /// Has a configuration trust them.
    pub fn onto(self, builder: WantsTrust) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
        if self.bundle.is_empty() {
            return Ok(builder.with_root_certificates(self.roots));
        }
        Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(self.pinned()?)))
    }

    pub(crate) fn pinned(self) -> Result<Pinned, Error> {
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(self.roots), provider())
            .build()
            .map_err(|error| Error::Roots(error.to_string()))?;
        Ok(Pinned { authorities, bundle: self.bundle })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub fn client_config(trust: Trust, identity: Option<&Identity>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = trust.onto(builder)?;
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&identity.certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::Identity(format!("the client certificate cannot be read: {error:?}")))?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key)
        .map_err(|error| Error::Identity(format!("the client key cannot be read: {error:?}")))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| Error::Identity(format!("the client certificate and its key do not fit: {error}")))
}

//! Who may talk to the kubelet: bearers of a certificate of the cluster with a name on the list.

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The handshake has verified the certificate already; this checks the name.
pub(crate) fn is_allowed(certificates: Option<&[CertificateDer<'_>]>, names: &[String]) -> bool {
    let Some(first) = certificates.and_then(|list| list.first()) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(first) else { return false };
    let name = certificate.subject().iter_common_name().next().and_then(|n| n.as_str().ok());
    name.is_some_and(|name| names.iter().any(|allowed| allowed == name))
}

//! Client certificates of X.509's first version. They have no extensions, and WebPKI does not read them; upstream takes those
//! that the CA signed itself.

use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

fn read(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(certificate).ok().map(|(_, certificate)| certificate)
}

fn of_first_version(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    read(certificate).filter(|certificate| certificate.version() == X509Version::V1)
}

/// The key of such a certificate, by which TLS sees that the client has it; None for those of later versions.
pub fn key(certificate: &[u8]) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let certificate = of_first_version(certificate)?;
    Some(SubjectPublicKeyInfoDer::from(certificate.public_key().raw.to_vec()))
}

/// Whether one of these authorities signed it; None for certificates of later versions.
pub(crate) fn verify(
    authorities: &[CertificateDer<'static>],
    certificate: &[u8],
    now: i64,
) -> Option<Result<(), &'static str>> {
    let leaf = of_first_version(certificate)?;
    let valid = |of: &X509Certificate<'_>| {
        (of.validity().not_before.timestamp()..=of.validity().not_after.timestamp()).contains(&now)
    };
    let signs = |authority: &CertificateDer<'static>| {
        read(authority).is_some_and(|authority| {
            authority.subject().as_raw() == leaf.issuer().as_raw()
                && authority.is_ca()
                && valid(&authority)
                && leaf.verify_signature(Some(authority.public_key())).is_ok()
        })
    };
    Some(if !valid(&leaf) {
        Err("x509: certificate has expired or is not yet valid")
    } else if authorities.iter().any(signs) {
        Ok(())
    } else {
        Err("x509: certificate signed by unknown authority")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use rustls_pki_types::pem::PemObject;

    use super::*;

    /// Valid from 2020 to 2120: a CA, and jane of the devs.
    pub(crate) const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBRTCB66ADAgECAgEBMAoGCCqGSM49BAMCMBExDzANBgNVBAMMBnBlb3BsZTAg
Fw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowETEPMA0GA1UEAwwGcGVv
cGxlMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3eYJyDdnXp589P1k/BqPASzd
vLJs8Dzie+YfBaqK3zlVi+sUll9mPDx2PrsNvn4lfGH9EoWJet2tulaFu6mMN6My
MDAwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHQ4EFgQUZAmPV8Nmt9rkBuaGyHo1b41J
ruowCgYIKoZIzj0EAwIDSQAwRgIhAPjwUNE/Q8E0lKt4EJ48sky5kZh9aRepcw9Y
CGzqZMsLAiEAxyeMZ0IWnPeKbQiQy/W98B+DnCTukUufihAlfVp2FyY=
-----END CERTIFICATE-----
";
    pub(crate) const JANE: &str = "-----BEGIN CERTIFICATE-----
MIIBFzCBvwIBAjAKBggqhkjOPQQDAjARMQ8wDQYDVQQDDAZwZW9wbGUwIBcNMjAw
MTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMB4xDTALBgNVBAoMBGRldnMxDTAL
BgNVBAMMBGphbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATCXvM4vWREIPwU
S9N8KS2WY2tHiXEifFUNJpRUQs3apdO00fAsUaPUsPjXgMxNlTTFW4AJwwyGqf7C
p0G0Bdl3MAoGCCqGSM49BAMCA0cAMEQCID+V28Gi5KCRriAmqp7C/O8+JwHWvKNz
hnbV4Rs14iHRAiAXOTpGpQ6CThPUuEygkf/Q4oVRpqlzQwd6YBQe9QPYCg==
-----END CERTIFICATE-----
";

    #[test]
    fn the_authority_itself_has_to_have_signed_it() {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        let (authority, jane) = (der(AUTHORITY), der(JANE));
        let at = |year: i64| (year - 1970) * 31_556_952;
        let known = [authority.clone()];
        assert_eq!(verify(&known, &jane, at(2030)), Some(Ok(())));
        for (authorities, now) in [(&known[..], at(2130)), (&known[..], at(2010)), (&[][..], at(2030))] {
            assert!(verify(authorities, &jane, now).is_some_and(|verdict| verdict.is_err()));
        }
        // A signature that is not the authority's.
        let mut forged = jane.to_vec();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        assert!(verify(&known, &forged, at(2030)).is_none_or(|verdict| verdict.is_err()));
        assert!(key(&jane).is_some());
        assert_eq!((verify(&known, &authority, at(2030)), key(&authority)), (None, None), "it is of the third version");
        assert_eq!(verify(&known, b"garbage", at(2030)), None);
    }
}

//! Front proxies: a proxy that proves itself by a certificate of its own CA says in headers whom it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ferry_meta::UserInfo;
use http::{HeaderMap, HeaderName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};

use crate::authenticate::{Authenticator, AuthnError, Credentials};
use crate::expiring::Expiring;
use crate::first_version;
use crate::headers::{self, Unreadable};
use crate::x509::common_name;

/// How long a verified chain is remembered: connections come back with it.
const REMEMBERED: std::time::Duration = std::time::Duration::from_secs(60);

/// A CA that vouches for clients. TLS takes every certificate whose owner has its key; each authenticator asks its own CA.
pub struct ClientAuthority(ArcSwap<Vouching>);

struct Vouching {
    verifier: Arc<dyn ClientCertVerifier>,
    authorities: Vec<CertificateDer<'static>>,
    seen: Expiring<Verdict>,
}

/// Why a chain does not lead to the CA, if it does not.
type Verdict = Result<(), Arc<str>>;

/// Why a CA cannot vouch for clients.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the client CA cannot be read: {0:?}")]
    Pem(rustls_pki_types::pem::Error),
    #[error("the client CA cannot be used: {0}")]
    Certificate(rustls::Error),
    #[error("the client CA cannot be used: {0}")]
    Verifier(rustls::server::VerifierBuilderError),
}

impl ClientAuthority {
    pub fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        Ok(Self(ArcSwap::from_pointee(Vouching::from_pem(pem)?)))
    }

    /// Another CA from now on, for connections that are open too.
    pub fn replace(&self, pem: &str) -> Result<(), AuthorityError> {
        self.0.store(Arc::new(Vouching::from_pem(pem)?));
        Ok(())
    }

    /// Whether the chain, leaf first, leads to this CA.
    pub fn vouches_for(&self, chain: &[CertificateDer<'static>]) -> bool {
        self.verify(chain).is_ok()
    }

    /// The same, with the reason in the words that clients know from Go.
    pub fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<(), Arc<str>> {
        self.0.load().verify(chain)
    }

    /// The names of the CA's certificates, as TLS tells them to clients that have several of their own to choose from.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        self.verifier().root_hint_subjects().to_vec()
    }

    /// What TLS asks.
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.0.load().verifier.clone()
    }
}

impl Vouching {
    fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        let (mut roots, mut authorities) = (RootCertStore::empty(), Vec::new());
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(AuthorityError::Pem)?;
            authorities.push(certificate.clone());
            roots.add(certificate).map_err(AuthorityError::Certificate)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(AuthorityError::Verifier)?;
        Ok(Self { verifier, authorities, seen: Expiring::new() })
    }

    fn verify(&self, chain: &[CertificateDer<'static>]) -> Verdict {
        let Some((leaf, intermediates)) = chain.split_first() else { return Err("x509: no certificate".into()) };
        // With the intermediates: another connection may bring those that this one lacks.
        let mut digest = Sha256::new();
        for certificate in chain {
            digest.update((certificate.len() as u64).to_be_bytes());
            digest.update(certificate);
        }
        let digest: [u8; 32] = digest.finalize().into();
        if let Some(known) = self.seen.get(&digest) {
            return known;
        }
        let now = ferry_meta::time::now().as_second();
        let verdict = match first_version::verify(&self.authorities, leaf, now) {
            Some(verdict) => verdict.map_err(Arc::from),
            None => {
                let verified = self.verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
                verified.map(|_| ()).map_err(|error| Arc::from(reason(&error)))
            }
        };
        self.seen.put(digest, verdict.clone(), REMEMBERED);
        verdict
    }
}

fn reason(error: &rustls::Error) -> String {
    use rustls::CertificateError as Error;
    let rustls::Error::InvalidCertificate(why) = error else { return format!("x509: {error}") };
    match why {
        Error::Expired | Error::ExpiredContext { .. } | Error::NotValidYet | Error::NotValidYetContext { .. } => {
            "x509: certificate has expired or is not yet valid".into()
        }
        Error::InvalidPurpose | Error::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage".into()
        }
        Error::UnknownIssuer | Error::BadSignature => "x509: certificate signed by unknown authority".into(),
        other => format!("x509: {other}"),
    }
}

#[derive(Clone, Debug, Default)]
pub struct RequestHeaderOptions {
    /// The common names of proxies that are trusted; empty: all that the CA vouches for.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_header_prefixes: Vec<String>,
}

pub struct RequestHeader {
    authority: Arc<ClientAuthority>,
    options: RequestHeaderOptions,
}

impl RequestHeader {
    pub fn new(authority: Arc<ClientAuthority>, options: RequestHeaderOptions) -> Self {
        Self { authority, options }
    }

    fn user(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, Unreadable> {
        let options = &self.options;
        let name = first(headers, &options.username_headers)?;
        if name.is_empty() {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for header in names(&options.group_headers) {
            groups.extend(headers::all(headers, &header)?.into_iter().filter(|group| !group.is_empty()));
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &options.extra_header_prefixes {
            for header in headers.keys() {
                if let Some(key) = headers::key_of(header, &prefix.to_lowercase()) {
                    extra.entry(key?).or_default().extend(headers::all(headers, header)?);
                }
            }
        }
        Ok(Some(UserInfo { name, uid: first(headers, &options.uid_headers)?, groups, extra }))
    }
}

/// The headers of these names; what cannot be a name is in no request.
fn names(configured: &[String]) -> impl Iterator<Item = HeaderName> {
    configured.iter().filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
}

/// The first of them that says something.
fn first(headers: &HeaderMap, configured: &[String]) -> Result<String, Unreadable> {
    for name in names(configured) {
        let value = headers::first(headers, &name)?;
        if !value.is_empty() {
            return Ok(value);
        }
    }
    Ok(String::new())
}

#[async_trait::async_trait]
impl Authenticator for RequestHeader {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<UserInfo>, AuthnError> {
        let Some(leaf) = credentials.certificates.first() else { return Ok(None) };
        // Without the headers it is no matter whose certificate it is.
        let user = match self.user(credentials.headers) {
            Ok(None) => return Ok(None),
            user => user,
        };
        if !self.authority.vouches_for(credentials.certificates) {
            return Ok(None);
        }
        let name = common_name(leaf).unwrap_or_default();
        if !self.options.allowed_names.is_empty() && !self.options.allowed_names.contains(&name) {
            return Err(AuthnError::Invalid(format!("x509: subject with cn={name} is not in the allowed list")));
        }
        user.map_err(|unreadable| AuthnError::Unreadable(unreadable.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::X509;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    struct Ca {
        pem: String,
        issuer: Issuer<'static, KeyPair>,
    }

    fn authority(name: &str) -> Ca {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Ca { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    impl Ca {
        fn client(&self, name: &str) -> Vec<CertificateDer<'static>> {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().expect("a key");
            vec![params.signed_by(&key, &self.issuer).expect("a certificate").der().clone()]
        }
    }

    #[tokio::test]
    async fn certificates_of_the_first_version_name_users_too() {
        use rustls_pki_types::pem::PemObject;
        let certificates =
            [CertificateDer::from_pem_slice(first_version::tests::JANE.as_bytes()).expect("a certificate")];
        let headers = HeaderMap::new();
        let asked = Credentials { headers: &headers, certificates: &certificates, path: "/" };
        let of = |pem: &str| X509::of(Arc::new(ClientAuthority::from_pem(pem).expect("a CA")));
        let user = of(first_version::tests::AUTHORITY).authenticate(&asked).await.expect("valid").expect("a user");
        assert_eq!((user.name.as_str(), user.groups), ("jane", vec!["devs".to_owned()]));
        assert!(of(&authority("people").pem).authenticate(&asked).await.is_err(), "another CA of the same name");
    }

    #[tokio::test]
    async fn only_a_proxy_may_speak_for_others() {
        let (proxies, people) = (authority("proxies"), authority("people"));
        let header = RequestHeader::new(
            Arc::new(ClientAuthority::from_pem(&proxies.pem).expect("a CA")),
            RequestHeaderOptions {
                allowed_names: vec!["front-proxy".into()],
                username_headers: vec!["X-Remote-User".into()],
                uid_headers: vec!["X-Remote-Uid".into()],
                group_headers: vec!["X-Remote-Group".into()],
                extra_header_prefixes: vec!["X-Remote-Extra-".into()],
            },
        );
        let authority = Arc::new(ClientAuthority::from_pem(&people.pem).expect("a CA"));
        let x509 = X509::of(authority.clone());
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", "root".parse().expect("a header"));
        headers.append("x-remote-group", "system:masters".parse().expect("a header"));
        headers.append("x-remote-group", "ops".parse().expect("a header"));
        headers.insert("x-remote-extra-example.com%2fscope", "all".parse().expect("a header"));
        let proxy = proxies.client("front-proxy");
        let asked = Credentials { headers: &headers, certificates: &proxy, path: "/" };
        let user = header.authenticate(&asked).await.expect("valid").expect("a user");
        assert_eq!((user.name.as_str(), user.groups.len()), ("root", 2));
        assert_eq!(user.extra["example.com/scope"], ["all"]);
        // The proxy's own certificate makes it nobody, and a person's does not make it a proxy.
        let unknown = "x509: certificate signed by unknown authority";
        assert!(matches!(x509.authenticate(&asked).await, Err(AuthnError::Invalid(why)) if why == unknown));
        for certificates in [people.client("front-proxy"), Vec::new()] {
            let asked = Credentials { headers: &headers, certificates: &certificates, path: "/" };
            assert!(header.authenticate(&asked).await.expect("not ours").is_none());
        }
        // Who is meant cannot be read: that is nobody, and not the one that is left without it.
        for name in ["x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-scope"] {
            let mut headers = headers.clone();
            headers.append(name, http::HeaderValue::from_bytes(b"j\xf6rg").expect("a header"));
            if name == "x-remote-user" {
                headers.insert(name, http::HeaderValue::from_bytes(b"j\xf6rg").expect("a header"));
            }
            let asked = Credentials { headers: &headers, certificates: &proxy, path: "/" };
            assert!(matches!(header.authenticate(&asked).await, Err(AuthnError::Unreadable(_))), "{name}");
        }
        let other = proxies.client("other");
        let asked = Credentials { headers: &headers, certificates: &other, path: "/" };
        assert!(header.authenticate(&asked).await.is_err());
        let person = people.client("alice");
        let asked = Credentials { headers: &headers, certificates: &person, path: "/" };
        assert_eq!(x509.authenticate(&asked).await.expect("valid").expect("a user").name, "alice");
        // Once the CA is another, whom the former one named is nobody.
        assert!(authority.replace("garbage").is_err());
        assert!(x509.authenticate(&asked).await.expect("valid").is_some(), "what cannot be used changes nothing");
        authority.replace(&proxies.pem).expect("a CA");
        assert!(matches!(x509.authenticate(&asked).await, Err(AuthnError::Invalid(why)) if why == unknown));
    }
}

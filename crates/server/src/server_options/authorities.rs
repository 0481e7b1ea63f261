//! Whose certificates are taken: clients' and front proxies', now and after their files changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use arc_swap::ArcSwap;
use ferry_auth::first_version;
use ferry_auth::{Chain, ClientAuthority, RemovedNodes, RequestHeader, RequestHeaderOptions, X509};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use serde_json::json;
use tokio::sync::watch;
use x509_parser::prelude::FromDer;

use super::AuthenticationOptions;
use crate::reload::Reloads;

/// Where a CA is read from.
#[derive(Clone)]
pub enum CaSource {
    /// This cluster's own, which stays.
    Pem(String),
    File(PathBuf),
}

impl CaSource {
    fn read(&self) -> Result<String> {
        match self {
            Self::Pem(pem) => Ok(pem.clone()),
            Self::File(path) => read(path),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What this server shows to servers behind it, as those have to know it.
#[derive(Clone, Default)]
pub struct OwnProxy {
    /// PEM of its CA; empty where the administrator gave the certificate, and thereby the CA as a flag.
    pub ca: String,
    pub name: String,
}

pub struct Authorities {
    client_source: CaSource,
    client: Arc<ClientAuthority>,
    proxy_source: Option<PathBuf>,
    proxies: Option<Arc<ClientAuthority>>,
    subjects: Subjects,
    headers: RequestHeaderOptions,
    own_proxy: OwnProxy,
    /// The CAs as they are, in the order of the fields above.
    pems: ArcSwap<(String, String)>,
    changed: watch::Sender<()>,
}

impl Authorities {
    pub fn open(
        options: &AuthenticationOptions,
        client_source: CaSource,
        own_proxy: OwnProxy,
        reloads: &Reloads,
    ) -> Result<Arc<Self>> {
        let proxy_source = options.requestheader_client_ca_file.clone();
        let pems = (client_source.read()?, proxy_source.as_deref().map(read).transpose()?.unwrap_or_default());
        let authority = |pem: &str, flag: &str| {
            ClientAuthority::from_pem(pem).map(Arc::new).map_err(|why| anyhow!("--{flag}: {why}"))
        };
        let client = authority(&pems.0, "client-ca-file")?;
        let proxies = proxy_source.as_ref().map(|_| authority(&pems.1, "requestheader-client-ca-file")).transpose()?;
        let subjects = Subjects::of(Self::subjects(&client, proxies.as_ref()));
        let new = Arc::new(Self {
            client_source,
            client,
            subjects,
            proxy_source,
            proxies,
            headers: options.request_headers(),
            own_proxy,
            pems: ArcSwap::from_pointee(pems),
            changed: watch::Sender::new(()),
        });
        let client_file = match &new.client_source {
            CaSource::File(path) => Some(path),
            CaSource::Pem(_) => None,
        };
        for path in client_file.into_iter().chain(&new.proxy_source) {
            let authorities = new.clone();
            reloads.watch(path, move || authorities.reload())?;
        }
        Ok(new)
    }

    /// What cannot be used changes nothing.
    fn reload(&self) -> Result<()> {
        let client = self.client_source.read()?;
        let proxy = self.proxy_source.as_deref().map(read).transpose()?.unwrap_or_default();
        if self.proxies.is_some() {
            // Both or neither.
            ClientAuthority::from_pem(&proxy)?;
        }
        self.client.replace(&client)?;
        if let Some(proxies) = &self.proxies {
            proxies.replace(&proxy)?;
        }
        self.subjects.replace(Self::subjects(&self.client, self.proxies.as_ref()));
        self.pems.store(Arc::new((client, proxy)));
        self.changed.send_replace(());
        Ok(())
    }

    /// What is asked before tokens: front proxies first, then certificates.
    pub fn authenticators(&self, chain: Chain, removed: RemovedNodes) -> Chain {
        let chain = match &self.proxies {
            Some(proxies) => chain.with(Arc::new(RequestHeader::new(proxies.clone(), self.headers.clone()))),
            None => chain,
        };
        chain.with(Arc::new(X509::of(self.client.clone()).without(Arc::new(removed))))
    }

    /// Told when an authority changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What servers behind this one are told.
    pub fn published(&self) -> BTreeMap<String, String> {
        let pems = self.pems.load();
        let (client, proxy) = &**pems;
        let list = |names: &[String]| json!(names).to_string();
        let mut names = self.headers.allowed_names.clone();
        // An empty list allows every name that the CA vouches for.
        let limited = self.proxies.is_none() || !names.is_empty();
        if limited && !self.own_proxy.name.is_empty() {
            names.push(self.own_proxy.name.clone());
        }
        let mut bundle = proxy.clone();
        if !bundle.is_empty() && !bundle.ends_with('\n') {
            bundle.push('\n');
        }
        bundle.push_str(&self.own_proxy.ca);
        let data = [
            ("client-ca-file", client.clone()),
            ("requestheader-client-ca-file", bundle),
            ("requestheader-allowed-names", list(&names)),
            ("requestheader-username-headers", list(&self.headers.username_headers)),
            ("requestheader-uid-headers", list(&self.headers.uid_headers)),
            ("requestheader-group-headers", list(&self.headers.group_headers)),
            ("requestheader-extra-headers-prefix", list(&self.headers.extra_header_prefixes)),
        ];
        data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// For TLS: every certificate whose key the client has. The authenticators tell whose it is, so that a client with a
    /// certificate of others is answered 401, or known by its token, instead of losing its connection.
    pub fn verifier(self: &Arc<Self>) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Verifier(self.clone()))
    }

    fn subjects(client: &ClientAuthority, proxies: Option<&Arc<ClientAuthority>>) -> Vec<DistinguishedName> {
        let mut names = client.subjects();
        for name in proxies.map(|proxies| proxies.subjects()).unwrap_or_default() {
            if !names.iter().any(|known| known.as_ref() == name.as_ref()) {
                names.push(name);
            }
        }
        names
    }
}

/// The names of the CAs, newest last. rustls borrows them for as long as it likes, so the old ones stay; there is one more only
/// when an administrator changes the file.
struct Subjects {
    names: Vec<DistinguishedName>,
    next: OnceLock<Box<Subjects>>,
}

impl Subjects {
    fn of(names: Vec<DistinguishedName>) -> Self {
        Self { names, next: OnceLock::new() }
    }

    fn newest(&self) -> &Self {
        let mut newest = self;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        newest
    }

    fn replace(&self, names: Vec<DistinguishedName>) {
        let newest = self.newest();
        let same = newest.names.iter().map(AsRef::as_ref).eq(names.iter().map(AsRef::<[u8]>::as_ref));
        if !same {
            // Files are looked at by one task: nobody else sets it meanwhile.
            let _ = newest.next.set(Box::new(Self::of(names)));
        }
    }
}

fn algorithms() -> rustls::crypto::WebPkiSupportedAlgorithms {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

struct Verifier(Arc<Authorities>);

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier")
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.0.subjects.newest().names
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let Some(key) = first_version::key(certificate) else {
            return self.0.client.verifier().verify_tls12_signature(message, certificate, signature);
        };
        let unfit = || rustls::Error::from(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme);
        let algorithms = algorithms().mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
        let (_, algorithms) = algorithms.ok_or_else(unfit)?;
        let (_, key) = x509_parser::prelude::SubjectPublicKeyInfo::from_der(&key).map_err(|_| unfit())?;
        let bits = &key.subject_public_key.data;
        match algorithms.iter().any(|one| one.verify_signature(bits, message, signature.signature()).is_ok()) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(rustls::CertificateError::BadSignature.into()),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match first_version::key(certificate) {
            Some(key) => rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms()),
            None => self.0.client.verifier().verify_tls13_signature(message, certificate, signature),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.client.verifier().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Leaf, Pki, Use, certified};
    use crate::server_options::ServerOptions;

    fn leaf(pki: &Pki, name: &str) -> CertificateDer<'static> {
        let leaf = Leaf { name: name.into(), common_name: name.into(), organizations: Vec::new(), usage: Use::Client };
        certified(&pki.leaf(&leaf, jiff::Timestamp::now()).unwrap()).unwrap().cert[0].clone()
    }

    #[test]
    fn authorities_change_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let pki = |name: &str| Pki::open(&folder.path().join(name)).unwrap();
        let (old, new, proxy) = (pki("old"), pki("new"), pki("proxy"));
        let (client_file, proxy_file) = (folder.path().join("client.pem"), folder.path().join("proxy.pem"));
        std::fs::write(&client_file, old.ca_certificate()).unwrap();
        std::fs::write(&proxy_file, proxy.ca_certificate()).unwrap();
        let mut options = ServerOptions::default().authentication;
        options.requestheader_client_ca_file = Some(proxy_file.clone());
        options.requestheader_allowed_names = vec!["gate".into()];
        let reloads = Reloads::new();
        let own = OwnProxy { ca: "OWN".into(), name: "front-proxy-client".into() };
        let authorities = Authorities::open(&options, CaSource::File(client_file.clone()), own, &reloads).unwrap();
        let verifier = authorities.verifier();
        let takes = |certificate: &CertificateDer<'static>| {
            // TLS takes all of them, for there is an answer for each.
            assert!(verifier.verify_client_cert(certificate, &[], UnixTime::now()).is_ok());
            let of = |authority: &ClientAuthority| authority.vouches_for(std::slice::from_ref(certificate));
            of(&authorities.client) || authorities.proxies.as_deref().is_some_and(of)
        };
        let hints =
            || -> Vec<Vec<u8>> { verifier.root_hint_subjects().iter().map(|name| name.as_ref().to_vec()).collect() };
        let before = hints();
        assert_eq!(before.len(), 1, "both CAs have the same name");
        let (of_old, of_new, of_proxy) = (leaf(&old, "a"), leaf(&new, "b"), leaf(&proxy, "c"));
        assert!(takes(&of_old) && takes(&of_proxy) && !takes(&of_new));
        let published = authorities.published();
        assert_eq!(published["client-ca-file"], old.ca_certificate());
        assert_eq!(published["requestheader-client-ca-file"], format!("{}OWN", proxy.ca_certificate()));
        assert_eq!(published["requestheader-allowed-names"], r#"["gate","front-proxy-client"]"#);
        assert_eq!(published["requestheader-group-headers"], r#"["X-Remote-Group"]"#);

        let mut changes = authorities.changes();
        std::fs::write(&client_file, "garbage").unwrap();
        reloads.look();
        assert!(takes(&of_old), "what cannot be used changes nothing");
        assert!(!changes.has_changed().unwrap());
        std::fs::write(&client_file, new.ca_certificate()).unwrap();
        std::fs::write(&proxy_file, old.ca_certificate()).unwrap();
        reloads.look();
        assert!(takes(&of_new) && takes(&of_old) && !takes(&of_proxy));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(authorities.published()["client-ca-file"], new.ca_certificate());
        assert_eq!(hints(), before);
        let other = rcgen::CertificateParams::default();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&client_file, other.self_signed(&key).unwrap().pem()).unwrap();
        reloads.look();
        assert_eq!(hints().len(), 2, "the new CA's name is told, too");
    }
}

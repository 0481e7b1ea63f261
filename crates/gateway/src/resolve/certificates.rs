//! Keys and certificates out of Secrets and ConfigMaps. What was made of the same bytes before is used again: it is costly to
//! make, and sessions can be resumed.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};

use super::conditions::Problem;
use super::expressions::Expressions;
use super::objects::{Objects, Referrer};
use crate::api::ObjectRef;
use crate::table::Users;

pub type Fingerprint = [u8; 32];

pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// What was made, or why it could not be.
type Made<T> = Result<Arc<T>, String>;

/// What was made before, as long as it is in use.
pub struct Memo<T> {
    /// And whether somebody asked for it since the last sweep.
    known: Mutex<HashMap<Fingerprint, (Made<T>, bool)>>,
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<T> Memo<T> {
    pub fn get(&self, key: Fingerprint, make: impl FnOnce() -> Result<Arc<T>, String>) -> Result<Arc<T>, String> {
        let mut known = self.known.lock();
        let (value, used) = known.entry(key).or_insert_with(|| (make(), true));
        *used = true;
        value.clone()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }

    /// Forgets what nobody has, and what could not be made and was not asked for since the last time.
    pub fn sweep(&self) {
        self.known.lock().retain(|_, (value, used)| match value {
            Ok(made) => std::mem::take(used) || Arc::strong_count(made) > 1,
            Err(_) => std::mem::take(used),
        });
    }
}

/// What was made of an object, for as long as that is the newest of its name. Objects may be large and be referred to very
/// often: nothing of them is read twice.
struct OfObject<O, T>(Mutex<HashMap<usize, MadeOf<O, T>>>);

type MadeOf<O, T> = (Arc<O>, Result<T, String>);

impl<O, T> Default for OfObject<O, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<O, T: Clone> OfObject<O, T> {
    fn get(&self, object: &Arc<O>, make: impl FnOnce(&O) -> Result<T, String>) -> Result<T, String> {
        // Nothing else has its address, because it is held here.
        let mut known = self.0.lock();
        let place = known.entry(Arc::as_ptr(object).addr());
        place.or_insert_with(|| (object.clone(), make(object))).1.clone()
    }

    fn sweep(&self) {
        self.0.lock().retain(|_, (object, _)| Arc::strong_count(object) > 1);
    }
}

/// No chain of certificates is longer: clients get all of it with every handshake.
const MOST_CHAIN: usize = 128 << 10;
/// All certificates that somebody is known by.
const MOST_AUTHORITIES: usize = 512 << 10;

/// CA certificates that can be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Authority {
    pub pem: Vec<u8>,
    print: Fingerprint,
}

impl Authority {
    pub fn new(pem: &[u8]) -> Self {
        Self { pem: pem.to_vec(), print: fingerprint([pem]) }
    }
}

/// Several of them together.
pub type Authorities = Vec<Arc<Authority>>;

#[derive(Default)]
pub struct Certificates {
    of_secrets: OfObject<Secret, (Fingerprint, Arc<CertifiedKey>)>,
    of_maps: OfObject<ConfigMap, Arc<Authority>>,
    users: OfObject<Secret, Arc<Users>>,
    users_of_maps: OfObject<Secret, Arc<Users>>,
    keys: Memo<CertifiedKey>,
    servers: Memo<rustls::ServerConfig>,
    clients: Memo<rustls::ClientConfig>,
    unverified: OnceLock<Made<rustls::ClientConfig>>,
    /// Kept from one moment to the next as certificates are.
    pub expressions: Expressions,
}

/// Whom a client must be known by.
#[derive(Clone, Debug)]
pub struct ClientValidation {
    pub authorities: Authorities,
    /// Those without a valid certificate come in as well.
    pub insecure_fallback: bool,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub fn data<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|bytes| bytes.0.as_slice())
}

/// The certificates of PEM files; at least one, each of which can be read.
fn roots<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in all.into_iter().flat_map(CertificateDer::pem_slice_iter) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

/// The CA certificates that an object refers to; `invalid_kind` is the reason when it is no ConfigMap. `others` are those
/// that are used together with them.
pub fn ca_certificate(
    objects: &Objects,
    certificates: &Certificates,
    from: Referrer<'_>,
    reference: &ObjectRef,
    others: &Authorities,
    invalid_kind: &'static str,
) -> Result<Arc<Authority>, Problem> {
    if !reference.group.is_empty() || reference.kind != "ConfigMap" {
        let kind = format!("{}/{}", reference.group, reference.kind);
        let message = format!("CA certificates of kind {kind} are not supported: only ConfigMaps are");
        return Err(Problem::new(invalid_kind, message));
    }
    let key = ObjectKey::new(reference.namespace.as_deref().unwrap_or(from.namespace), &reference.name);
    if !objects.permits(from, "", "ConfigMap", &key) {
        let message =
            format!("no ReferenceGrant in namespace {} permits the reference to ConfigMap {key}", key.namespace);
        return Err(Problem::new("RefNotPermitted", message));
    }
    let invalid = |why: String| Problem::new("InvalidCACertificateRef", why);
    let map = objects.config_maps.get(&key).ok_or_else(|| invalid(format!("ConfigMap {key} does not exist")))?;
    let found = certificates.of_maps.get(map, |map| {
        let pem = map.data.as_ref().and_then(|data| data.get("ca.crt")).ok_or("has no ca.crt")?;
        roots([pem.as_bytes()]).map_err(|why| format!("has a ca.crt that cannot be used: {why}"))?;
        Ok(Arc::new(Authority::new(pem.as_bytes())))
    });
    let found = found.map_err(|why| invalid(format!("ConfigMap {key} {why}")))?;
    let all = others.iter().map(|one| one.pem.len()).sum::<usize>() + found.pem.len();
    if all > MOST_AUTHORITIES {
        let most = MOST_AUTHORITIES >> 10;
        return Err(invalid(format!("with ConfigMap {key} there are more than {most} KiB of CA certificates")));
    }
    Ok(found)
}

impl Certificates {
    pub fn sweep(&self) {
        self.of_secrets.sweep();
        self.of_maps.sweep();
        self.users.sweep();
        self.users_of_maps.sweep();
        self.keys.sweep();
        self.servers.sweep();
        self.clients.sweep();
        self.expressions.sweep();
    }

    /// The key pair of a Secret of type kubernetes.io/tls.
    pub fn key(&self, secret: &Arc<Secret>) -> Result<(Fingerprint, Arc<CertifiedKey>), String> {
        self.of_secrets.get(secret, |secret| {
            let chain = data(secret, "tls.crt").ok_or("it has no tls.crt")?;
            let key = data(secret, "tls.key").ok_or("it has no tls.key")?;
            if chain.len() > MOST_CHAIN {
                return Err(format!("its tls.crt is longer than {} KiB", MOST_CHAIN >> 10));
            }
            let print = fingerprint([chain, key]);
            self.keys.get(print, || certified(chain, key).map(Arc::new)).map(|key| (print, key))
        })
    }

    /// For backends that may be anybody.
    pub fn unverified(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        let made = self.unverified.get_or_init(|| ferry_tls::unverified_client().map_err(|error| error.to_string()));
        made.clone()
    }

    /// The users of a Secret.
    pub fn users(&self, secret: &Arc<Secret>, is_map: bool) -> Arc<Users> {
        let read = |secret: &Secret| Ok(Arc::new(users(secret, is_map)));
        match is_map {
            true => self.users_of_maps.get(secret, read),
            false => self.users.get(secret, read),
        }
        .unwrap_or_default()
    }

    /// `alpn`: whether HTTP is spoken inside.
    pub fn server(
        &self,
        keys: &[(Fingerprint, Arc<CertifiedKey>)],
        alpn: bool,
        clients: Option<&ClientValidation>,
    ) -> Result<Arc<rustls::ServerConfig>, String> {
        let by = fingerprint(clients.iter().flat_map(|clients| &clients.authorities).map(|one| one.print.as_slice()));
        let flags = [u8::from(alpn), u8::from(clients.is_some_and(|clients| clients.insecure_fallback))];
        let print = fingerprint(keys.iter().map(|(print, _)| print.as_slice()).chain([by.as_slice(), &flags]));
        self.servers.get(print, || {
            let builder = rustls::ServerConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?;
            let builder = match clients {
                None => builder.with_no_client_auth(),
                Some(clients) => builder.with_client_cert_verifier(client_verifier(clients)?),
            };
            let keys = keys.iter().map(|(_, key)| key.clone()).collect();
            let mut config = builder.with_cert_resolver(Arc::new(ByName { keys }));
            if alpn {
                config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            }
            Ok(Arc::new(config))
        })
    }

    /// How backends are known that present a certificate of these authorities with one of these names.
    pub fn client(
        &self,
        authorities: &Authorities,
        names: &[Name],
        identity: Option<&(Fingerprint, Arc<CertifiedKey>)>,
    ) -> Result<(u64, Arc<rustls::ClientConfig>), String> {
        let texts: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let by = fingerprint(authorities.iter().map(|one| one.print.as_slice()));
        let parts = std::iter::once(by.as_slice()).chain(texts.iter().map(String::as_bytes));
        let own = identity.map(|(print, _)| print.as_slice()).unwrap_or_default();
        let print = fingerprint(parts.chain(std::iter::once(own)));
        let config = self.clients.get(print, || {
            let roots = Arc::new(roots(authorities.iter().map(|one| one.pem.as_slice()))?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|error| error.to_string())?;
            let verifier = Arc::new(NamedServer { inner, names: names.to_vec() });
            let builder = rustls::ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .dangerous()
                .with_custom_certificate_verifier(verifier);
            Ok(Arc::new(match identity {
                Some((_, key)) => {
                    builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key.clone())))
                }
                None => builder.with_no_client_auth(),
            }))
        })?;
        let (start, _) = print.split_at(8);
        Ok((start.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)), config))
    }
}

/// Each key of the Secret is a user, or each line of its `auth`.
fn users(secret: &Secret, is_map: bool) -> Users {
    if !is_map {
        return Users::read(&String::from_utf8_lossy(data(secret, "auth").unwrap_or_default()));
    }
    let mut text = String::new();
    for (user, hash) in secret.data.iter().flatten() {
        let hash = String::from_utf8_lossy(&hash.0);
        text.extend([user, ":", hash.trim(), "\n"]);
    }
    Users::read(&text)
}

fn certified(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("its tls.crt cannot be read: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate in its tls.crt".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("its tls.key cannot be read: {error}"))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| format!("its key pair cannot be used: {error}"))
}

/// Chooses by the name that a client asks for, then by what it can verify.
#[derive(Debug)]
struct ByName {
    keys: Vec<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let named = |key: &&Arc<CertifiedKey>| {
            let parsed = key.end_entity_cert().ok().and_then(|end| ParsedCertificate::try_from(end).ok());
            match (&parsed, &name) {
                (Some(certificate), Some(name)) => verify_server_name(certificate, name).is_ok(),
                _ => false,
            }
        };
        let usable: Vec<_> = self.keys.iter().filter(usable).collect();
        usable.iter().copied().find(|key| named(key)).or(usable.first().copied()).cloned()
    }
}

fn client_verifier(clients: &ClientValidation) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = Arc::new(roots(clients.authorities.iter().map(|one| one.pem.as_slice()))?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let builder = if clients.insecure_fallback { builder.allow_unauthenticated() } else { builder };
    let strict = builder.build().map_err(|error| error.to_string())?;
    Ok(if clients.insecure_fallback { Arc::new(Fallback(strict)) } else { strict })
}

/// Asks for a certificate and takes any.
#[derive(Debug)]
struct Fallback(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Fallback {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A name that a backend's certificate may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    Host(ServerName<'static>),
    Uri(String),
}

/// The chain must lead to the authorities, and one of the names must be in the certificate.
#[derive(Debug)]
struct NamedServer {
    inner: Arc<WebPkiServerVerifier>,
    names: Vec<Name>,
}

impl ServerCertVerifier for NamedServer {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.inner.verify_server_cert(end, intermediates, name, ocsp, now) {
            Ok(verified) if self.names.is_empty() => return Ok(verified),
            // The chain is good, whatever the name.
            Ok(_)
            | Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.names.is_empty() => {}
            Ok(verified) => return Ok(verified),
            Err(error) => return Err(error),
        }
        let certificate = ParsedCertificate::try_from(end)?;
        let fits = self.names.iter().any(|name| match name {
            Name::Host(host) => verify_server_name(&certificate, host).is_ok(),
            Name::Uri(uri) => has_uri(end, uri),
        });
        if fits {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::NotValidForName))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn has_uri(end: &CertificateDer<'_>, wanted: &str) -> bool {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let Ok((_, certificate)) = X509Certificate::from_der(end) else { return false };
    let names = certificate.subject_alternative_name().ok().flatten();
    names.is_some_and(|names| {
        names.value.general_names.iter().any(|name| matches!(name, GeneralName::URI(uri) if *uri == wanted))
    })
}

//! The cluster's certificates: a CA made once, leaves made from it and made anew well before they expire.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;

const CA_YEARS: i64 = 10;
const LEAF_DAYS: i64 = 365;
/// How long what the cluster's authority signs is good for.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(LEAF_DAYS.unsigned_abs() * 24 * 3600);
/// A leaf with less than this left is made anew.
const RENEW_DAYS: i64 = 90;

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

#[derive(Clone)]
pub enum Use {
    Server {
        names: Vec<String>,
        addresses: Vec<IpAddr>,
    },
    Client,
    /// A client whose key is read by other people's libraries. All of them read RSA; some do not read the curves' keys.
    Person,
    /// Of a member of etcd: it serves its peers, and is their client.
    Member {
        names: Vec<String>,
        addresses: Vec<IpAddr>,
    },
}

/// A certificate that the cluster has, and what it is for.
#[derive(Clone)]
pub struct Leaf {
    /// The name of its files.
    pub name: String,
    pub common_name: String,
    pub organizations: Vec<String>,
    pub usage: Use,
}

/// The folder that holds the CA and every leaf.
pub struct Pki {
    folder: PathBuf,
    ca: Pair,
}

impl Pki {
    pub fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        let ca = match read_pair(folder, "ca")? {
            Some(pair) => pair,
            None => make_ca(folder)?,
        };
        Ok(Self { folder: folder.to_owned(), ca })
    }

    /// A CA apart from this one, in a folder inside.
    pub fn below(&self, name: &str) -> Result<Self> {
        Self::open(&self.folder.join(name))
    }

    pub fn ca_certificate(&self) -> &str {
        &self.ca.certificate
    }

    /// The authority with which the cluster signs what kubelets and users ask for.
    pub fn signing_authority(&self) -> Pair {
        self.ca.clone()
    }

    /// The leaf's newest certificate: the one on disk while it is good for this use and far from its end, a new one
    /// otherwise.
    pub fn leaf(&self, leaf: &Leaf, now: Timestamp) -> Result<Pair> {
        let wanted = describe(leaf);
        let note = self.folder.join(format!("{}.for", leaf.name));
        if let Some(pair) = read_pair(&self.folder, &leaf.name)?
            && fs::read_to_string(&note).is_ok_and(|have| have == wanted)
            && lasts(&pair.certificate, now)?
        {
            return Ok(pair);
        }
        let pair = self.make_leaf(leaf, now)?;
        write_pair(&self.folder, &leaf.name, &pair)?;
        write_private(&note, &wanted)?;
        Ok(pair)
    }

    /// Where a leaf's certificate, its key and the CA's certificate are.
    pub fn files(&self, leaf: &Leaf) -> [PathBuf; 3] {
        [format!("{}.crt", leaf.name), format!("{}.key", leaf.name), "ca.crt".into()].map(|file| self.folder.join(file))
    }

    /// A key pair for signing service-account tokens: PKCS#8 PEM, made once.
    pub fn signing_key(&self) -> Result<String> {
        let path = self.folder.join("service-account.key");
        if let Ok(key) = fs::read_to_string(&path) {
            return Ok(key);
        }
        let key = KeyPair::generate()?.serialize_pem();
        write_private(&path, &key)?;
        Ok(key)
    }

    fn make_leaf(&self, leaf: &Leaf, now: Timestamp) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(&leaf.common_name, &leaf.organizations);
        // Begins a day early, so that machines whose clocks differ accept it.
        params.not_before = date(now, -1)?;
        params.not_after = date(now, LEAF_DAYS)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        match &leaf.usage {
            Use::Client | Use::Person => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            Use::Server { names, addresses } | Use::Member { names, addresses } => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                if matches!(leaf.usage, Use::Member { .. }) {
                    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
                }
                for name in names {
                    params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
                }
                params.subject_alt_names.extend(addresses.iter().map(|a| SanType::IpAddress(*a)));
            }
        }
        let issuer = Issuer::from_ca_cert_pem(&self.ca.certificate, KeyPair::from_pem(&self.ca.key)?)?;
        let key = match leaf.usage {
            Use::Person => KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256)?,
            _ => KeyPair::generate()?,
        };
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A certificate chain and its key, ready for handshakes.
pub fn certified(pair: &Pair) -> Result<Arc<CertifiedKey>> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let certified = CertifiedKey::from_der(chain(&pair.certificate)?, key, &provider)
        .context("the certificate and its key do not fit")?;
    Ok(Arc::new(certified))
}

/// A rustls server configuration that offers HTTP/2 and HTTP/1.1 and takes client certificates of the CA, or none.
pub fn server_tls(certificate: Arc<dyn ResolvesServerCert>, client_ca: &str) -> Result<Arc<rustls::ServerConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(client_ca)?), provider)
        .allow_unauthenticated()
        .build()
        .context("the client CA cannot be used")?;
    server_tls_by(certificate, verifier)
}

/// The same, for the client certificates that the verifier takes.
pub fn server_tls_by(
    certificate: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<Arc<rustls::ServerConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A rustls client configuration that trusts the CA and presents a certificate.
pub fn client_tls(certificate: Arc<dyn ResolvesClientCert>, ca: &str) -> Result<Arc<rustls::ClientConfig>> {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(ca)?)
        .with_client_cert_resolver(certificate);
    Ok(Arc::new(config))
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?;
    ensure!(!chain.is_empty(), "there is no certificate in the PEM text");
    Ok(chain)
}

fn roots(pem: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn make_ca(folder: &Path) -> Result<Pair> {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished("ferry-ca", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    // From long ago: a clock that is set back must not make the whole cluster invalid.
    let now = Timestamp::now();
    params.not_before = date(now, -CA_YEARS * 365)?;
    params.not_after = date(now, CA_YEARS * 365)?;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let pair = Pair { certificate: certificate.pem(), key: key.serialize_pem() };
    write_pair(folder, "ca", &pair)?;
    Ok(pair)
}

fn distinguished(common_name: &str, organizations: &[String]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for organization in organizations {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn date(now: Timestamp, days: i64) -> Result<time::OffsetDateTime> {
    let at = now.checked_add(SignedDuration::from_hours(24 * days))?;
    Ok(time::OffsetDateTime::from_unix_timestamp(at.as_second())?)
}

fn describe(leaf: &Leaf) -> String {
    let usage = match &leaf.usage {
        Use::Client => "client".to_owned(),
        Use::Person => "person".to_owned(),
        Use::Server { names, addresses } => format!("server {names:?} {addresses:?}"),
        Use::Member { names, addresses } => format!("member {names:?} {addresses:?}"),
    };
    format!("{} {:?} {usage}", leaf.common_name, leaf.organizations)
}

/// From when to when a certificate is good.
pub fn validity(pem: &str) -> Result<(Timestamp, Timestamp)> {
    let chain = chain(pem)?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&chain[0]).context("a stored certificate is damaged")?;
    let end = Timestamp::from_second(certificate.validity().not_after.timestamp())?;
    Ok((Timestamp::from_second(certificate.validity().not_before.timestamp())?, end))
}

/// Whether a certificate is good at this time and for long after.
fn lasts(pem: &str, now: Timestamp) -> Result<bool> {
    let (begin, end) = validity(pem)?;
    Ok(begin <= now && end.duration_since(now) > SignedDuration::from_hours(RENEW_DAYS * 24))
}

fn read_pair(folder: &Path, name: &str) -> Result<Option<Pair>> {
    let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    if !certificate.exists() || !key.exists() {
        return Ok(None);
    }
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    Ok(Some(Pair { certificate: read(&certificate)?, key: read(&key)? }))
}

fn write_pair(folder: &Path, name: &str, pair: &Pair) -> Result<()> {
    write_private(&folder.join(format!("{name}.key")), &pair.key)?;
    write_private(&folder.join(format!("{name}.crt")), &pair.certificate)
}

/// Writes a file only its owner can read, all of it or nothing: a crash leaves the old file.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_kept_while_they_fit_and_made_anew_when_they_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::open(folder.path()).unwrap();
        let server = |address: &str| Leaf {
            name: "server".into(),
            common_name: "a".into(),
            organizations: Vec::new(),
            usage: Use::Server { names: vec!["a".into()], addresses: vec![address.parse().unwrap()] },
        };
        let now = Timestamp::now();
        let first = pki.leaf(&server("127.0.0.1"), now).unwrap();
        let again = Pki::open(folder.path()).unwrap().leaf(&server("127.0.0.1"), now).unwrap();
        assert_eq!(first.certificate, again.certificate);
        let moved = pki.leaf(&server("127.0.0.2"), now).unwrap();
        assert_ne!(first.certificate, moved.certificate);
        certified(&moved).unwrap();
        // Java's clients read no keys of curves in this form.
        let person = Leaf { name: "admin".into(), usage: Use::Person, ..server("127.0.0.1") };
        let person = pki.leaf(&person, now).unwrap();
        certified(&person).unwrap();
        let der = chain(&person.certificate).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der[0]).unwrap();
        let key = certificate.public_key().parsed().unwrap();
        assert!(matches!(key, x509_parser::public_key::PublicKey::RSA(_)));
        let mode = fs::metadata(folder.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

//! A node's certificates: asked for by certificate signing requests, kept in files, renewed long before they end.
//!
//! A request is named after its key, and the key is on disk before the request is made: a node that was killed in any step
//! goes on with the same request.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferry_client::{Api, write};
use ferry_server::certificate_rotation::Current;
use ferry_server::pki::{Pair, write_private};
use ferry_tasks::Tasks;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::PostParams;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// How often the answer to a request, and the age of a certificate, is looked at.
const LOOK: Duration = Duration::from_millis(50);
const AGE_LOOK: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of its files.
    pub name: &'static str,
    signer: &'static str,
    common_name: String,
    organization: &'static str,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    usage: &'static str,
}

/// The group of the nodes' proxies: `publish` gives it the rights that a proxy and a DNS server need.
pub const PROXIES: &str = "ferry:node-proxies";

/// How one of them is called, before the node's name.
pub const PROXY: &str = "ferry:node-proxy:";

/// The group of the nodes' gateways: `publish` lets it read routes, and the keys that are in use.
pub const GATEWAYS: &str = "ferry:node-gateways";

/// How one of them is called, before the node's name.
pub const GATEWAY: &str = "ferry:node-gateway:";

impl Wanted {
    pub fn kubelet_client(node: &str) -> Self {
        Self {
            name: "kubelet-client",
            signer: KUBELET_CLIENT,
            common_name: format!("system:node:{node}"),
            organization: "system:nodes",
            names: Vec::new(),
            addresses: Vec::new(),
            usage: "client auth",
        }
    }

    pub fn kubelet_serving(node: &str, addresses: Vec<IpAddr>) -> Self {
        Self {
            name: "kubelet-serving",
            signer: KUBELET_SERVING,
            names: vec![node.to_owned()],
            addresses,
            usage: "server auth",
            ..Self::kubelet_client(node)
        }
    }

    pub fn proxy_client(node: &str) -> Self {
        Self {
            name: "proxy-client",
            signer: CLIENT,
            common_name: format!("{PROXY}{node}"),
            organization: PROXIES,
            ..Self::kubelet_client(node)
        }
    }

    pub fn gateway_client(node: &str) -> Self {
        Self {
            name: "gateway-client",
            signer: CLIENT,
            common_name: format!("{GATEWAY}{node}"),
            organization: GATEWAYS,
            ..Self::kubelet_client(node)
        }
    }

    fn request(&self, key: &KeyPair) -> Result<String> {
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, self.organization);
        name.push(DnType::CommonName, self.common_name.as_str());
        params.distinguished_name = name;
        for name in &self.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        Ok(params.serialize_request(key)?.pem()?)
    }
}

/// Where a node keeps its certificates.
#[derive(Clone)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    pub fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self, name: &str, end: &str) -> PathBuf {
        self.folder.join(format!("{name}.{end}"))
    }

    /// The certificate on disk, while it is for this use and good for at least a moment.
    pub fn have(&self, wanted: &Wanted, now: Timestamp) -> Option<Pair> {
        let pair = Pair {
            certificate: fs::read_to_string(self.path(wanted.name, "crt")).ok()?,
            key: fs::read_to_string(self.path(wanted.name, "key")).ok()?,
        };
        let fits = fs::read_to_string(self.path(wanted.name, "for")).ok()? == format!("{wanted:?}");
        let (begin, end) = ferry_server::pki::validity(&pair.certificate).ok()?;
        (fits && begin <= now && now < end).then_some(pair)
    }

    /// Asks for a new one and waits until it is there.
    pub async fn obtain(&self, client: &Client, wanted: &Wanted) -> Result<Pair> {
        let draft = self.path(wanted.name, "key-next");
        let key = match fs::read_to_string(&draft).ok().and_then(|text| KeyPair::from_pem(&text).ok()) {
            Some(key) => key,
            None => {
                let key = KeyPair::generate()?;
                write_private(&draft, &key.serialize_pem())?;
                key
            }
        };
        let certificate = match issued(client, wanted, &key).await {
            Ok(certificate) => certificate,
            Err(error) => {
                // A request that was refused stays refused: the next one has another key, and so another name.
                let _ = fs::remove_file(&draft);
                return Err(error);
            }
        };
        let pair = Pair { certificate, key: key.serialize_pem() };
        write_private(&self.path(wanted.name, "key"), &pair.key)?;
        write_private(&self.path(wanted.name, "crt"), &pair.certificate)?;
        write_private(&self.path(wanted.name, "for"), &format!("{wanted:?}"))?;
        let _ = fs::remove_file(&draft);
        Ok(pair)
    }

    /// Keeps a certificate fresh for as long as the group runs: a new one is asked for when a third of its life is left.
    pub fn keep(&self, client: Client, wanted: Wanted, current: Arc<Current>, tasks: &Tasks) {
        let certificates = self.clone();
        tasks.spawn_critical_once("node-certificate", async move {
            loop {
                if certificates.is_due(&wanted, Timestamp::now()) {
                    match certificates.obtain(&client, &wanted).await.and_then(|pair| current.replace(&pair)) {
                        Ok(()) => tracing::info!(certificate = wanted.name, "using a new certificate"),
                        Err(error) => {
                            tracing::warn!(certificate = wanted.name, "cannot renew the certificate: {error:#}")
                        }
                    }
                }
                tokio::time::sleep(AGE_LOOK).await;
            }
        });
    }

    fn is_due(&self, wanted: &Wanted, now: Timestamp) -> bool {
        let Some(pair) = self.have(wanted, now) else { return true };
        let Ok((begin, end)) = ferry_server::pki::validity(&pair.certificate) else { return true };
        end.duration_since(now) < end.duration_since(begin) / 3
    }
}

async fn issued(client: &Client, wanted: &Wanted, key: &KeyPair) -> Result<String> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_key_raw());
    let hash: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("ferry-{}-{hash}", wanted.name);
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(wanted.request(key)?.into_bytes()),
            signer_name: wanted.signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), wanted.usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    match requests.create(&PostParams::default(), &request).await {
        Err(error) if !write::is_already_exists(&error) => {
            return Err(error).context("cannot ask for a certificate");
        }
        _ => {}
    }
    let begin = tokio::time::Instant::now();
    while begin.elapsed() < PATIENCE {
        let found = requests.get(&name).await.context("cannot look at the certificate request")?;
        let status = found.status.unwrap_or_default();
        if let Some(ByteString(bytes)) = status.certificate.filter(|bytes| !bytes.0.is_empty()) {
            return String::from_utf8(bytes).context("the certificate is not PEM");
        }
        for condition in status.conditions.unwrap_or_default() {
            if matches!(condition.type_.as_str(), "Denied" | "Failed") {
                let why = condition.message.or(condition.reason).unwrap_or_default();
                bail!("the certificate request {name} was refused: {why}");
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("the certificate request {name} was not answered within a minute; `kubectl get csr {name}` shows its state")
}

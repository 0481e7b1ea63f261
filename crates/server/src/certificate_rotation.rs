//! Certificates that are renewed while the process runs: whoever serves or presents one gets the newest with each handshake.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use ferry_tasks::Tasks;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::pki::{Leaf, Pair, Pki, certified};

/// How often the clock is looked at. It may jump, and no event tells: a sleep until the end of a certificate would miss it.
const LOOK: Duration = Duration::from_secs(60);

/// The certificate of the moment.
#[derive(Debug)]
pub struct Current(ArcSwap<CertifiedKey>);

impl Current {
    pub fn new(pair: &Pair) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(ArcSwap::new(certified(pair)?))))
    }

    pub fn replace(&self, pair: &Pair) -> Result<()> {
        self.0.store(certified(pair)?);
        Ok(())
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

type Written = Box<dyn Fn(&Pair) -> Result<()> + Send + Sync>;

/// One certificate that is looked after.
struct Kept {
    source: Source,
    /// What is in use now.
    pair: Mutex<Pair>,
    renewed: Written,
}

enum Source {
    /// Made from a CA of the cluster's.
    Leaf(Arc<Pki>, Leaf),
    /// Somebody else's: read again, and taken over when it changed.
    Files { certificate: PathBuf, key: PathBuf },
}

/// All certificates of this process.
pub struct Renewals {
    pki: Arc<Pki>,
    kept: Mutex<Vec<Kept>>,
}

impl Renewals {
    pub fn new(pki: Arc<Pki>) -> Arc<Self> {
        Arc::new(Self { pki, kept: Mutex::default() })
    }

    /// A leaf of the cluster's CA, now and in future.
    pub fn leaf(&self, leaf: Leaf) -> Result<Arc<Current>> {
        self.leaf_of(self.pki.clone(), leaf)
    }

    /// A leaf of another CA.
    pub fn leaf_of(&self, pki: Arc<Pki>, leaf: Leaf) -> Result<Arc<Current>> {
        let current = Current::new(&pki.leaf(&leaf, Timestamp::now())?)?;
        let shown = current.clone();
        self.keep(Source::Leaf(pki, leaf), move |pair| shown.replace(pair))?;
        Ok(current)
    }

    /// A certificate that somebody else writes to files.
    pub fn files(&self, certificate: PathBuf, key: PathBuf) -> Result<Arc<Current>> {
        let current = Current::new(&read_files(&certificate, &key)?)?;
        let shown = current.clone();
        self.keep(Source::Files { certificate, key }, move |pair| shown.replace(pair))?;
        Ok(current)
    }

    /// Calls back with a leaf, at once and whenever it was renewed.
    pub fn with_leaf(&self, leaf: Leaf, write: impl Fn(&Pair) -> Result<()> + Send + Sync + 'static) -> Result<()> {
        write(&self.pki.leaf(&leaf, Timestamp::now())?)?;
        self.keep(Source::Leaf(self.pki.clone(), leaf), write)
    }

    fn keep(&self, source: Source, renewed: impl Fn(&Pair) -> Result<()> + Send + Sync + 'static) -> Result<()> {
        let pair = Mutex::new(Self::read(&source, Timestamp::now())?);
        self.kept.lock().push(Kept { source, pair, renewed: Box::new(renewed) });
        Ok(())
    }

    fn read(source: &Source, now: Timestamp) -> Result<Pair> {
        match source {
            Source::Leaf(pki, leaf) => pki.leaf(leaf, now),
            Source::Files { certificate, key } => read_files(certificate, key),
        }
    }

    /// Renews what is due at this time. A failure is told and tried again with the next look.
    pub fn look(&self, now: Timestamp) {
        for kept in self.kept.lock().iter() {
            let outcome = Self::read(&kept.source, now).and_then(|pair| {
                let mut have = kept.pair.lock();
                if have.certificate == pair.certificate {
                    return Ok(());
                }
                (kept.renewed)(&pair)?;
                *have = pair;
                tracing::info!("the certificate {} was renewed", name(&kept.source));
                Ok(())
            });
            if let Err(error) = outcome {
                tracing::error!("the certificate {} cannot be renewed: {error:#}", name(&kept.source));
            }
        }
    }

    /// Looks from time to time for as long as the group runs.
    pub fn start(self: &Arc<Self>, tasks: &Tasks) {
        let renewals = self.clone();
        tasks.spawn_critical("certificates", move || {
            let renewals = renewals.clone();
            async move {
                loop {
                    tokio::time::sleep(LOOK).await;
                    renewals.look(Timestamp::now());
                }
            }
        });
    }
}

fn name(source: &Source) -> String {
    match source {
        Source::Leaf(_, leaf) => leaf.name.clone(),
        Source::Files { certificate, .. } => certificate.display().to_string(),
    }
}

fn read_files(certificate: &PathBuf, key: &PathBuf) -> Result<Pair> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    Ok(Pair { certificate: read(certificate)?, key: read(key)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Use, client_tls, server_tls};
    use jiff::SignedDuration;
    use rustls::pki_types::{CertificateDer, ServerName};
    use tokio::net::{TcpListener, TcpStream};

    fn leaf(name: &str, usage: Use) -> Leaf {
        Leaf { name: name.into(), common_name: name.into(), organizations: Vec::new(), usage }
    }

    /// The certificates that both ends show in a handshake.
    async fn handshake(
        server: Arc<rustls::ServerConfig>,
        client: Arc<rustls::ClientConfig>,
    ) -> (CertificateDer<'static>, CertificateDer<'static>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            tokio_rustls::TlsAcceptor::from(server).accept(stream).await.unwrap()
        };
        // A resumed session shows the certificates of the one before.
        let mut client = (*client).clone();
        client.resumption = rustls::client::Resumption::disabled();
        let client = Arc::new(client);
        let connect = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            tokio_rustls::TlsConnector::from(client).connect(name, stream).await.unwrap()
        };
        let (server, client) = tokio::join!(accept, connect);
        let of_server = client.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let of_client = server.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        (of_server, of_client)
    }

    #[tokio::test]
    async fn leaves_are_renewed_before_they_end_without_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Arc::new(Pki::open(folder.path()).unwrap());
        let renewals = Renewals::new(pki.clone());
        let usage = Use::Server { names: vec!["localhost".into()], addresses: vec![] };
        let serving = renewals.leaf(leaf("server", usage)).unwrap();
        let presented = renewals.leaf(leaf("client", Use::Client)).unwrap();
        let options = crate::server_options::ServerOptions::default().authentication;
        let proxy = crate::front_proxy::open(&pki, &options, &renewals).unwrap();
        let of_proxy = || proxy.identity.0.resolve(&[], &[]).unwrap().cert[0].clone();
        let first_of_proxy = of_proxy();
        let written = Arc::new(Mutex::new(0));
        let count = written.clone();
        renewals
            .with_leaf(leaf("admin", Use::Client), move |_| {
                *count.lock() += 1;
                Ok(())
            })
            .unwrap();
        let shown = |current: &Arc<Current>| current.0.load().cert[0].clone();
        let server = server_tls(serving.clone(), pki.ca_certificate()).unwrap();
        let client = client_tls(presented.clone(), pki.ca_certificate()).unwrap();
        let first = handshake(server.clone(), client.clone()).await;
        let now = Timestamp::now();
        renewals.look(now + SignedDuration::from_hours(24 * 200));
        assert_eq!(handshake(server.clone(), client.clone()).await, first, "far from its end");
        renewals.look(now + SignedDuration::from_hours(24 * 300));
        assert!(shown(&serving) != first.0 && shown(&presented) != first.1, "both ends have a new certificate");
        assert!(of_proxy() != first_of_proxy);
        assert_eq!(*written.lock(), 2);
        // The clock goes back: what is not valid yet is made anew, and handshakes with the same configurations show it.
        renewals.look(now);
        let second = handshake(server, client).await;
        assert!(second.0 != first.0 && second.1 != first.1);
        assert_eq!(*written.lock(), 3);
    }
}

//! Where the cluster's state is kept: in the data folder, or in an etcd.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferry_apiserver::{StoredAs, StoredValues};
use ferry_registry::ResourceTable;
use ferry_store::{EmbeddedStore, EtcdOptions, EtcdStore, EtcdTls, Store};
use ferry_tasks::Tasks;

use crate::encryption::{Encryption, Keys};
use crate::etcd_options::{EtcdAddressFlags, EtcdFlags};
use crate::migration;
use crate::store_socket::StoreSocket;

/// How long an etcd that does not answer is waited for at the start: both may have been started together.
const ETCD_PATIENCE: Duration = Duration::from_secs(30);
const ETCD_PAUSE: Duration = Duration::from_millis(250);
/// Where Debian and most others keep the authorities that the machine trusts.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Clone, Debug)]
pub enum StorageBackend {
    /// Without `sync` a power cut may take writes that were acknowledged: for tests.
    Embedded { data_dir: PathBuf, sync: bool },
    /// `own_keys`: the keys of the data folder protect Secrets. They are the same on all servers.
    Etcd { options: EtcdOptions, written: StoredAs, own_keys: bool },
}

/// An open store, and what must live as long as it does.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub encryption: Option<Arc<Encryption>>,
    /// Lets `ferry store` reach the embedded store while this process has it open.
    pub socket: Option<StoreSocket>,
}

/// The folder of the embedded store.
pub fn store_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

impl StorageBackend {
    /// Reads the certificates; nothing is connected to yet.
    pub fn check(flags: &EtcdFlags, data_dir: &Path) -> Result<Self> {
        let Some(options) = Self::etcd_options(&flags.address)? else {
            return Ok(Self::Embedded { data_dir: data_dir.to_owned(), sync: true });
        };
        let written = match flags.storage_media_type.as_str() {
            "application/json" => StoredAs::Json,
            "application/vnd.kubernetes.protobuf" => StoredAs::Protobuf,
            other => bail!(
                "--storage-media-type {other:?} is not supported; use application/json or \
                 application/vnd.kubernetes.protobuf"
            ),
        };
        Ok(Self::Etcd { options, written, own_keys: false })
    }

    /// How the etcd of these flags is reached; None where they name none.
    pub fn etcd_options(flags: &EtcdAddressFlags) -> Result<Option<EtcdOptions>> {
        if flags.etcd_servers.is_empty() {
            return Ok(None);
        }
        let mut secure = false;
        for server in &flags.etcd_servers {
            let (scheme, rest) = server.split_once("://").unwrap_or(("", server));
            ensure!(
                matches!(scheme, "http" | "https" | "") && !rest.is_empty() && !rest.contains(char::is_whitespace),
                "--etcd-servers {server:?} is no address of an etcd; write it like https://10.0.0.1:2379"
            );
            secure |= scheme == "https";
        }
        let read = |flag: &str, path: &Path| {
            std::fs::read(path).with_context(|| format!("--{flag}: cannot read {}", path.display()))
        };
        let mut tls = EtcdTls::default();
        match &flags.etcd_cafile {
            Some(path) => tls.certificate_authority = pem("etcd-cafile", path, read("etcd-cafile", path)?)?,
            None => tls.certificate_authority = std::fs::read(SYSTEM_AUTHORITIES).unwrap_or_default(),
        }
        if let (Some(certificate), Some(key)) = (&flags.etcd_certfile, &flags.etcd_keyfile) {
            tls.identity = Some((
                pem("etcd-certfile", certificate, read("etcd-certfile", certificate)?)?,
                pem("etcd-keyfile", key, read("etcd-keyfile", key)?)?,
            ));
        }
        // Without a scheme, having certificates to show or an authority to check decides, as it does upstream.
        secure |= flags.etcd_cafile.is_some() || tls.identity.is_some();
        Ok(Some(EtcdOptions {
            tls: secure.then_some(tls),
            prefix: flags.etcd_prefix.clone(),
            ..EtcdOptions::new(flags.etcd_servers.clone())
        }))
    }

    /// Answers writes before they are on the disk, where the disk is this process's own.
    pub fn without_sync(self) -> Self {
        match self {
            Self::Embedded { data_dir, .. } => Self::Embedded { data_dir, sync: false },
            other => other,
        }
    }

    /// In the etcd that the cluster's servers run themselves.
    pub fn of_member(options: EtcdOptions) -> Self {
        Self::Etcd { options, written: StoredAs::default(), own_keys: true }
    }

    /// Whether other servers may stand on it, too.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Etcd { .. })
    }

    /// `keys` are asked to stand before the engine, below every other form that values have. On an etcd only the
    /// administrator's own file does: a key of this data folder would lock other servers out.
    pub async fn open(&self, keys: &Keys<'_>, tasks: &Tasks) -> Result<Opened> {
        let table = ResourceTable::builtin();
        match self {
            Self::Embedded { data_dir, sync } => {
                migration::refuse_unfinished(data_dir)?;
                let folder = store_folder(data_dir);
                let store = EmbeddedStore::open(&folder, ferry_store::Options { sync: *sync, ..Default::default() })
                    .with_context(|| format!("cannot open the store in {}", folder.display()))?;
                let socket = StoreSocket::open(data_dir, store.clone(), tasks)?;
                let encryption = Arc::new(Encryption::open(keys, store, &table, tasks).await?);
                Ok(Opened { store: encryption.store(), encryption: Some(encryption), socket: Some(socket) })
            }
            Self::Etcd { options, written, own_keys } => {
                let store = EtcdStore::connect(options.clone(), tasks).await.context("--etcd-servers")?;
                wait_for_etcd(&store, &options.endpoints).await?;
                let encryption = match keys.given {
                    None if !own_keys => None,
                    _ => Some(Arc::new(Encryption::open(keys, store.clone(), &table, tasks).await?)),
                };
                let store: Arc<dyn Store> = match &encryption {
                    Some(encryption) => encryption.store(),
                    None => store,
                };
                // A key that one server takes by itself would lock the others out.
                let encryption = encryption.filter(|_| keys.given.is_some());
                Ok(Opened { store: StoredValues::over(store, &table, *written), encryption, socket: None })
            }
        }
    }
}

fn pem(flag: &str, path: &Path, text: Vec<u8>) -> Result<Vec<u8>> {
    let marked = String::from_utf8_lossy(&text).contains("-----BEGIN ");
    ensure!(marked, "--{flag}: {} holds no PEM text", path.display());
    Ok(text)
}

async fn wait_for_etcd(store: &EtcdStore, endpoints: &[String]) -> Result<()> {
    let begin = Instant::now();
    loop {
        let error = match store.revision().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if begin.elapsed() >= ETCD_PATIENCE {
            return Err(error).with_context(|| format!("no etcd answers at {}", endpoints.join(",")));
        }
        tracing::warn!("waiting for etcd at {}: {error}", endpoints.join(","));
        tokio::time::sleep(ETCD_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        etcd: EtcdFlags,
    }

    fn check(words: &[&str]) -> Result<StorageBackend> {
        let flags = Flags::try_parse_from([&["ferry"], words].concat())?;
        StorageBackend::check(&flags.etcd, Path::new("/data"))
    }

    #[test]
    fn flags_of_etcd_are_checked_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let certificate = file("certificate", "-----BEGIN CERTIFICATE-----\n");
        let garbage = file("garbage", "hello");
        assert!(matches!(check(&[]).unwrap(), StorageBackend::Embedded { .. }));
        let StorageBackend::Etcd { options, written, .. } = check(&["--etcd-servers=http://a:1,http://b:2"]).unwrap()
        else {
            panic!("etcd was asked for");
        };
        assert_eq!(options.endpoints, ["http://a:1", "http://b:2"]);
        assert_eq!((options.prefix.as_str(), options.tls.is_none(), written), ("/registry", true, StoredAs::Json));
        let secure = ["--etcd-servers=https://a:1", "--etcd-prefix=/x"];
        let pair = [format!("--etcd-certfile={certificate}"), format!("--etcd-keyfile={certificate}")];
        let words: Vec<&str> = secure.into_iter().chain(pair.iter().map(String::as_str)).collect();
        let StorageBackend::Etcd { options, .. } = check(&words).unwrap() else { panic!("etcd was asked for") };
        assert!(options.tls.is_some_and(|tls| tls.identity.is_some()) && options.prefix == "/x");
        for (words, expected) in [
            (&["--etcd-servers=ftp://a"][..], "is no address"),
            (&["--etcd-servers="], "is no address"),
            (&["--etcd-cafile=/x"], "--etcd-servers"),
            (&["--etcd-servers=https://a", "--etcd-cafile=/nonexistent"], "cannot read /nonexistent"),
            (&["--etcd-servers=https://a", &format!("--etcd-cafile={garbage}")], "no PEM"),
            (&["--etcd-servers=https://a", &format!("--etcd-certfile={certificate}")], "--etcd-keyfile"),
            (&["--etcd-servers=http://a", "--storage-media-type=text/plain"], "text/plain"),
        ] {
            let message = format!("{:#}", check(words).unwrap_err());
            assert!(message.contains(expected), "{words:?}: {message}");
        }
    }
}

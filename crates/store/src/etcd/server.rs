//! A real etcd for the tests, on loopback ports of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferry_tasks::Tasks;
use ferry_testkit::free_port;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::{EtcdOptions, EtcdStore, EtcdTls};
use crate::Store;

/// Where `hack/setup.sh` unpacks it, unless it is on the path.
fn program() -> PathBuf {
    let home = || std::env::var("HOME").map(|home| format!("{home}/.cache/ferry"));
    let cache = std::env::var("FERRY_CACHE").or_else(|_| home()).unwrap_or_default();
    let unpacked = Path::new(&cache).join("etcd/usr/bin/etcd");
    if unpacked.exists() { unpacked } else { "etcd".into() }
}

pub(super) fn free_ports() -> [u16; 2] {
    [free_port(), free_port()]
}

/// One member of an etcd cluster, mostly the only one.
pub(super) struct Server {
    process: Option<Child>,
    flags: Vec<String>,
    pub(super) url: String,
    folder: tempfile::TempDir,
}

impl Server {
    pub(super) fn start() -> Self {
        let [client, peer] = free_ports();
        Self::with("http", client, peer, &format!("default=http://127.0.0.1:{peer}"), &[])
    }

    /// One that begins with a database.
    pub(super) fn start_with(database: &Path) -> Self {
        let [client, peer] = free_ports();
        let mut server = Self::new("http", client, peer, &format!("default=http://127.0.0.1:{peer}"), &[]);
        let snapshots = server.folder.path().join("data/member/snap");
        std::fs::create_dir_all(&snapshots).expect("a folder");
        std::fs::copy(database, snapshots.join("db")).expect("a database");
        let data = server.folder.path().join("data");
        std::fs::set_permissions(data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("its mode");
        server.start_again();
        server
    }

    /// Three members that elect a leader among themselves.
    pub(super) fn cluster() -> [Self; 3] {
        Self::cluster_with(&[])
    }

    pub(super) fn cluster_with(flags: &[String]) -> [Self; 3] {
        let ports = [0, 1, 2].map(|_| free_ports());
        let peers: Vec<String> =
            (0..3).map(|member| format!("m{member}=http://127.0.0.1:{}", ports[member][1])).collect();
        [0, 1, 2].map(|member| {
            let flags = [&[format!("--name=m{member}")], flags].concat();
            Self::with("http", ports[member][0], ports[member][1], &peers.join(","), &flags)
        })
    }

    pub(super) fn secure(authority: &Authority) -> Self {
        let [client, peer] = free_ports();
        let (certificate, key) = authority.pair("server");
        let flags = [
            format!("--cert-file={}", certificate.display()),
            format!("--key-file={}", key.display()),
            format!("--trusted-ca-file={}", authority.file.display()),
            "--client-cert-auth".to_owned(),
        ];
        Self::with("https", client, peer, &format!("default=http://127.0.0.1:{peer}"), &flags)
    }

    fn with(scheme: &str, client: u16, peer: u16, members: &str, more: &[String]) -> Self {
        let mut server = Self::new(scheme, client, peer, members, more);
        server.start_again();
        server
    }

    /// Not started yet.
    fn new(scheme: &str, client: u16, peer: u16, members: &str, more: &[String]) -> Self {
        // In memory where that is possible: members that wait for a disk which others keep busy elect no leader.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("folder");
        let (url, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut flags = vec![
            format!("--data-dir={}", folder.path().join("data").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={members}"),
        ];
        flags.extend(["--max-request-bytes=2097152", "--logger=zap", "--log-level=error"].map(str::to_owned));
        flags.extend_from_slice(more);
        Self { process: None, flags, url, folder }
    }

    pub(super) fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("kill");
        process.wait().expect("wait");
    }

    pub(super) fn start_again(&mut self) {
        self.process = Some(spawn(&self.flags));
    }

    /// Stopped, it keeps its connections and says nothing.
    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(self.process.as_ref().expect("it runs"));
        rustix::process::kill_process(process, signal).expect("a signal");
    }

    /// Stops it. Its threads stop one by one, and until the last has, requests may be answered.
    pub(super) async fn fall_silent(&self) {
        self.signal(rustix::process::Signal::STOP);
        while !self.is_stopped() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.as_ref().expect("it runs").id()))
            .expect("its threads");
        threads.flatten().all(|thread| {
            // `pid (name) state …`; a thread that is gone meanwhile does nothing either.
            let status = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }
}

fn spawn(flags: &[String]) -> Child {
    Command::new(program())
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts: it is in Debian's package etcd-server")
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Signs certificates for 127.0.0.1.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(super) file: PathBuf,
    folder: tempfile::TempDir,
}

impl Authority {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("certificate");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, issuer.pem()).expect("write");
        Self { issuer, file, folder }
    }

    pub(super) fn pem(&self) -> Vec<u8> {
        self.issuer.pem().into_bytes()
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        let paths = ["pem", "key"].map(|end| self.folder.path().join(format!("{name}.{end}")));
        let (certificate, key) = self.identity();
        std::fs::write(&paths[0], certificate).and_then(|()| std::fs::write(&paths[1], key)).expect("write");
        let [certificate, key] = paths;
        (certificate, key)
    }

    pub(super) fn identity(&self) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("params");
        let certificate = params.signed_by(&key, &self.issuer).expect("certificate");
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }
}

pub(super) fn options(urls: &[&str]) -> EtcdOptions {
    EtcdOptions { compaction_interval: None, ..EtcdOptions::new(urls.iter().map(|url| (*url).to_owned()).collect()) }
}

pub(super) fn secure_options(server: &Server, tls: EtcdTls) -> EtcdOptions {
    EtcdOptions { tls: Some(tls), ..options(&[&server.url]) }
}

pub(super) async fn open(options: EtcdOptions) -> Arc<EtcdStore> {
    EtcdStore::connect(options, &Tasks::new("test")).await.expect("connect")
}

/// Connected, and etcd is up.
pub(super) async fn connect(server: &Server) -> Arc<EtcdStore> {
    let store = open(options(&[&server.url])).await;
    until_up(&store).await;
    store
}

pub(super) async fn until_up(store: &EtcdStore) {
    let up = async {
        while store.health().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), up).await.expect("etcd is up");
}

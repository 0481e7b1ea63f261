//! The API server alone, as a process of this binary, and an etcd for it to stand on.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::cluster::{PATIENCE, free_port, pause};

pub const TOKEN: &str = "alone-test-token";
/// Somebody with a name and no rights but those that a test gives.
pub const MALLORY: &str = "mallory";
/// Somebody like her, who means no harm.
pub const BYSTANDER: &str = "bystander";

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub fn ferry(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferry")).args(words).output().expect("ferry runs")
}

/// Runs ferry, which must succeed, and returns what it printed.
pub fn succeeds(words: &[&str]) -> String {
    let output = ferry(words);
    assert!(output.status.success(), "ferry {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs ferry, which must fail with this code, and returns its complaint.
pub fn refused(code: i32, words: &[&str]) -> String {
    let output = ferry(words);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "ferry {words:?}: {message}");
    message
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn free_ports() -> [u16; 2] {
    [free_port(), free_port()]
}

/// A file that cannot be used is found at once; only a test that fails waits for so long.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);

pub struct Apiserver {
    process: Child,
    port: u16,
    _tokens: tempfile::NamedTempFile,
}

impl Apiserver {
    /// Returns at once; `client` waits until it serves.
    pub fn start(data_dir: &Path, flags: &[&str]) -> Self {
        Self::start_logging_to(data_dir, flags, Stdio::piped())
    }

    pub fn start_logging_to(data_dir: &Path, flags: &[&str], log: Stdio) -> Self {
        Self::spawn("127.0.0.1", data_dir, flags, log)
    }

    /// For those who need it at other addresses of the machine too.
    pub fn start_at(bind_address: &str, data_dir: &Path, flags: &[&str]) -> Self {
        Self::spawn(bind_address, data_dir, flags, Stdio::piped())
    }

    fn spawn(bind_address: &str, data_dir: &Path, flags: &[&str], log: Stdio) -> Self {
        let tokens = tempfile::NamedTempFile::new().unwrap();
        let users = format!(
            "{TOKEN},admin,1,\"system:masters\"\n{MALLORY}-token,{MALLORY},2\n{BYSTANDER}-token,{BYSTANDER},3\n"
        );
        std::fs::write(tokens.path(), users).unwrap();
        let port = free_port();
        let process = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .args(["apiserver", "--bind-address", bind_address, "--secure-port", &port.to_string()])
            .args(["--data-dir", text(data_dir), "--token-auth-file", text(tokens.path())])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ferry runs");
        Self { process, port, _tokens: tokens }
    }

    /// As administrator.
    pub async fn client(&mut self) -> kube::Client {
        self.client_with(TOKEN).await
    }

    /// As nobody.
    pub async fn anonymous(&mut self) -> kube::Client {
        self.client_as(kube::config::AuthInfo::default()).await
    }

    pub async fn mallory(&mut self) -> kube::Client {
        self.client_with(&format!("{MALLORY}-token")).await
    }

    pub async fn bystander(&mut self) -> kube::Client {
        self.client_with(&format!("{BYSTANDER}-token")).await
    }

    /// As whom a certificate names: its PEM with that of its key.
    pub async fn client_by_certificate(&mut self, identity: &[u8]) -> kube::Client {
        use base64::Engine;
        let identity = base64::engine::general_purpose::STANDARD.encode(identity);
        let auth = kube::config::AuthInfo {
            client_certificate_data: Some(identity.clone()),
            client_key_data: Some(identity.into()),
            ..kube::config::AuthInfo::default()
        };
        self.client_as(auth).await
    }

    async fn client_with(&mut self, token: &str) -> kube::Client {
        let token = Some(token.to_owned().into());
        self.client_as(kube::config::AuthInfo { token, ..kube::config::AuthInfo::default() }).await
    }

    async fn client_as(&mut self, auth_info: kube::config::AuthInfo) -> kube::Client {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{}", self.port).parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_namespace = "default".into();
        // What the server answers is what is looked at.
        config.default_retry = false;
        config.auth_info = auth_info;
        let client = kube::Client::try_from(config).unwrap();
        let begin = Instant::now();
        loop {
            let ready = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if client.request_text(ready).await.is_ok() {
                return client;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "the API server does not serve: {}", self.end());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Writes how other programs reach it as administrator.
    pub fn write_kubeconfig(&self, path: &Path) {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{ "name": "a", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true,
            } }],
            "users": [{ "name": "a", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        });
        std::fs::write(path, config.to_string()).unwrap();
    }

    pub fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    /// Of the process, while it is there.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The most it held in memory since the last call.
    pub fn peak_kilobytes(&self) -> u64 {
        let peak = self.memory("VmHWM");
        std::fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").unwrap();
        peak
    }

    /// What it holds in memory now.
    pub fn resident_kilobytes(&self) -> u64 {
        self.memory("VmRSS")
    }

    /// What it held in memory when it held most.
    pub fn most_resident_kilobytes(&self) -> u64 {
        self.memory("VmHWM")
    }

    fn memory(&self, figure: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Waits until it ends by itself and returns what it complained about. A server that serves on is a failure.
    pub fn refusal(mut self) -> String {
        let begin = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < REFUSED_WITHIN, "it was not refused: {}", self.end());
            pause(Duration::from_millis(20));
        }
        self.end()
    }

    /// Tells it to stop, and waits until it has.
    pub fn stop(mut self) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let begin = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not stop: {}", self.end());
            pause(Duration::from_millis(20));
        }
    }

    /// Ends it by force and returns what it complained about.
    pub fn end(&mut self) -> String {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mut errors = Vec::new();
        if let Some(mut stream) = self.process.stderr.take() {
            let _ = stream.read_to_end(&mut errors);
        }
        String::from_utf8_lossy(&errors).into_owned()
    }
}

impl Drop for Apiserver {
    fn drop(&mut self) {
        self.end();
    }
}

/// Creates a ConfigMap and returns its revision.
pub async fn create(client: &kube::Client, name: &str) -> kube::Result<u64> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let data = Some([("name".to_owned(), name.to_owned())].into());
    let made = api.create(&PostParams::default(), &ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    Ok(made.metadata.resource_version.unwrap().parse().unwrap())
}

pub struct Etcd {
    process: Child,
    folder: tempfile::TempDir,
    ports: [u16; 2],
    flags: Vec<String>,
    scheme: &'static str,
}

/// Where `hack/setup.sh` unpacks it, or on the path. A scenario that asks for it is skipped where there is none.
fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    let found = std::iter::once(ferry_testkit::cache().join("etcd/usr/bin/etcd")).chain(on_path).find(|p| p.exists());
    found.unwrap_or_else(|| ferry_testkit::cannot_run("there is no etcd; it is in Debian's package etcd-server"))
}

impl Etcd {
    pub fn start(scheme: &'static str, flags: Vec<String>) -> Self {
        Self::start_at(scheme, free_ports(), flags)
    }

    /// Members of one cluster. What they send each other goes to the port that `way` gives for the one that a member listens at.
    pub fn cluster(count: usize, way: impl Fn(u16) -> u16) -> Vec<Self> {
        let ports: Vec<[u16; 2]> = (0..count).map(|_| free_ports()).collect();
        let peers: Vec<String> = ports.iter().map(|ports| format!("http://127.0.0.1:{}", way(ports[1]))).collect();
        let member = |(number, peer): (usize, &String)| format!("m{number}={peer}");
        let members: Vec<String> = peers.iter().enumerate().map(member).collect();
        let start = |(number, ports): (usize, &[u16; 2])| {
            let flags = vec![
                format!("--name=m{number}"),
                format!("--initial-cluster={}", members.join(",")),
                // The last one counts.
                format!("--initial-advertise-peer-urls={}", peers[number]),
            ];
            Self::start_at("http", *ports, flags)
        };
        ports.iter().enumerate().map(start).collect()
    }

    fn start_at(scheme: &'static str, ports: [u16; 2], flags: Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Self::spawn(folder.path(), ports, scheme, &flags);
        Self { process, folder, ports, flags, scheme }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn spawn(folder: &Path, ports: [u16; 2], scheme: &str, flags: &[String]) -> Child {
        let (client, peer) = (format!("{scheme}://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
        Command::new(program())
            .args(["--data-dir", text(folder), "--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--logger", "zap", "--log-level", "error"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts")
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port())
    }

    /// For clients.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.process = Self::spawn(self.folder.path(), self.ports, self.scheme, &self.flags);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address of nobody.
pub fn dead_url() -> String {
    format!("http://127.0.0.1:{}", free_port())
}
